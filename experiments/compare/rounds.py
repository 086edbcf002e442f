"""Runs the rounds: the arms alternate on blocks of the same prompts, in rotated order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import AGAIN, BASE, Arm
from acclimate.experiments.compare.cells import arrivals_of, jobs_of
from acclimate.experiments.compare.engines import EngineHandle
from acclimate.experiments.compare.plan import Plan, PlannedCell
from acclimate.experiments.compare.promised import classes_of, with_promises
from acclimate.experiments.compare.rows import CellRow
from acclimate.experiments.compare.worker import Order
from acclimate.integrations.vllm.closed_loop import Job

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """What is sent.

    Parameters
    ----------
    jobs
        All prompts.
    capacity_per_s
        Requests per second that k0 serves at most; open-loop rates are shares of it.
    arrivals
        ``poisson``, ``bursts`` or ``trace``.
    recorded_s
        Arrival times of the trace.
    k0_tpot_s
        What k0 takes per token at first; targets of promised cells are multiples of it.
    """

    jobs: tuple[Job, ...]
    capacity_per_s: float
    arrivals: str
    recorded_s: FloatArray
    k0_tpot_s: float = 0.0


def run_rounds(
    engines: Mapping[str, EngineHandle],
    arms: Sequence[Arm],
    plan: Plan,
    traffic: Traffic,
    *,
    seed: int,
    go_on: Callable[[int], bool],
    on_row: Callable[[CellRow], None],
    on_order: Callable[[Order], None] = lambda order: None,
) -> int:
    """Run whole rounds and return how many.

    Where something is promised, targets are multiples of what k0 took in the round before, so that
    a machine that slows down for everybody does not make them harder.

    Parameters
    ----------
    engines
        By the name in `Arm.engine`.
    seed
        Draws the order of prompts and the arrivals: anew for every round and cell, the same for
        every arm.
    go_on
        Asked before every round, with its number, whether to run it.
    on_row, on_order
        Told of every result, and before that of what is about to run.
    """
    by_name = {arm.name: arm for arm in arms}
    done = 0
    while done < plan.rounds and go_on(done):
        plain: list[CellRow] = []
        for order in orders_of(arms, plan, traffic, number=done, seed=seed):
            on_order(order)
            row = engines[by_name[order.arm].engine].run(order)
            on_row(row)
            if order.arm in (BASE, AGAIN):
                plain.append(row)
        if traffic.k0_tpot_s:
            measured_s = median_tpot_s(plain)
            traffic = dataclasses.replace(traffic, k0_tpot_s=measured_s or traffic.k0_tpot_s)
        done += 1
    return done


def median_tpot_s(rows: Sequence[CellRow]) -> float:
    """Return the median time per token after the first of all requests; 0 where there is none."""
    times_s = [request.tpot_s for row in rows for request in row.counted if request.tpot_s]
    return float(np.median(times_s)) if times_s else 0.0


def orders_of(
    arms: Sequence[Arm], plan: Plan, traffic: Traffic, *, number: int, seed: int
) -> Iterator[Order]:
    """Give one round's orders.

    A closed-loop cell is cut into blocks of a few prompts, and the arms alternate from block to
    block, so that a drift of the machine's speed hits all of them. The first arm moves on by one
    from block to block, cell to cell and round to round, and every second turn goes backwards, so
    that no arm always follows the same one, nor always comes first.
    """
    for index, planned in enumerate(plan.cells):
        if not planned.runs_in(number):
            continue
        jobs, arrival_s = _load(planned, traffic, np.random.default_rng((seed, number, index)),
                                planned.turn(number))  # fmt: skip
        bounds = np.linspace(0, len(jobs), planned.blocks + 1).round().astype(int)
        for block in range(planned.blocks):
            shift = number + index + block
            for arm in rotated(arms, shift, backwards=shift % 2 == 1):
                yield Order(
                    arm=arm.name,
                    cell=planned.cell.name,
                    round=number,
                    block=block,
                    jobs=jobs[bounds[block] : bounds[block + 1]],
                    policy=arm.policy,
                    concurrency=planned.cell.concurrency,
                    arrival_s=arrival_s,
                )


def rotated(arms: Sequence[T], by: int, *, backwards: bool) -> list[T]:
    """Return all arms from the ``by``-th on, round the end, in either direction.

    >>> rotated("abc", 1, backwards=False), rotated("abc", 1, backwards=True)
    (['b', 'c', 'a'], ['b', 'a', 'c'])
    """
    step = -1 if backwards else 1
    return [arms[(by + step * i) % len(arms)] for i in range(len(arms))]


def _load(
    planned: PlannedCell, traffic: Traffic, rng: np.random.Generator, turn: int
) -> tuple[tuple[Job, ...], tuple[float, ...] | None]:
    cell = planned.cell
    jobs = jobs_of(cell, traffic.jobs, round=turn, slices=planned.slices, rng=rng)
    if cell.scale is not None:
        granted = classes_of(traffic.jobs)
        return with_promises(jobs, granted, cell.scale, traffic.k0_tpot_s), None
    if cell.rate is None:
        return tuple(jobs), None
    rate_per_s = cell.rate * traffic.capacity_per_s
    times_s = arrivals_of(traffic.arrivals, len(jobs), rate_per_s, rng, traffic.recorded_s)
    return tuple(jobs), tuple(times_s.tolist())
