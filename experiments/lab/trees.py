"""``acclimate lab trees``: draft trees on a real model, and what their control is worth."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.experiments.drafters.choices import trained_folder
from acclimate.experiments.figures import Figure, print_figures
from acclimate.experiments.lab.cell_grid import run_cells
from acclimate.experiments.lab.cell_store import CellStore
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.tracking import Group
from acclimate.experiments.lab.tree_cells import (
    IDENTITY,
    SAMPLING,
    SHIFT,
    SPEED,
    SWAP,
    WORTH,
    TreeCell,
    TreeRow,
    run_tree_cell,
)

COMMAND = "lab trees"
_ANSWERS = "answers.jsonl"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """What is examined.

    Parameters
    ----------
    prompts, tokens
        Held-out prompts per domain whose answers are compared with plain decoding's, 0 for none;
        and tokens per answer.
    draws
        Of each test of the sampled law; 0: none.
    answers
        Recorded answers, which tell what trees are worth without a model; None: those of ``testbed
        train-draft`` if there are any.
    swaps
        Seeds of the swap of a drafter whose truth is known; 0: none.
    rounds, speed_tokens
        Of the comparison of speeds, 0 for none; and tokens per answer there.
    """

    prompts: int = 20
    tokens: int = 48
    draws: int = 200_000
    answers: Path | None = None
    swaps: int = 5
    rounds: int = 2
    speed_tokens: int = 48

    def recorded(self) -> Path | None:
        """Return the file of recorded answers, if there is one."""
        own = trained_folder() / _ANSWERS
        return self.answers or (own if own.is_file() else None)

    def settings(self, seed: int) -> dict[str, Any]:
        """Return what decides the cells."""
        recorded = self.recorded()
        return {
            **dataclasses.asdict(self), "seed": seed,
            "answers": None if recorded is None else recorded.name,
        }  # fmt: skip


def run_trees(
    options: TreeOptions,
    *,
    minutes: float | None = None,
    run: LabRun = LabRun(),
) -> list[Figure]:
    """Examine trees: text, sampled law, worth on recorded answers, swaps, shifts, measured speed.

    Parameters
    ----------
    options
        What is examined.
    minutes
        Stop after; a run with ``resume`` goes on.
    run
        Processes for all but speeds, which are measured in this one, alone: by default one; folder,
        seed and the like.

    Raises
    ------
    ValueError
        The folder holds something else, or there is nothing to examine.
    RuntimeError
        Cells failed, or the time is up; what is done is kept.
    """
    cells = tree_cells(options, seed=run.seed)
    if not cells:
        raise ValueError("something must be examined, got no prompts, draws, swaps or rounds")
    ends_s = None if minutes is None else time.monotonic() + 60.0 * minutes
    with run.open_store(COMMAND, options.settings(run.seed), TreeRow) as store:
        _run(store, cells, options, run, ends_s)
        figures = tree_figures(store.rows, run.seed)
        console = lab_console(120)
        print_figures(figures, title="Draft trees", console=console)
        conclude(
            store,
            figures,
            lambda: tree_groups(figures, store.rows),
            console,
            run,
            engine="trees",
        )
    return figures


def tree_cells(options: TreeOptions, *, seed: int) -> list[TreeCell]:
    """Return all cells, those of speed last."""
    from acclimate.experiments.lab.tree_speed import speed_cells
    from acclimate.experiments.lab.tree_swap import swap_cells

    cells: list[TreeCell] = []
    recorded = options.recorded()
    if recorded is not None:
        from acclimate.experiments.lab.tree_shapes import held_out_answers, worth_cells
        from acclimate.experiments.lab.tree_shift import shift_cells

        domains = sorted({answer.domain for answer in held_out_answers(recorded)})
        cells += worth_cells(recorded, domains, seed=seed)
        cells += shift_cells(recorded)
    cells += swap_cells(options.swaps, seed=seed)
    if options.draws:
        from acclimate.experiments.lab.tree_sampling import sampling_cells

        cells += sampling_cells(options.draws, seed=seed)
    if options.prompts:
        from acclimate.experiments.lab.tree_identity import identity_cells

        cells += identity_cells(options.prompts, options.tokens, seed=seed)
    return cells + speed_cells(options.rounds)


def tree_figures(rows: Sequence[TreeRow], seed: int) -> list[Figure]:
    """Return the figures of whatever parts have rows."""
    by_part: dict[str, list[TreeRow]] = {}
    for row in sorted(rows, key=lambda row: row.key):
        by_part.setdefault(row.part, []).append(row)
    rng = np.random.default_rng(seed)
    figures: list[Figure] = []
    if IDENTITY in by_part:
        from acclimate.experiments.lab.tree_identity import identity_figures

        figures += identity_figures(by_part[IDENTITY])
    if SAMPLING in by_part:
        from acclimate.experiments.lab.tree_sampling import sampling_figures

        figures += sampling_figures(by_part[SAMPLING], seed=seed)
    if WORTH in by_part:
        from acclimate.experiments.lab.tree_shapes import worth_figures

        figures += worth_figures(by_part[WORTH])
    if SPEED in by_part:
        from acclimate.experiments.lab.tree_speed import SpeedTable

        figures += SpeedTable.of(by_part[SPEED]).figures(rng)
    if SWAP in by_part:
        from acclimate.experiments.lab.tree_swap import swap_figures

        figures += swap_figures(by_part[SWAP], rng)
    if SHIFT in by_part:
        from acclimate.experiments.lab.tree_shift import shift_figures

        figures += shift_figures(by_part[SHIFT])
    return figures


def tree_groups(figures: Sequence[Figure], rows: Sequence[TreeRow]) -> list[Group]:
    """Return a nested run for each second part of the figures' names, shapes over time with them."""
    named: dict[str, list[Figure]] = {}
    for figure in figures:
        named.setdefault(figure.name.split("/")[1], []).append(figure)
    groups = [Group(name, {"part": name}, own, strip="tree/") for name, own in named.items()]
    return [dataclasses.replace(group, series=shape_series(rows, group.name)) for group in groups]


def shape_series(rows: Sequence[TreeRow], name: str) -> dict[str, list[float]]:
    """Return depth, width and nodes over time of the runs that are part of ``tree/<name>``."""
    series: dict[str, list[float]] = {}
    columns = ("now_s", "requests", "depth", "width", "nodes", "tokens")
    own = sorted((row for row in rows if row.part == name), key=lambda row: row.key)
    if name == SHIFT:
        for row in own:
            series |= {f"shift/{column}": row.column(column) for column in columns}
    if name == SWAP:
        # The first seed's runs stand for all.
        first = own[0].key.rsplit("/", 1)[-1] if own else ""
        for row in own:
            if row.key.endswith(f"/{first}"):
                series |= {
                    f"{row.key}/{column}": row.column(f"shape/{column}") for column in columns
                }
    return series


def _run(
    store: CellStore[TreeRow],
    cells: Sequence[TreeCell],
    options: TreeOptions,
    run: LabRun,
    ends_s: float | None,
) -> None:
    have = {row.key for row in store.rows}
    missing = [cell for cell in cells if cell.key not in have]

    def keep(row: TreeRow) -> None:
        store.add(row)
        if ends_s is not None and time.monotonic() > ends_s and len(store.rows) < len(cells):
            raise KeyboardInterrupt

    measured = [cell for cell in missing if cell.part == SPEED]
    others = [cell for cell in missing if cell.part != SPEED]
    try:
        for work, part, processes in (
            (run_tree_cell, others, run.jobs or 1),
            (_speed_work(options, run.seed), measured, 1),
        ):
            if part:
                run_cells(
                    work, part, jobs=processes, on_result=keep, name_of=lambda cell: cell.key,
                    done=len(cells) - len(missing),
                )  # fmt: skip
    except KeyboardInterrupt:
        raise RuntimeError(
            f"stopped with {len(store.rows)} of {len(cells)} cells done; "
            f"--out {store.folder} --resume goes on"
        ) from None


def _speed_work(options: TreeOptions, seed: int) -> Any:
    """Return what runs a round; the model is loaded when the first one begins."""
    sessions: list[Any] = []

    def work(cell: TreeCell) -> TreeRow:
        if not sessions:
            sessions.append(_speed_session(options, seed))
        row: TreeRow = sessions[0].run(cell)
        return row

    return work


def _speed_session(options: TreeOptions, seed: int) -> Any:
    from acclimate.experiments.lab.tree_identity import general_drafter, held_out_texts, stop_ids
    from acclimate.experiments.lab.tree_speed import LOADS, PROMPTS, Cell, SpeedSession
    from acclimate.experiments.testbed import model_path
    from acclimate.experiments.trees.target import load_target

    path = str(model_path())
    model = load_target(path)
    texts: dict[str, list[list[int]]] = {}
    for domain, text in held_out_texts(path, range(max(PROMPTS)), seed=seed):
        texts.setdefault(domain, []).append(text)
    cells = [
        Cell(domain, load, own[:prompts])
        for domain, own in texts.items()
        for load, prompts in zip(LOADS, PROMPTS, strict=True)
    ]
    return SpeedSession(
        model, general_drafter(), cells, tokens=options.speed_tokens, stop=stop_ids(model),
        seed=seed,
    )  # fmt: skip
