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


@compiled("f8(f8)")
def sigmoid(log_odds: float) -> float:
    """Return the probability of log-odds."""
    return 1.0 / (1.0 + math.exp(-log_odds))


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
    "i8[::1], i8[::1], i8[:,::1], i8[:,::1], i8[::1], i8, f8[:,::1], f8[:,::1], f8[:,::1])"
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
    probability: FloatArray,
    plain: FloatArray,
    spread: FloatArray,
) -> None:
    """Write q of each request's first ``positions``, its log-odds uncalibrated, and their spread."""
    depth = probability.shape[1]
    index = np.empty(N_COVARIATES, dtype=np.int64)
    longest = (request_effects.shape[2] - 1 - depth - 3) // 2
    near_mean, near_variance = np.empty(NEAR), np.empty(NEAR)
    for r in range(slots.shape[0]):
        slot, row = slots[r], rows[r]
        p = pool[slot]
        mean, variance = weights[p, 0], weights[p, 1]
        own_mean, own_variance = request_effects[row, 0], request_effects[row, 1]
        bend, own_bend = pool_bend[p, 0], slot_bend[slot, 0]
        code = renewal_code(past[row, RUN], past[row, WHOLE], longest)
        renewal = 1 + depth + n_hints * (1 + NEAR) + code * (1 + NEAR)
        age = 1 + depth + (n_hints + 3 + 2 * longest + age_code(past[row, AGE])) * (1 + NEAR)
        z = mean[0] + mean[renewal] + mean[age] + slot_effects[slot, 0, 0]
        s = variance[0] + variance[renewal] + variance[age] + slot_effects[slot, 1, 0]
        z += own_mean[0] + own_mean[1 + depth + code]
        s += own_variance[0] + own_variance[1 + depth + code]
        for f in range(active_covariates(index, covariates, r, mean.shape[0] - COVARIATES)):
            z += mean[index[f]]
            s += variance[index[f]]
        for near in range(NEAR):
            near_mean[near] = z + mean[renewal + 1 + near] + mean[age + 1 + near]
            near_mean[near] += slot_effects[slot, 0, 1 + near]
            near_variance[near] = s + variance[renewal + 1 + near] + variance[age + 1 + near]
            near_variance[near] += slot_effects[slot, 1, 1 + near]
        for i in range(positions[r]):
            near = min(i, NEAR - 1)
            z = near_mean[near] + mean[1 + i] + own_mean[1 + i]
            s = near_variance[near] + variance[1 + i] + own_variance[1 + i]
            hint = min(hints[r, i], n_hints - 1)
            if hint > 0:
                hint = 1 + depth + hint * (1 + NEAR)
                z += mean[hint] + mean[hint + 1 + near]
                s += variance[hint] + variance[hint + 1 + near]
            if not (abs(z) < math.inf and 0.0 <= s < math.inf):
                z, s = _UNKNOWN_LOG_ODDS, 1.0
            z = moderated(z, s)
            plain[r, i] = z
            knot, above = knot_of(z)
            bent = z + (1.0 - above) * (bend[knot] + own_bend[knot])
            bent += above * (bend[knot + 1] + own_bend[knot + 1])
            probability[r, i] = sigmoid(bent if abs(bent) < CLAMP else z)
            spread[r, i] = math.sqrt(s)
