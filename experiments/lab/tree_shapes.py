"""What trees are worth on recorded answers: calibration, and tokens at equal verified nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.experiments.bench.acceptance_scores import calibration_error
from acclimate.experiments.drafters.answers import Answer
from acclimate.experiments.figures import Figure
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
_TREES = Capabilities(
    max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=_WIDTH, free_drafts=True,
    hindsight=True,
)  # fmt: skip
_CHAINS = Capabilities(max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=2)


def shape_figures(answers: Sequence[Answer], drafter: NextTokens, *, seed: int) -> list[Figure]:
    """Return calibration and tokens per step by domain, of answers that a drafter never saw.

    Calibration is measured while it is learned, from the first node on, over the nodes that were
    verified: 16 of each request, chosen by what was believed. ``commit_ratio_to_best_chain`` are
    tokens per step of 8 chosen nodes over those of a chain of 8, the best chain of as many verified
    tokens, at one request.

    Parameters
    ----------
    answers
        Greedy ones, of several domains.
    drafter
        Says what may come next.
    seed
        Of the order.
    """
    mixed = [answers[i] for i in np.random.default_rng(seed).permutation(len(answers))]
    figures = []
    for domain, notes in serve(mixed, drafter, nodes=_CALIBRATED, batch=4).items():
        figures += _calibration(domain, notes)
    for domain in sorted({answer.domain for answer in answers}):
        own = [answer for answer in mixed if answer.domain == domain]
        (notes,) = serve(own, drafter, nodes=_CHOSEN, batch=1).values()
        chain = StaticTree(_CHAINS, depth=_DEPTH, width=1, nodes=_CHOSEN)
        engine = _engine(chain, _CHAINS, own, drafter, batch=1, nodes=_CHOSEN)
        engine.run(_requests(own))
        tally = engine.tally
        rate = 1.0 + tally.accepted / tally.steps
        figures.append(
            Figure(
                f"tree/{domain}/commit_ratio_to_best_chain",
                notes.written / notes.steps / rate,
                n=notes.steps,
            )
        )
    return figures


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


def _calibration(domain: str, notes: Notes) -> list[Figure]:
    raw, calibrated = (
        calibration_error(predicted, notes.taken) for predicted in (notes.said, notes.believed)
    )
    n = notes.taken.shape[0]
    return [
        Figure(f"tree/{domain}/ece_raw", raw, n=n),
        Figure(f"tree/{domain}/ece_calibrated", calibrated, n=n),
        Figure(
            f"tree/{domain}/expected_to_measured_length", notes.expected / notes.written,
            n=notes.steps,
        ),
    ]  # fmt: skip
