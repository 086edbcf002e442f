"""Runs the rounds: the arms alternate on blocks of the same prompts, in rotated order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import AGAIN, BASE, Arm
from acclimate.experiments.compare.cells import Cell, arrivals_of, jobs_of
from acclimate.experiments.compare.engines import EngineHandle
from acclimate.experiments.compare.plan import Plan
from acclimate.experiments.compare.promised import PlainTimes, classes_of, with_promises
from acclimate.experiments.compare.rows import CellRow, retargeted
from acclimate.experiments.compare.worker import Order
from acclimate.integrations.vllm.closed_loop import Job

T = TypeVar("T")

_KEPT = 0.9  # of k0's requests keep the time to first token that counts as k0's


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
    plain
        What k0 takes at first; targets of promised cells are multiples of it.
    """

    jobs: tuple[Job, ...]
    capacity_per_s: float
    arrivals: str
    recorded_s: FloatArray
    plain: PlainTimes | None = None


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
            arm = by_name[order.arm]
            row = engines[arm.engine].run(order)
            for served in (row, *_alike(row, arm, plan)):
                on_row(served)
            if order.arm in (BASE, AGAIN):
                plain.append(row)
        if traffic.plain is not None:
            traffic = dataclasses.replace(traffic, plain=plain_times(plain) or traffic.plain)
        done += 1
    return done


def plain_times(rows: Sequence[CellRow]) -> PlainTimes | None:
    """Return what requests took; None where none gave two tokens."""
    counted = [request for row in rows for request in row.counted]
    tpot_s = [request.tpot_s for request in counted if request.tpot_s]
    ttft_s = [request.ttft_s for request in counted if request.ttft_s is not None]
    if not tpot_s:
        return None
    return PlainTimes(float(np.median(tpot_s)), float(np.quantile(ttft_s, _KEPT)))


def _alike(row: CellRow, arm: Arm, plan: Plan) -> Iterator[CellRow]:
    """Give the rows of an arm that promises do not move in cells that differ by targets alone."""
    if arm.told:
        return
    for planned in plan.cells:
        if planned.cell.name == row.cell and planned.cell.scale:
            for other in planned.others:
                assert other.scale is not None
                yield retargeted(row, other.name, other.scale / planned.cell.scale)


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
        rng = np.random.default_rng((seed, number, index))
        sent = jobs_of(
            planned.cell, traffic.jobs, round=planned.turn(number), slices=planned.slices, rng=rng
        )
        arrival_s = _arrivals(planned.cell, traffic, len(sent), rng)
        bounds = np.linspace(0, len(sent), planned.blocks + 1).round().astype(int)
        for block in range(planned.blocks):
            shift = number + index + block
            part = sent[bounds[block] : bounds[block + 1]]
            passes = [(arm, planned.cell) for arm in arms]
            passes += [(arm, other) for other in planned.others for arm in arms if arm.told]
            for arm, cell in rotated(passes, shift, backwards=shift % 2 == 1):
                yield Order(
                    arm=arm.name,
                    cell=cell.name,
                    round=number,
                    block=block,
                    jobs=_promised(cell, traffic, part),
                    policy=arm.policy,
                    concurrency=cell.concurrency,
                    arrival_s=arrival_s,
                )


def rotated(arms: Sequence[T], by: int, *, backwards: bool) -> list[T]:
    """Return all arms from the ``by``-th on, round the end, in either direction.

    >>> rotated("abc", 1, backwards=False), rotated("abc", 1, backwards=True)
    (['b', 'c', 'a'], ['b', 'a', 'c'])
    """
    step = -1 if backwards else 1
    return [arms[(by + step * i) % len(arms)] for i in range(len(arms))]


def _promised(cell: Cell, traffic: Traffic, jobs: Sequence[Job]) -> tuple[Job, ...]:
    if cell.scale is None or traffic.plain is None:
        return tuple(jobs)
    return with_promises(jobs, classes_of(traffic.jobs), cell.scale, traffic.plain)


def _arrivals(
    cell: Cell, traffic: Traffic, count: int, rng: np.random.Generator
) -> tuple[float, ...] | None:
    if cell.rate is None:
        return None
    rate_per_s = cell.rate * traffic.capacity_per_s
    times_s = arrivals_of(traffic.arrivals, count, rate_per_s, rng, traffic.recorded_s)
    return tuple(times_s.tolist())
