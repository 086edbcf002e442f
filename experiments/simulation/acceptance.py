"""Where drafts come from in a simulation: how long each is, and how much of it is right."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.simulation.luck import normal, uniform
from acclimate.experiments.simulation.regimes import Regime
from acclimate.predictors.compiled import compiled

_LENGTH, _MIX, _ACCEPT, _SCATTER, _REQUEST = range(5)  # purposes of the luck


@runtime_checkable
class DraftSource(Protocol):
    """Says what the drafter proposes and the target accepts."""

    max_depth: int

    def draw(self, rows: IntArray, offsets: IntArray, now_s: float) -> tuple[IntArray, IntArray]:
        """Return length and run of drafts made now, shape (n,) each.

        Parameters
        ----------
        rows
            Rows of the requests in the workload.
        offsets
            Output tokens that each of them has.
        now_s
            The time at which the drafts are made.

        Returns
        -------
        How many tokens the drafter proposes, and how many of these the target accepts.
        """


@runtime_checkable
class ConfidentSource(DraftSource, Protocol):
    """A source whose drafter says how sure it is of each token."""

    def draw_confident(
        self, rows: IntArray, offsets: IntArray, now_s: float
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return length, run and confidence, the latter of shape (n, max_depth)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A change of law; drafts are a mixture of both laws while it comes and goes.

    Parameters
    ----------
    at_s
        When it begins.
    regime_of
        Per domain, the index of the new law; -1: this domain does not change.
    over_s
        How long the share of drafts under the new law takes to rise from 0 to 1; 0: abrupt.
    for_s
        How long it lasts, 0 for ever; then it goes as it came.
    every_s
        Period at which it comes back; 0: never.
    """

    at_s: float
    regime_of: tuple[int, ...]
    over_s: float = 0.0
    for_s: float = 0.0
    every_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("at_s", "over_s", "for_s", "every_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")
        if self.every_s and not 0 < self.for_s <= self.every_s - self.over_s:
            raise ValueError(
                f"for_s must be in (0, every_s - over_s {self.every_s - self.over_s}] where a "
                f"shift recurs, got {self.for_s}"
            )

    def change_points_s(self, until_s: float) -> list[float]:
        """Return when the law begins to change, and to change back, before ``until_s``."""
        points, begin_s = [], self.at_s
        while begin_s < until_s:
            points.append(begin_s)
            if self.for_s:
                points.append(begin_s + self.for_s)
            if not self.every_s:
                break
            begin_s += self.every_s
        return [point for point in points if point < until_s]


class DrawnDrafts:
    """Drafts drawn from laws of acceptance, with the same luck whoever asks.

    Everything is a hash of (seed, request, output offset, position): two policies that reach the
    same place at the same law meet the same fate.

    Parameters
    ----------
    regimes
        The laws; all of one depth.
    regime_of
        Per domain, the index of the law that holds at first.
    domain_of
        Shape (n,): domain of each request in the workload.
    shifts
        In order; where two concern a domain at once, the later one decides.
    seed
        Of all luck.
    until_s
        Change-points are listed up to here.

    Examples
    --------
    >>> drafts = DrawnDrafts([Regime.of_survival([0.8, 0.4])], (0,), np.zeros(100_000, np.int64))
    >>> rows = np.arange(100_000)
    >>> length, run = drafts.draw(rows, np.zeros_like(rows), 0.0)
    >>> (run >= 1).mean().round(2).item(), (run >= 2).mean().round(2).item()
    (0.8, 0.4)
    """

    def __init__(
        self,
        regimes: Sequence[Regime],
        regime_of: Sequence[int],
        domain_of: IntArray,
        *,
        shifts: Sequence[Shift] = (),
        seed: int = 0,
    ) -> None:
        depths = {int(regime.state.shape[0]) for regime in regimes}
        if len(depths) != 1:
            raise ValueError(f"all regimes must have one depth, got {sorted(depths)}")
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed}")
        for shift in shifts:
            if len(shift.regime_of) != len(regime_of):
                raise ValueError(
                    f"a shift must name {len(regime_of)} domains, got {len(shift.regime_of)}"
                )
        self.max_depth = depths.pop()
        self.regimes = tuple(regimes)
        self.shifts = tuple(shifts)
        self.seed = seed
        self.domain_of = np.ascontiguousarray(domain_of, dtype=np.int64)
        self._base = np.array(regime_of, dtype=np.int64)
        self._state = np.ascontiguousarray(np.stack([r.state for r in regimes]))
        self._reach = np.ascontiguousarray(np.stack([r.reach for r in regimes]))
        self._law = np.array([[r.spread, r.scatter, r.a, r.b] for r in regimes])
        self._when = np.array(
            [[s.at_s, s.over_s, s.for_s, s.every_s] for s in shifts], dtype=np.float64
        ).reshape(len(shifts), 4)
        self._target = np.array([s.regime_of for s in shifts], dtype=np.int64).reshape(
            len(shifts), len(regime_of)
        )
        self._unsure = np.zeros((0, self.max_depth))

    def draw(self, rows: IntArray, offsets: IntArray, now_s: float) -> tuple[IntArray, IntArray]:
        """Return length and run of each draft."""
        return self._draw(rows, offsets, now_s, self._unsure)

    def confidence_of(
        self, rows: IntArray, offsets: IntArray, now_s: float
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return length, run and confidence of each draft; see `ConfidentDrafts`."""
        confidence = np.zeros((rows.shape[0], self.max_depth))
        length, run = self._draw(rows, offsets, now_s, confidence)
        return length, run, confidence

    def deviations(self, rows: IntArray) -> FloatArray:
        """Return each request's deviation from its domain, in units of the law's spread."""
        return _deviations(self.seed, rows)

    def weights(self, now_s: float) -> FloatArray:
        """Return the share of each law in each domain now, shape (n_domains, n_regimes)."""
        shares = np.zeros((self._base.shape[0], len(self.regimes)))
        for domain in range(shares.shape[0]):
            left = 1.0
            for s in range(len(self.shifts) - 1, -1, -1):
                target = self._target[s, domain]
                if target >= 0:
                    weight = shift_weight(self._when[s], now_s)
                    shares[domain, target] += left * weight
                    left *= 1.0 - weight
            shares[domain, self._base[domain]] += left
        return shares

    def change_points_s(self, until_s: float) -> tuple[float, ...]:
        """Return when a law begins to change before ``until_s``, ascending."""
        points = {point for shift in self.shifts for point in shift.change_points_s(until_s)}
        return tuple(sorted(points))

    def _draw(
        self, rows: IntArray, offsets: IntArray, now_s: float, confidence: FloatArray
    ) -> tuple[IntArray, IntArray]:
        return _draw(
            self.seed,
            rows,
            offsets,
            now_s,
            self.domain_of,
            self._base,
            self._state,
            self._reach,
            self._law,
            self._when,
            self._target,
            confidence,
        )


class ConfidentDrafts(DrawnDrafts):
    """`DrawnDrafts` whose drafter says how sure it is: confidence reaches the policies."""

    def draw_confident(
        self, rows: IntArray, offsets: IntArray, now_s: float
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return length, run and confidence of each draft."""
        return self.confidence_of(rows, offsets, now_s)


@compiled("f8(f8[::1], f8)")
def shift_weight(when: FloatArray, now_s: float) -> float:
    """Return the share of drafts under a shift's law; ``when`` is at, over, for and every.

    >>> when = np.array([10.0, 4.0, 0.0, 0.0])
    >>> shift_weight(when, 9.0), shift_weight(when, 11.0), shift_weight(when, 99.0)
    (0.0, 0.25, 1.0)
    """
    since = now_s - when[0]
    if since < 0:
        return 0.0
    over, lasting, every = when[1], when[2], when[3]
    if every > 0:
        since = since % every
    if lasting > 0 and since >= lasting:
        # What has not come to full strength goes from where it stands.
        top = min(lasting / over, 1.0) if over > 0 else 1.0
        return max(top - (since - lasting) / over, 0.0) if over > 0 else 0.0
    return min(since / over, 1.0) if over > 0 else 1.0


@compiled("f8[::1](i8, i8[::1])")
def _deviations(seed: int, rows: IntArray) -> FloatArray:
    out = np.empty(rows.shape[0])
    for r in range(rows.shape[0]):
        out[r] = normal(seed, rows[r], 0, 0, _REQUEST)
    return out


@compiled(
    "UniTuple(i8[::1], 2)(i8, i8[::1], i8[::1], f8, i8[::1], i8[::1], f8[:,::1], f8[:,::1],"
    "f8[:,::1], f8[:,::1], i8[:,::1], f8[:,::1])"
)
def _draw(
    seed: int,
    rows: IntArray,
    offsets: IntArray,
    now_s: float,
    domain_of: IntArray,
    base: IntArray,
    states: FloatArray,
    reach: FloatArray,
    law: FloatArray,
    when: FloatArray,
    target: IntArray,
    confidence: FloatArray,
) -> tuple[IntArray, IntArray]:
    n, depth = rows.shape[0], states.shape[1]
    n_shifts = when.shape[0]
    weights = np.empty(n_shifts)
    for s in range(n_shifts):
        weights[s] = shift_weight(when[s], now_s)
    lengths = np.empty(n, dtype=np.int64)
    runs = np.empty(n, dtype=np.int64)
    tells = confidence.shape[0] > 0
    for r in range(n):
        row, offset = rows[r], offsets[r]
        domain = domain_of[row]
        regime = base[domain]
        for s in range(n_shifts - 1, -1, -1):
            if target[s, domain] >= 0 and (
                weights[s] >= 1.0
                or (weights[s] > 0.0 and uniform(seed, row, offset, s, _MIX) < weights[s])
            ):
                regime = target[s, domain]
                break
        length = depth
        if reach[regime, depth - 1] < 1.0:
            share = uniform(seed, row, offset, 0, _LENGTH)
            length = 0
            while length < depth and share < reach[regime, length]:
                length += 1
        spread, scatter, a, b = law[regime]
        shared = 0.0
        if spread > 0.0:
            shared = spread * normal(seed, row, 0, 0, _REQUEST)
        run, right = 0, True
        for i in range(length):
            state = states[regime, i] + shared
            if scatter > 0.0:
                # A hard token is hard for every draft that reaches it.
                state += scatter * normal(seed, row, offset + i, 0, _SCATTER)
            if tells:
                confidence[r, i] = 1.0 / (1.0 + math.exp(-state))
            if right:
                accepted = 1.0 / (1.0 + math.exp(-(a + b * state)))
                if uniform(seed, row, offset, i, _ACCEPT) < accepted:
                    run += 1
                else:
                    right = False
                    if not tells:
                        break
        lengths[r] = length
        runs[r] = run
    return lengths, runs
