"""The arithmetic of `acclimate.predictors.random_effects`, compiled.

Every unknown is a normal variable with a mean and a variance, kept apart (no covariances): a draft
token's log-odds are the sum of the few that concern it, and one token moves each of them by its own
variance. Nothing here keeps state; all arrays are the model's.
"""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.acceptance_codes import CONTEXTS, GRAMMARS, TEMPERATURES
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray
from acclimate.predictors.sigmoid import probability_of

NEAR = 3
"""Positions that other features are told apart by: first, second, later."""
AGES = 11
COVARIATES = CONTEXTS + TEMPERATURES + GRAMMARS
N_COVARIATES = 3
KNOTS = 8
LOWEST_KNOT, HIGHEST_KNOT = -2.0, 5.0
MAX_LOG_ODDS = 8.0
CLAMP = 12.0
"""Largest log-odds that one effect may have."""
RUN, WHOLE, AGE = 0, 1, 2
"""Columns of a request's past: tokens accepted of its last draft (-1: none yet), whether that was
all of it, and graded tokens so far."""

_KNOT_WIDTH = (HIGHEST_KNOT - LOWEST_KNOT) / (KNOTS - 1)
_UNKNOWN_LOG_ODDS = math.log(0.6 / 0.4)


@compiled("i8(i8, i8, i8)")
def renewal_code(run: int, whole: int, longest: int) -> int:
    """Number what became of the last draft: 0 without one, else its run and whether it was whole."""
    return 0 if run < 0 else 1 + 2 * min(run, longest) + whole


@compiled("i8(i8)")
def age_code(graded: int) -> int:
    """Number a request's age in graded tokens, in octaves."""
    code = 0
    while graded > 0 and code < AGES - 1:
        graded = (graded - 1) // 2
        code += 1
    return code


@compiled("f8(f8, f8)")
def moderated(log_odds: float, variance: float) -> float:
    """Return the log-odds of the mean probability of normal log-odds, clipped to ±8 (MacKay)."""
    seen = log_odds / math.sqrt(1.0 + math.pi * variance / 8.0)
    return min(max(seen, -MAX_LOG_ODDS), MAX_LOG_ODDS)


@compiled("Tuple((i8, f8))(f8)")
def knot_of(log_odds: float) -> tuple[int, float]:
    """Return the knot below, and the share of the one above."""
    place = min(max((log_odds - LOWEST_KNOT) / _KNOT_WIDTH, 0.0), KNOTS - 1 - 1e-9)
    return int(place), place - int(place)


@compiled("i8(i8[::1], i8[:,::1], i8, i8)")
def active_covariates(index: IntArray, codes: IntArray, r: int, base: int) -> int:
    """Write the weights of a request's covariates; a code of 0 is unknown and has none."""
    n = 0
    for levels, c in ((CONTEXTS, 0), (TEMPERATURES, 1), (GRAMMARS, 2)):
        code = min(codes[r, c], levels - 1)
        if code > 0:
            index[n] = base + code
            n += 1
        base += levels
    return n


@compiled(
    "void(f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[::1], i8[:,::1],"
    "i8[::1], i8[::1], i8[:,::1], i8[:,::1], i8[::1], i8, f8[:,:,::1])"
)
def predict_positions(
    weights: FloatArray,
    slot_effects: FloatArray,
    request_effects: FloatArray,
    pool_bend: FloatArray,
    slot_bend: FloatArray,
    pool: IntArray,
    past: IntArray,
    slots: IntArray,
    rows: IntArray,
    hints: IntArray,
    covariates: IntArray,
    positions: IntArray,
    n_hints: int,
    result: FloatArray,
) -> None:
    """Write q of each request's first ``positions``, its log-odds uncalibrated, and their variance.

    ``result`` has shape (3, n, max_depth); hints and covariates have n rows, or none where nothing
    is known.
    """
    depth = result.shape[2]
    index = np.empty(N_COVARIATES, dtype=np.int64)
    longest = (request_effects.shape[2] - 1 - depth - 3) // 2
    last = weights.shape[2] - COVARIATES
    first_renewal = 1 + depth + n_hints * (1 + NEAR)
    first_age = first_renewal + (3 + 2 * longest) * (1 + NEAR)
    for r in range(slots.shape[0]):
        if positions[r] <= 0:
            continue
        slot, row = slots[r], rows[r]
        p = pool[slot]
        code = renewal_code(past[row, RUN], past[row, WHOLE], longest)
        renewal = first_renewal + code * (1 + NEAR)
        age = first_age + age_code(past[row, AGE]) * (1 + NEAR)
        own = 1 + depth + code
        base_z = weights[p, 0, 0] + weights[p, 0, renewal] + weights[p, 0, age]
        base_s = weights[p, 1, 0] + weights[p, 1, renewal] + weights[p, 1, age]
        base_z += (
            slot_effects[slot, 0, 0] + request_effects[row, 0, 0] + request_effects[row, 0, own]
        )
        base_s += (
            slot_effects[slot, 1, 0] + request_effects[row, 1, 0] + request_effects[row, 1, own]
        )
        if covariates.shape[0]:
            for f in range(active_covariates(index, covariates, r, last)):
                base_z += weights[p, 0, index[f]]
                base_s += weights[p, 1, index[f]]
        for i in range(min(positions[r], depth)):
            near = 1 + min(i, NEAR - 1)
            z = base_z + weights[p, 0, renewal + near] + weights[p, 0, age + near]
            s = base_s + weights[p, 1, renewal + near] + weights[p, 1, age + near]
            z += slot_effects[slot, 0, near] + weights[p, 0, 1 + i] + request_effects[row, 0, 1 + i]
            s += slot_effects[slot, 1, near] + weights[p, 1, 1 + i] + request_effects[row, 1, 1 + i]
            hint = min(hints[r, i], n_hints - 1) if hints.shape[0] else 0
            if hint > 0:
                hint = 1 + depth + hint * (1 + NEAR)
                z += weights[p, 0, hint] + weights[p, 0, hint + near]
                s += weights[p, 1, hint] + weights[p, 1, hint + near]
            if not (abs(z) < math.inf and 0.0 <= s < math.inf):
                z, s = _UNKNOWN_LOG_ODDS, 1.0
            z = moderated(z, s)
            knot, above = knot_of(z)
            bent = z + (1.0 - above) * (pool_bend[p, 0, knot] + slot_bend[slot, 0, knot])
            bent += above * (pool_bend[p, 0, knot + 1] + slot_bend[slot, 0, knot + 1])
            result[0, r, i] = probability_of(bent if abs(bent) < CLAMP else z)
            result[1, r, i] = z
            result[2, r, i] = s
