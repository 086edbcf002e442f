"""What trees are worth on recorded answers: calibration, and tokens at equal verified nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities, FloatArray
from acclimate.experiments.bench.acceptance_scores import calibration_error
from acclimate.experiments.drafters.answers import Answer, read_answers
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.tree_cells import WORTH, TreeCell, TreeRow
from acclimate.experiments.lab.tree_identity import general_drafter
from acclimate.experiments.peers.static_tree import StaticTree
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.trees.draft import NextTokens
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.recorded import RecordedTarget
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.top_nodes import TopNodes
from acclimate.experiments.trees.watched import Notes, WatchedTrees

_DEPTH, _WIDTH, _NODES = 8, 4, 32
_CHOSEN = 8  # nodes, and tokens of the chain that they are compared with
_CALIBRATED = 16  # nodes of the stream that calibration is measured on
_PERFECT_DRAWS = 200
_QUANTILE = 0.95
_TREES = Capabilities(
    max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=_WIDTH, free_drafts=True,
    hindsight=True,
)  # fmt: skip
_CHAINS = Capabilities(max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=2)


def worth_cells(answers: Path, domains: Sequence[str], *, seed: int) -> list[TreeCell]:
    """Return the cell of calibration, and one of tokens per step for each domain."""
    options = {"answers": str(answers), "seed": seed}
    cells = [TreeCell(key=f"{WORTH}/calibration", options=options)]
    return cells + [
        TreeCell(key=f"{WORTH}/commit/{domain}", options={**options, "domain": domain})
        for domain in domains
    ]


def worth_cell(key: str, *, answers: str, seed: int, domain: str | None = None) -> TreeRow:
    """Repeat held-out answers; a figure's value and n by its name."""
    drafter = general_drafter()
    kept = held_out_answers(Path(answers))
    mixed = [kept[i] for i in np.random.default_rng(seed).permutation(len(kept))]
    if domain is None:
        figures = calibration_figures(mixed, drafter, seed=seed)
    else:
        own = [answer for answer in mixed if answer.domain == domain]
        figures = [commit_figure(domain, own, drafter)]
    return TreeRow(
        key=key, numbers={figure.name: [figure.value, float(figure.n)] for figure in figures}
    )


def worth_figures(rows: Sequence[TreeRow]) -> list[Figure]:
    """Return the figures of all cells."""
    return [
        Figure(name, value, n=int(n or 0))
        for row in rows
        for name, (value, n) in row.numbers.items()
    ]


def held_out_answers(path: Path) -> list[Answer]:
    """Return recorded answers that no drafter was trained on."""
    return [answer for answer in read_answers(path) if answer.held_out and answer.answer]


def calibration_figures(mixed: Sequence[Answer], drafter: NextTokens, *, seed: int) -> list[Figure]:
    """Return calibration by domain, of answers that a drafter never saw.

    It is measured while it is learned, from the first node on, over the nodes that were verified: 16
    of each request, chosen by what was believed. ``ece_perfect`` is what 95 in 100 perfect
    predictors stay below on as many trees.
    """
    rng = np.random.default_rng(seed)
    figures = []
    for domain, notes in serve(mixed, drafter, nodes=_CALIBRATED, batch=4).items():
        figures += _calibration(domain, notes, rng)
    return figures


def commit_figure(domain: str, own: Sequence[Answer], drafter: NextTokens) -> Figure:
    """Return tokens per step of 8 chosen nodes over those of a chain of 8, at one request.

    That is the best chain of as many verified tokens.
    """
    (notes,) = serve(own, drafter, nodes=_CHOSEN, batch=1).values()
    chain = StaticTree(_CHAINS, depth=_DEPTH, width=1, nodes=_CHOSEN)
    engine = _engine(chain, _CHAINS, own, drafter, batch=1, nodes=_CHOSEN)
    engine.run(_requests(own))
    tally = engine.tally
    rate = 1.0 + tally.accepted / tally.steps
    return Figure(
        f"tree/{domain}/commit_ratio_to_best_chain",
        notes.written / notes.steps / rate,
        n=notes.steps,
    )


def serve(
    answers: Sequence[Answer], drafter: NextTokens, *, nodes: int, batch: int
) -> dict[str, Notes]:
    """Repeat answers with so many chosen nodes per request and step; return notes by domain."""
    policy = WatchedTrees(TopNodes(ControlConfig(), _TREES, nodes=nodes))
    engine = _engine(policy, _TREES, answers, drafter, batch=batch, nodes=_NODES)
    engine.run(_requests(answers))
    return policy.notes()


def _engine(
    policy: Policy,
    capabilities: Capabilities,
    answers: Sequence[Answer],
    drafter: NextTokens,
    *,
    batch: int,
    nodes: int,
) -> TreeEngine:
    clock = SimulatedClock()
    step_time = TableTime([1, 1, 8, 8], [0, 8, 0, 8], [20.0, 24.0, 24.0, 60.0])
    target = RecordedTarget(
        [(answer.prompt, answer.answer) for answer in answers], step_time, clock, max_requests=batch
    )
    loop = ControlLoop(policy, capabilities, ControlConfig(), clock_ns=clock)
    return TreeEngine(target, loop, drafter, nodes=nodes)


def _requests(answers: Sequence[Answer]) -> list[TreeRequest]:
    return [
        TreeRequest(prompt=answer.prompt, max_tokens=len(answer.answer), domain=answer.domain)
        for answer in answers
        if answer.answer
    ]


def perfect_path_error(notes: Notes, rng: np.random.Generator) -> float:
    """Return the 95th percentile of the calibration error if what is believed were the truth.

    Paths are drawn through the trees as they were: of the children of a taken node one is taken, or
    none.
    """
    believed, parent = notes.believed, notes.parent
    _, family = np.unique(notes.family, return_inverse=True)
    above = np.where(parent < 0, 1.0, believed[parent])
    share = np.divide(believed, above, out=np.zeros_like(believed), where=above > 0.0)
    high = _within(share, family)
    level = np.zeros(parent.shape[0], dtype=np.int64)
    for node in np.flatnonzero(parent >= 0).tolist():
        level[node] = level[parent[node]] + 1
    errors = []
    for _ in range(_PERFECT_DRAWS):
        luck = rng.random(int(family.max()) + 1)[family]
        hit = (luck >= high - share) & (luck < high)
        for depth in range(1, int(level.max()) + 1):
            here = np.flatnonzero(level == depth)
            hit[here] &= hit[parent[here]]
        errors.append(calibration_error(believed, hit))
    return float(np.quantile(errors, _QUANTILE))


def _within(share: FloatArray, family: np.ndarray) -> FloatArray:
    """Return each node's cumulative share among its siblings, itself included."""
    order = np.argsort(family, kind="stable")
    total = np.cumsum(share[order])
    first = np.concatenate([[True], np.diff(family[order]) > 0])
    before = np.maximum.accumulate(np.where(first, total - share[order], -np.inf))
    result = np.empty_like(share)
    result[order] = total - before
    return result


def _calibration(domain: str, notes: Notes, rng: np.random.Generator) -> list[Figure]:
    raw, calibrated = (
        calibration_error(predicted, notes.taken) for predicted in (notes.said, notes.believed)
    )
    n = notes.taken.shape[0]
    return [
        Figure(f"tree/{domain}/ece_raw", raw, n=n),
        Figure(f"tree/{domain}/ece_calibrated", calibrated, n=n),
        Figure(f"tree/{domain}/ece_perfect", perfect_path_error(notes, rng), n=n),
        Figure(
            f"tree/{domain}/expected_to_measured_length", notes.expected / notes.written,
            n=notes.steps,
        ),
    ]  # fmt: skip
