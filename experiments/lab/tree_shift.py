"""Depth and width over time while load, domain and drafter change, on recorded answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, IntArray
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.drafters.answers import Answer
from acclimate.experiments.drafters.choices import backoff_files
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.tree_cells import SHIFT, TreeCell, TreeRow
from acclimate.experiments.lab.tree_shapes import held_out_answers
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.trees.backoff import BackoffDrafter
from acclimate.experiments.trees.draft import Law, NextTokens
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.recorded import RecordedTarget
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.shape_log import ShapeLog, thin

_DEPTH, _WIDTH, _NODES, _MOST_REQUESTS = 8, 4, 32, 8
_STEPS, _POINTS = 250, 50  # of each phase
_ENGINE = Capabilities(
    max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=_WIDTH, hindsight=True
)
_STEP_TIME = ([1, 1, 8, 8], [0, 8, 0, 8], [20.0, 24.0, 24.0, 60.0])


class Phase(NamedTuple):
    """A stretch of the stream: whose answers, how many at a time, and which drafter."""

    domain: str
    requests: int
    drafter: str


PHASES = (
    Phase("writing", 1, "general"),
    Phase("writing", 8, "general"),
    Phase("summarization", 8, "general"),
    Phase("summarization", 1, "general"),
    Phase("code", 1, "general"),
    Phase("code", 1, "code"),
    Phase("writing", 1, "code"),
)


def shift_cells(answers: Path) -> list[TreeCell]:
    """Return the one cell: a phase begins where the one before left off."""
    return [TreeCell(key=f"{SHIFT}/shapes", options={"answers": str(answers)})]


def shift_cell(key: str, *, answers: str) -> TreeRow:
    """Serve all phases with one policy; columns of `ShapeNote` and the phase of each point."""
    kept = held_out_answers(Path(answers))
    clock = SimulatedClock()
    target = RecordedTarget(
        [(answer.prompt, answer.answer) for answer in kept], TableTime(*_STEP_TIME), clock,
        max_requests=_MOST_REQUESTS,
    )  # fmt: skip
    log = ShapeLog(TreePolicy(ControlConfig(), _ENGINE))
    loop = ControlLoop(log, _ENGINE, ControlConfig(), clock_ns=clock)
    models = {name: BackoffDrafter.load(path) for name, path in backoff_files().items()}
    drafter = Swappable(models[PHASES[0].drafter])
    engine = TreeEngine(target, loop, drafter, nodes=_NODES)
    numbers: dict[str, list[float | None]] = {"phase": []}
    for number, phase in enumerate(PHASES):
        drafter.current = models[phase.drafter]
        engine.concurrency = phase.requests
        begun = len(log.notes)
        stream = _requests([answer for answer in kept if answer.domain == phase.domain])
        for _ in range(_STEPS):
            # What is under way of an earlier phase is served to its end.
            engine.submit(itertools.islice(stream, max(phase.requests - len(engine.serving), 0)))
            engine.run(max_steps=1)
        columns = thin(log.notes[begun:], _POINTS)
        for name, column in columns.items():
            numbers.setdefault(name, []).extend(column)
        numbers["phase"] += [float(number)] * len(columns["now_s"])
    names = [f"{p.domain}, {p.requests} at a time, {p.drafter} drafter" for p in PHASES]
    return TreeRow(key=key, numbers=numbers, names={"phases": names})


def shift_figures(rows: Sequence[TreeRow]) -> list[Figure]:
    """Return depth, width and nodes of the chosen trees in the second half of each phase."""
    figures = []
    for row in rows:
        phase = row.column("phase")
        for number, name in enumerate(row.names["phases"]):
            own = [i for i, at in enumerate(phase) if at == number]
            late = own[len(own) // 2 :]
            for what in ("depth", "width", "nodes", "tokens"):
                column = row.column(what)
                mean = sum(column[i] for i in late) / len(late)
                label = f"{number + 1} {name}".replace(", ", "/").replace(" ", "-")
                figures.append(Figure(f"tree/shift/{label}/{what}", mean, n=len(late)))
    return figures


class Swappable:
    """A drafter that can be exchanged while an engine serves.

    Parameters
    ----------
    current
        Who drafts; the attribute may be set.
    """

    def __init__(self, current: NextTokens) -> None:
        self.current = current

    def next_tokens(self, ids: IntArray, most: int) -> Law:
        """Ask the one that drafts now."""
        return self.current.next_tokens(ids, most)


def _requests(answers: Sequence[Answer]) -> Iterator[TreeRequest]:
    for answer in itertools.cycle(answers):
        yield TreeRequest(prompt=answer.prompt, max_tokens=len(answer.answer), domain=answer.domain)
