"""Turns the demo's passes into speeds, the best depth, and what hindsight could have made."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from acclimate.controller.events import AddEvent, ObserveEvent
from acclimate.experiments.demo.arms import ArmRun
from acclimate.experiments.demo.stream import Stream

ADAPTIVE = "adaptive"


@dataclasses.dataclass(slots=True)
class Speeds:
    """Decode tokens per second, shape (rounds,) per arm and concurrency (None: whole stream)."""

    values: dict[tuple[str, int | None], np.ndarray]
    overall: dict[str, np.ndarray]
    static_arms: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[ArmRun], stream: Stream) -> Speeds:
        """Measure every pass."""
        values: dict[tuple[str, int | None], list[float]] = defaultdict(list)
        overall: dict[str, list[float]] = defaultdict(list)
        for run in runs:
            overall[run.arm].append(run.overall_speed)
            for concurrency in (None, *stream.concurrencies):
                values[run.arm, concurrency].append(run.speed(concurrency))
        return cls(
            {key: np.array(speeds) for key, speeds in values.items()},
            {arm: np.array(speeds) for arm, speeds in overall.items()},
            tuple(sorted({run.arm for run in runs} - {ADAPTIVE}, key=depth_of)),
        )

    def median(self, arm: str, concurrency: int | None = None) -> float:
        """Return an arm's median over rounds."""
        return float(np.median(self.values[arm, concurrency]))

    def best_static(self, concurrency: int | None = None) -> str:
        """Return the fixed depth, 0 included, that was fastest."""
        return max(self.static_arms, key=lambda arm: self.median(arm, concurrency))


@dataclasses.dataclass(frozen=True, slots=True)
class Headroom:
    """What the best depth per (domain, concurrency) would have made, as a ratio of speeds to k0.

    ``depths`` names that depth.
    """

    ratio: float
    by_concurrency: dict[int, float]
    depths: dict[tuple[str, int], int]


def depth_of(arm: str) -> int:
    """Return the depth of a fixed arm.

    >>> depth_of("k3")
    3
    """
    return int(arm.removeprefix("k"))


def headroom(runs: Sequence[ArmRun], stream: Stream) -> Headroom:
    """Estimate the speed of the best depth per true domain and concurrency, known in hindsight.

    At concurrency c a step costs a + b·(tokens verified), fitted to the fixed arms; a request of a
    domain commits y and verifies v tokens a step at a depth, as counted in that depth's arm. To
    write a token then takes (a/c + b·v)/y, and each domain takes the depth at which that is least.
    """
    counts = _count(runs, stream)
    fixed = [run for run in runs if run.arm != ADAPTIVE]
    depths = sorted({depth_of(run.arm) for run in fixed})
    totals = np.zeros(2)
    by_concurrency: dict[int, float] = {}
    chosen: dict[tuple[str, int], int] = {}
    for concurrency in stream.concurrencies:
        intercept, slope = _step_cost(fixed, counts, concurrency)
        at_load = np.zeros(2)
        for domain in sorted({job.truth for job in stream.jobs}):
            cost: dict[int, float] = {}
            for depth in depths:
                rows, committed, verified = counts[depth, concurrency, domain]
                if committed:
                    cost[depth] = (intercept / concurrency * rows + slope * verified) / committed
            if 0 not in cost:
                continue
            best = min(cost, key=lambda depth: cost[depth])
            chosen[domain, concurrency] = best
            tokens = counts[0, concurrency, domain][1]
            at_load += tokens * np.array([cost[0], cost[best]])
        by_concurrency[concurrency] = float(at_load[0] / at_load[1]) if at_load[1] else 1.0
        totals += at_load
    ratio = float(totals[0] / totals[1]) if totals[1] else 1.0
    return Headroom(ratio, by_concurrency, chosen)


_Counts = dict[tuple[int, int, str], np.ndarray]


def _count(runs: Sequence[ArmRun], stream: Stream) -> _Counts:
    """Count requests in steps, committed and verified tokens per (depth, concurrency, domain)."""
    counts: _Counts = defaultdict(lambda: np.zeros(3))
    for run in runs:
        if run.arm == ADAPTIVE:
            continue
        depth = depth_of(run.arm)
        truths: dict[int, str] = {}
        jobs = iter(result.job for result in run.run.results)
        for event in run.events:
            if isinstance(event, AddEvent):
                truths[event.request.request] = next(jobs).truth
            elif isinstance(event, ObserveEvent):
                outcome = event.outcome
                n = outcome.decode_requests
                if outcome.prefill_tokens or n not in stream.concurrencies:
                    continue
                for i, request in enumerate(outcome.requests.tolist()):
                    counts[depth, n, truths[request]] += (
                        1,
                        outcome.committed[i],
                        outcome.drafts.verified[i],
                    )
    return counts


def _step_cost(runs: Sequence[ArmRun], counts: _Counts, concurrency: int) -> tuple[float, float]:
    """Fit seconds of a step = intercept + slope · verified tokens over the fixed depths."""
    points = []
    for arm in sorted({run.arm for run in runs}):
        steps = [s for run in runs if run.arm == arm for s in run.decode_steps(concurrency)]
        here = [
            value
            for (depth, load, _), value in counts.items()
            if depth == depth_of(arm) and load == concurrency
        ]
        rows = sum(value[0] for value in here)
        if steps and rows:
            seconds = float(np.mean([step.duration_s for step in steps]))
            points.append((concurrency * sum(v[2] for v in here) / rows, seconds))
    if len(points) < 2:
        return (points[0][1] if points else 0.0), 0.0
    verified, seconds_per_step = np.array(points).T
    slope, intercept = np.polyfit(verified, seconds_per_step, 1)
    return float(intercept), max(float(slope), 0.0)
