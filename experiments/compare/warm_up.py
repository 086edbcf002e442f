"""Wakes every engine and policy before anything counts, and takes the pace of k0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from acclimate.experiments.compare.arms import BASE, CONTROLLED, NONE, Arm
from acclimate.experiments.compare.cells import by_turns
from acclimate.experiments.compare.engines import EngineHandle
from acclimate.experiments.compare.plan import Pace
from acclimate.experiments.compare.promised import PlainTimes
from acclimate.experiments.compare.rounds import plain_times
from acclimate.experiments.compare.rows import CellRow
from acclimate.experiments.compare.worker import Order
from acclimate.integrations.vllm.closed_loop import Job

_FEW, _REFILLS, _PACED = 4, 3, 6
_WARM = "warm-up"


def warm_up(
    engines: Mapping[str, EngineHandle],
    arms: Sequence[Arm],
    jobs: Sequence[Job],
    concurrencies: Sequence[int],
    *,
    on_order: Callable[[Order], None] = lambda order: None,
) -> dict[int, Pace]:
    """Run every engine and policy for a few prompts, then k0 at every concurrency.

    Policies are built for this alone, so that those that are measured start cold; what they
    compile when they are first called is compiled here.

    Parameters
    ----------
    engines
        By the name in `Arm.engine`.
    jobs
        All prompts; some of them, from all over the list, are sent.
    concurrencies
        At which the pace is taken.

    Returns
    -------
    dict
        The pace by concurrency.
    """

    def run(arm: Arm, concurrency: int, count: int) -> CellRow:
        order = Order(
            arm=arm.name,
            cell=_WARM,
            round=-1,
            jobs=tuple(spread(jobs, count)),
            policy=arm.policy,
            fresh=True,
            concurrency=concurrency,
        )
        on_order(order)
        return engines[arm.engine].run(order)

    for arm in arms:
        if arm.engine != CONTROLLED or not arm.static:
            run(arm, min(_FEW, max(concurrencies)), _FEW)
    base = next(arm for arm in arms if arm.name == BASE)
    return {
        concurrency: pace_of(run(base, concurrency, max(_FEW, _REFILLS * concurrency)))
        for concurrency in concurrencies
    }


def teach(
    engine: EngineHandle,
    arms: Sequence[Arm],
    jobs: Sequence[Job],
    concurrency: int,
    *,
    on_order: Callable[[Order], None] = lambda order: None,
) -> None:
    """Let k0 answer every prompt once, for a drafter that learns from answers."""
    _run_base(engine, arms, jobs, concurrency, on_order)


def k0_times(
    engine: EngineHandle,
    arms: Sequence[Arm],
    jobs: Sequence[Job],
    concurrency: int,
    *,
    on_order: Callable[[Order], None] = lambda order: None,
) -> PlainTimes:
    """Return what k0's requests take at a concurrency, prompts of others included.

    Raises
    ------
    RuntimeError
        No request gave two tokens.
    """
    row = _run_base(engine, arms, spread(jobs, _PACED * concurrency), concurrency, on_order)
    measured = plain_times([row])
    if measured is None:
        raise RuntimeError("k0 must give two tokens per request, got none in the warm-up")
    return measured


def _run_base(
    engine: EngineHandle,
    arms: Sequence[Arm],
    jobs: Sequence[Job],
    concurrency: int,
    on_order: Callable[[Order], None],
) -> CellRow:
    base = next(arm for arm in arms if arm.name == BASE)
    order = Order(
        arm=BASE,
        cell=_WARM,
        round=-1,
        jobs=tuple(jobs),
        policy=base.policy,
        fresh=True,
        concurrency=concurrency,
    )
    on_order(order)
    return engine.run(order)


def spread(jobs: Sequence[Job], count: int) -> list[Job]:
    """Return at most ``count`` jobs from all over the domains.

    >>> spread([Job(str(i), (1,), 2) for i in range(9)], 3)[1].key
    '4'
    """
    ordered = by_turns(jobs)
    places = np.linspace(0, len(ordered) - 1, min(count, len(ordered))).round().astype(int)
    return [ordered[int(place)] for place in places]


def pace_of(row: CellRow) -> Pace:
    """Return what a row says of the engine's pace.

    Raises
    ------
    RuntimeError
        The engine gave no token.
    """
    done = [request for request in row.counted if request.chunk_s]
    if not done or row.duration_s <= 0:
        raise RuntimeError("the engine must give tokens, got none in the warm-up")
    return Pace(
        tokens_per_s=row.tokens / row.duration_s,
        tokens=float(np.mean([request.tokens for request in done])),
        latency_s=float(np.mean([request.chunk_s[-1] - request.due_s for request in done])),
    )


def engine_names(arms: Sequence[Arm]) -> list[str]:
    """Return the engines that are needed, the controlled one first.

    >>> from acclimate.experiments.compare.arms import parse_arms
    >>> engine_names(parse_arms("none,k0", max_depth=4))
    ['controlled', 'none', 'none-again']
    """
    others = [arm.engine for arm in arms if arm.engine != CONTROLLED]
    return [CONTROLLED, *sorted(others, key=lambda name: (name != NONE, name))]
