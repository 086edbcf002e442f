"""Notices that steps take longer or less than they did: the shift statistic on log ratios."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.drift import ALARM_EVERY_TOKENS, Shift
from acclimate.predictors.numerics import FloatArray, load_arrays, save_arrays
from acclimate.predictors.shift_kernels import add_evidence, weigh_alternatives

_SPACING = 0.05
_WIDEST = 2.5
_TYPICAL = 0.4
_SETTLING_STEPS = 50
_REFERENCE_STEPS = 2_000.0
_FREEDOM = 4.0  # of Student's t: tails that are wide enough for stalls
_LEAST_SCALE = 0.02
_MOST_RATIO = math.exp(2.0)  # what one step can be evidence for: a lone stall is no shift
_FAR = 2.5  # scales beyond which a step teaches no more
_SCALE_OF_MEAN = 1.25  # standard deviation over mean absolute deviation, for a normal law
_MOST_ALIKE = 0.99  # autocorrelation of successive steps
_STEPS, _CENTRE, _SCALE, _BEFORE, _SQUARE, _PRODUCT, _COUNT = range(7)


class LatencyDrift:
    """Watches ratios of seen to expected durations against their frozen reference.

    The log ratio follows Student's t around the reference's centre, or around an alternative's; the
    likelihood ratio of one step is capped, since stalls come alone and a shift stays. Centre and
    scale are the median and the spread of the first steps, refined until 2,000; afterwards they are
    frozen. Steps on a shared machine resemble the one before: with an autocorrelation rho they say
    as much as (1 - rho) / (1 + rho) independent ones, and their log likelihood counts as much; rho is
    learned with the reference. The statistic is that of `SlotDrift`, capping only makes false alarms rarer.

    Parameters
    ----------
    alarm_every_steps
        Mean steps between false alarms, if steps are independent.
    smallest_ratio
        Factors nearer to 1 are not looked for.

    Examples
    --------
    >>> drift = LatencyDrift()
    >>> rng = np.random.default_rng(3)
    >>> ratios = np.where(np.arange(600) < 400, 1.0, 0.7) * rng.lognormal(sigma=0.05, size=600)
    >>> [t for t, ratio in enumerate(ratios) if drift.update(ratio)]
    [405]
    """

    def __init__(
        self,
        *,
        alarm_every_steps: float = ALARM_EVERY_TOKENS,
        smallest_ratio: float = 1.1,
    ) -> None:
        if not 1.0 < smallest_ratio < math.exp(_WIDEST):
            raise ValueError(
                f"smallest_ratio must be above 1 and below {math.exp(_WIDEST):.1f}, "
                f"got {smallest_ratio}"
            )
        steps = round(_WIDEST / _SPACING)
        self._offsets = _SPACING * np.arange(-steps, steps + 1, dtype=np.float64)
        self.expect_alarms(alarm_every_steps)
        n = self._offsets.shape[0]
        self._ratios = np.zeros(n)
        self._weights = np.zeros(n)
        weigh_alternatives(self._weights, self._offsets, 0.0, math.log(smallest_ratio), _TYPICAL)
        self.evidence = np.zeros(n)
        self.ages = np.zeros(n)
        self.reference = np.zeros(_COUNT)
        self.first = np.zeros(_SETTLING_STEPS)

    def expect_alarms(self, every_steps: float) -> None:
        """Set the threshold: mean steps between false alarms, positive and finite."""
        if not 0.0 < every_steps < math.inf:
            raise ValueError(f"alarm_every_steps must be positive and finite, got {every_steps}")
        self._threshold = every_steps

    @property
    def statistic(self) -> float:
        """The evidence, on the scale of `Shift.statistic`; 0 while there is none."""
        return math.log(max(float(self.evidence.sum()), 1.0))

    def update(self, ratio: float) -> Shift | None:
        """Take a step's duration over the expected one; return the shift that it completes.

        Raises
        ------
        ValueError
            ``ratio`` is not positive and finite.
        """
        if not 0.0 < ratio < math.inf:
            raise ValueError(f"ratio must be positive and finite, got {ratio}")
        log_ratio = math.log(ratio)
        steps = int(self.reference[_STEPS])
        if steps < _SETTLING_STEPS:
            self.first[steps] = log_ratio
            self.reference[_STEPS] += 1.0
            if steps + 1 == _SETTLING_STEPS:
                self._settle()
            return None
        total = _weigh(
            self.reference,
            self.evidence,
            self.ages,
            self._weights,
            self._ratios,
            self._offsets,
            log_ratio,
        )
        return self._alarm(total) if total > self._threshold else None

    def restart(self) -> None:
        """Forget what was seen."""
        for array in (self.evidence, self.ages, self.reference, self.first):
            array[:] = 0.0

    def state(self) -> dict[str, Any]:
        """Return everything as arrays; what follows after `load` is bitwise the same."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another number of alternatives.
        """
        load_arrays(self, _STATE, state, finite=True)

    def _settle(self) -> None:
        """Take the first steps' median and spread as the reference."""
        centre = float(np.median(self.first))
        spread = 1.48 * float(np.median(np.abs(self.first - centre)))
        self.reference[_CENTRE] = centre
        self.reference[_SCALE] = max(spread, _LEAST_SCALE)
        away = np.clip((self.first - centre) / self.reference[_SCALE], -_FAR, _FAR)
        self.reference[_BEFORE] = away[-1]
        self.reference[_SQUARE] = float(away @ away)
        self.reference[_PRODUCT] = float(away[1:] @ away[:-1])

    def _alarm(self, total: float) -> Shift:
        offset = float((self.evidence * self._offsets).sum()) / total
        since = float(self.ages.sum()) / total
        centre = float(self.reference[_CENTRE])
        self.evidence[:] = 0.0
        self.ages[:] = 0.0
        self.reference[_STEPS] = 0.0  # the next steps are the reference: one alarm per change
        return Shift(
            before=math.exp(centre),
            after=math.exp(centre + offset),
            tokens_since=since,
            statistic=math.log(total),
        )


_STATE = ("evidence", "ages", "reference", "first")


@compiled("f8(f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], f8)")
def _weigh(
    reference: FloatArray,
    evidence: FloatArray,
    ages: FloatArray,
    weights: FloatArray,
    ratios: FloatArray,
    offsets: FloatArray,
    log_ratio: float,
) -> float:
    """Weigh a step, then learn the reference from it; return the evidence."""
    scale = reference[_SCALE]
    away = (log_ratio - reference[_CENTRE]) / scale
    usual = 1.0 + away * away / _FREEDOM
    # What may be chance is no resemblance.
    alike = reference[_PRODUCT] / max(reference[_SQUARE], 1.0) - 1.0 / np.sqrt(reference[_STEPS])
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    # A share (1 - rho) / (1 + rho) of the log likelihood, to the nearest power of two: by roots.
    roots = round(np.log2((1.0 + alike) / (1.0 - alike)))
    for g in range(offsets.shape[0]):
        shifted = away - offsets[g] / scale
        odds = usual / (1.0 + shifted * shifted / _FREEDOM)
        ratio = min(odds * odds * np.sqrt(odds), _MOST_RATIO)  # odds to half the freedom and one
        for _ in range(roots):
            ratio = np.sqrt(ratio)
        ratios[g] = ratio
    total = add_evidence(evidence, ages, weights, ratios, 1.0)
    if reference[_STEPS] < _REFERENCE_STEPS:
        reference[_STEPS] += 1.0
        near = min(max(away, -_FAR), _FAR)
        reference[_SQUARE] += near * near
        reference[_PRODUCT] += near * reference[_BEFORE]
        reference[_BEFORE] = near
        near *= scale
        reference[_CENTRE] += near / reference[_STEPS]
        reference[_SCALE] += (_SCALE_OF_MEAN * abs(near) - scale) / reference[_STEPS]
        reference[_SCALE] = max(reference[_SCALE], _LEAST_SCALE)
    return total
