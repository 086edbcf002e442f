"""What one token does to one effect of `acclimate.predictors.random_effects`, compiled."""

from __future__ import annotations

import math

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray
from acclimate.predictors.random_effects_kernels import CLAMP, knot_of
from acclimate.predictors.sigmoid import probability_of

LEAST_SLOPE = 1e-3
"""Of q(1 - q): a token that was all but certain still says a little."""


@compiled("i8(f8[:,::1], i8, f8, f8)")
def loosen(effects: FloatArray, i: int, prior: float, rate: float) -> int:
    """Let an effect wander by a share of its prior's variance; return 1 if it was started afresh."""
    mean, variance = effects[0, i], effects[1, i]
    if abs(mean) <= CLAMP and 0.0 <= variance < math.inf:
        effects[1, i] = min(prior, variance + rate * prior)
        return 0
    effects[0, i], effects[1, i] = 0.0, prior
    return 1


@compiled("void(f8[:,::1], i8, f8, f8, f8)")
def move(effects: FloatArray, i: int, value: float, step: float, shrink: float) -> None:
    """Move an effect by a token: step is the scaled residual, shrink the scaled slope."""
    gain = effects[1, i] * value
    effects[0, i] = min(max(effects[0, i] + gain * step, -CLAMP), CLAMP)
    effects[1, i] = max(effects[1, i] - shrink * gain * gain, 0.0)


@compiled("void(f8[:,::1], f8[:,::1], i8, i8, f8, f8, f8)")
def pair(
    pairs: FloatArray,
    sums: FloatArray,
    kind: int,
    cell: int,
    residual: float,
    slope: float,
    keep: float,
) -> None:
    """Pair a token with those before it in a cell, then add it to the cell."""
    pairs[0, kind] += residual * sums[0, cell]
    pairs[1, kind] += slope * sums[1, cell]
    sums[0, cell] = keep * sums[0, cell] + residual
    sums[1, cell] = keep * sums[1, cell] + slope


@compiled("i8(f8[:,::1], f8[:,::1], f8, f8, f8, f8, f8)")
def learn_bend(
    bend: FloatArray,
    own_bend: FloatArray,
    plain: float,
    y: float,
    influence: float,
    rate: float,
    prior: float,
) -> int:
    """Move the calibration curves of a pool and a slot; return how many knots were started afresh."""
    knot, above = knot_of(plain)
    below = 1.0 - above
    healed = loosen(bend, knot, prior, rate) + loosen(bend, knot + 1, prior, rate)
    healed += loosen(own_bend, knot, prior, rate) + loosen(own_bend, knot + 1, prior, rate)
    z = plain + below * (bend[0, knot] + own_bend[0, knot])
    z += above * (bend[0, knot + 1] + own_bend[0, knot + 1])
    variance = below * below * (bend[1, knot] + own_bend[1, knot])
    variance += above * above * (bend[1, knot + 1] + own_bend[1, knot + 1])
    q = probability_of(min(max(z, -CLAMP), CLAMP))
    slope = max(q * (1.0 - q), LEAST_SLOPE)
    step, shrink = (y - q) / (1.0 + slope * variance), slope / (1.0 + slope * variance)
    move(bend, knot, below, influence * step, influence * shrink)
    move(bend, knot + 1, above, influence * step, influence * shrink)
    move(own_bend, knot, below, step, shrink)
    move(own_bend, knot + 1, above, step, shrink)
    return healed
