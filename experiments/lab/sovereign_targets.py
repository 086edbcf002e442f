"""The targets of ``lab sovereign``: speedup by headroom, harm, and what avoiding harm costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from acclimate.experiments.lab.sovereign_cell import ALWAYS_ON, OURS
from acclimate.experiments.lab.targets import Target

if TYPE_CHECKING:
    from acclimate.experiments.lab.sovereign_findings import (
        ClusterPoint,
        NeighbourPoint,
        SweepPoint,
    )

MOST_HARMED = 0.005
LEAST_EFFICIENCY = 0.95
LEAST_IDLE = 1.5
LEAST_RECOVERED = 0.2
LEAST_OF_BASE = 0.99
_TOLERANCE = 0.02  # a rise of the speedup that is no rise
_SUM = "ours_sum"
_WITH_RULE = ("ours_externality", OURS)


def judge(
    sweep: Sequence[SweepPoint],
    neighbours: Sequence[NeighbourPoint],
    cluster: Sequence[ClusterPoint],
) -> Iterator[Target]:
    """Yield every target and whether it was reached."""
    for arm in _WITH_RULE:
        yield from _by_headroom(arm, [point for point in sweep if point.arm == arm])
    yield _always_on([point for point in sweep if point.arm == ALWAYS_ON])
    for arm in _WITH_RULE:
        yield _recovered(arm, sweep)
    for arm in _WITH_RULE:
        yield from _harmless(arm, [point for point in neighbours if point.arm == arm])
    yield _harm_shown([point for point in neighbours if point.arm == _SUM])
    yield _apart(cluster)


def _by_headroom(arm: str, points: Sequence[SweepPoint]) -> Iterator[Target]:
    idle = [point for point in points if point.headroom == 1.0]
    name = f"{arm}: more than {LEAST_IDLE} of k0 when idle, on every curve at every acceptance"
    yield _all(name, idle, lambda p: _value(p) > LEAST_IDLE)
    rising = []
    for point in points:
        more = [p for p in points if _same(p, point) and p.headroom > point.headroom]
        if more:
            next_up = min(more, key=lambda p: p.headroom)
            if _value(point) > _value(next_up) + _TOLERANCE:
                rising.append(point)
    name = f"{arm}: the speedup falls as headroom falls"
    told = ", ".join(map(_where, rising)) or "everywhere"
    yield Target(name, None if not points else not rising, f"rises at {told}" if rising else told)
    name = f"{arm}: never below {LEAST_OF_BASE} of k0"
    yield _all(name, points, lambda p: _value(p) >= LEAST_OF_BASE)


def _always_on(points: Sequence[SweepPoint]) -> Target:
    saturated = [point for point in points if point.headroom == 0.0]
    return _all("always_on: slower than k0 at saturation", saturated, lambda p: _value(p) < 1.0)


def _recovered(arm: str, sweep: Sequence[SweepPoint]) -> Target:
    saturated = [point for point in sweep if point.headroom == 0.0]
    gains = []
    for point in saturated:
        if point.arm != arm:
            continue
        against = [p for p in saturated if p.arm == ALWAYS_ON and _same(p, point)]
        gains += [(_value(point) / _value(p) - 1.0, point) for p in against if _value(p)]
    name = f"{arm}: at least {LEAST_RECOVERED:.0%} recovered against always_on at saturation"
    if not gains:
        return Target(name, None, "nothing to compare")
    missed = [f"{_place(p)} {gain:.0%}" for gain, p in gains if gain < LEAST_RECOVERED]
    least, where = min(gains, key=lambda pair: pair[0])
    told = f"not at {', '.join(missed)}" if missed else f"least {least:.0%}, at {_place(where)}"
    return Target(name, not missed, told)


def _harmless(arm: str, points: Sequence[NeighbourPoint]) -> Iterator[Target]:
    shares = [(p.harm.share, p) for p in points if p.harm.share is not None]
    told = ", ".join(
        f"{p.curve} {share:.2%} (with a target {p.harm.promised_share or 0.0:.2%})"
        for share, p in shares
    )
    yield Target(
        f"{arm}: at most {MOST_HARMED:.1%} of requests harmed",
        all(share <= MOST_HARMED for share, _ in shares) if shares else None,
        told or "not run",
    )
    speeds = [(p.efficiency.value, p) for p in points if p.efficiency.value is not None]
    yield Target(
        f"{arm}: at least {LEAST_EFFICIENCY} of the best plan that harms as few",
        all(speed >= LEAST_EFFICIENCY for speed, _ in speeds) if speeds else None,
        ", ".join(f"{p.curve} {speed:.3f}" for speed, p in speeds) or "not run",
    )


def _harm_shown(points: Sequence[NeighbourPoint]) -> Target:
    shares = [(p.harm.promised_share, p) for p in points if p.harm.promised_share is not None]
    return Target(
        f"{_SUM}: the harm that the rule prevents shows on some curve",
        any(share > MOST_HARMED for share, _ in shares) if shares else None,
        ", ".join(f"{p.curve} {share:.1%} of those with a target" for share, p in shares)
        or "not run",
    )


def _apart(cluster: Sequence[ClusterPoint]) -> Target:
    mixed = sum(point.mixed + point.abroad for point in cluster)
    return Target(
        "cluster: no request leaves its region, no batch holds two",
        mixed == 0 if cluster else None,
        f"{mixed} engines or requests" if cluster else "not run",
    )


def _all(name: str, points: Sequence[SweepPoint], holds: Callable[[SweepPoint], bool]) -> Target:
    if not points:
        return Target(name, None, "not run")
    missed = [point for point in points if not holds(point)]
    values = sorted(_value(point) for point in points)
    told = f"{values[0]:.3f} to {values[-1]:.3f}"
    if missed:
        told += f"; not at {', '.join(map(_where, missed))}"
    return Target(name, not missed, told)


def _same(one: SweepPoint, other: SweepPoint) -> bool:
    return (one.curve, one.acceptance) == (other.curve, other.acceptance)


def _value(point: SweepPoint) -> float:
    return point.speedup.value or 0.0


def _place(point: SweepPoint) -> str:
    return f"{point.curve} q{point.acceptance:g}"


def _where(point: SweepPoint) -> str:
    return f"{_place(point)} headroom {point.headroom:g} ({_value(point):.3f})"
