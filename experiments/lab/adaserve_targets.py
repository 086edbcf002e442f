"""The targets of ``lab adaserve``: the published order, and ours against AdaServe by setting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from acclimate.experiments.lab.targets import Target

if TYPE_CHECKING:
    from acclimate.experiments.lab.adaserve_findings import Contest, LoadPoint

PUBLISHED = {
    "adaserve": 0.836,
    "chunked": 0.656,
    "none": 0.526,
    "spec4": 0.516,
    "spec6": 0.478,
    "spec8": 0.384,
}
"""Attainment on the staggered trace as AdaServe's authors print it, the best first."""

PEER = "adaserve"

CONTESTED = (0.2, 0.95)
"""Attainment of AdaServe between which a shift leaves something to win."""

LEAST_RATIO = 0.99
LEAST_GOODPUT_RATIO = 1.2
MOST_VIOLATIONS_RATIO = 0.5


def judge(points: Sequence[LoadPoint], contests: Sequence[Contest]) -> Iterator[Target]:
    """Yield every target and whether it was reached, against AdaServe in its paper's order."""
    contests = [contest for contest in contests if contest.peer == PEER]
    yield _order(points)
    for setting in ("stationary", "covariate"):
        yield _no_worse(setting, [c for c in contests if c.setting == setting])
    for setting in ("calibration", "swap"):
        yield from _better(setting, [c for c in contests if c.setting == setting])


def _order(points: Sequence[LoadPoint]) -> Target:
    means = {}
    for arm in PUBLISHED:
        values = [p.attainment.value for p in points if (p.setting, p.arm) == ("stationary", arm)]
        known = [value for value in values if value is not None]
        if known:
            means[arm] = float(np.mean(known))
    told = ", ".join(f"{arm} {means[arm]:.3f} ({PUBLISHED[arm]:.3f})" for arm in means)
    name = "stationary: attainment, mean over loads, falls in the published order"
    if len(means) < len(PUBLISHED):
        return Target(name, None, told or "no arm ran")
    inside = list(means.values())
    met = all(above > below for above, below in itertools.pairwise(inside))
    return Target(name, met, f"{told}; in brackets as published")


def _no_worse(setting: str, contests: Sequence[Contest]) -> Target:
    name = f"{setting}: at least {LEAST_RATIO} of AdaServe's attainment and goodput at every load"
    return _at_least(name, contests)


def _at_least(name: str, contests: Sequence[Contest]) -> Target:
    if not contests:
        return Target(name, None, "no such load")
    least = [
        (min(c.attainment_ratio.value or 0.0, c.goodput_ratio.value or 0.0), c) for c in contests
    ]
    missed = [c for ratio, c in least if ratio < LEAST_RATIO]
    lowest, where = min(least, key=lambda pair: pair[0])
    told = f"lowest {lowest:.3f}, at {where.rate_per_s:g} requests/s"
    return Target(name, not missed, told)


def _better(setting: str, contests: Sequence[Contest]) -> Iterator[Target]:
    low, high = CONTESTED
    inside = [c for c in contests if low <= c.peer_attainment <= high]
    where = f"{setting}, where AdaServe attains {low} to {high}"
    goals: tuple[tuple[str, list[float | None], Callable[[float], bool], list[str]], ...] = (
        (
            f"at most {MOST_VIOLATIONS_RATIO} of its violations",
            [c.violations_ratio.value for c in inside],
            lambda ratio: ratio <= MOST_VIOLATIONS_RATIO,
            [f"{c.rate_per_s:g}: {c.violations_ratio.value or 0.0:.2f}" for c in inside],
        ),
        (
            f"at least {LEAST_GOODPUT_RATIO} of its goodput",
            [c.goodput_ratio.value for c in inside],
            lambda ratio: ratio >= LEAST_GOODPUT_RATIO,
            [
                f"{c.rate_per_s:g}: {c.goodput_ratio.value or 0.0:.2f} "
                f"(all met would be {_most(c):.2f})"
                for c in inside
            ],
        ),
    )
    for what, goal, met, told in goals:
        verdict = all(ratio is not None and met(ratio) for ratio in goal) if inside else None
        yield Target(f"{where}: {what}", verdict, ", ".join(told) or "no such load")
    outside = [c for c in contests if not low <= c.peer_attainment <= high]
    yield _at_least(f"{setting}, elsewhere: at least {LEAST_RATIO} of both", outside)


def _most(contest: Contest) -> float:
    """Return about what goodput could be at most, over AdaServe's: every target met."""
    return 1.0 / max(contest.peer_attainment, 1e-9)
