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
KNOTS = 8
LOWEST_KNOT, HIGHEST_KNOT = -2.0, 5.0
MAX_LOG_ODDS = 8.0
RUN, WHOLE, AGE = 0, 1, 2
"""Columns of a request's past: tokens accepted of its last draft (-1: none yet), whether that was
all of it, and graded tokens so far."""
REQUEST, REQUEST_POSITION, REQUEST_RENEWAL, SLOT, SLOT_NEAR = 0, 1, 2, 3, 4
"""Columns of variances, one per kind of effect."""
N_KINDS = 5
SHARED_PAIR = 5  # after the kinds' own: weight of pairs that share both position and renewal

_KNOT_WIDTH = (HIGHEST_KNOT - LOWEST_KNOT) / (KNOTS - 1)
_LEAST_SLOPE = 1e-3
_CLAMP = 12.0
_CENTRE_RATE = 0.02
_UNKNOWN_MEAN = 0.6


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


@compiled("UniTuple(f8, 2)(f8, f8)")
def _added(mean: float, variance: float) -> tuple[float, float]:
    """Return a term as it counts: what is not finite counts nothing."""
    if math.isfinite(mean) and math.isfinite(variance):
        return mean, max(variance, 0.0)
    return 0.0, 0.0


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
def _knot(log_odds: float) -> tuple[int, float]:
    """Return the knot below, and the share of the one above."""
    place = min(max((log_odds - LOWEST_KNOT) / _KNOT_WIDTH, 0.0), KNOTS - 1 - 1e-9)
    return int(place), place - int(place)


@compiled("f8(f8, f8[::1], f8[::1])")
def _bent(log_odds: float, pool_bend: FloatArray, slot_bend: FloatArray) -> float:
    """Return log-odds moved by the calibration curve of a pool and a slot."""
    knot, above = _knot(log_odds)
    low = pool_bend[knot] + slot_bend[knot]
    high = pool_bend[knot + 1] + slot_bend[knot + 1]
    bent = log_odds + (1.0 - above) * low + above * high
    return bent if math.isfinite(bent) else log_odds


@compiled("i8(i8[::1], i8, i8[::1], i8, i8, i8, i8)")
def active_weights(
    index: IntArray,
    depth: int,
    past: IntArray,
    hint: int,
    position: int,
    n_hints: int,
    longest: int,
) -> int:
    """Write which weights concern a token, whatever its request's covariates; return how many."""
    near = min(position, NEAR - 1)
    index[0] = 0
    index[1] = 1 + position
    base, n = 1 + depth, 2
    if hint > 0:
        index[n] = base + hint * (1 + NEAR)
        index[n + 1] = index[n] + 1 + near
        n += 2
    base += n_hints * (1 + NEAR)
    index[n] = base + renewal_code(past[RUN], past[WHOLE], longest) * (1 + NEAR)
    index[n + 1] = index[n] + 1 + near
    base += (3 + 2 * longest) * (1 + NEAR)
    index[n + 2] = base + age_code(past[AGE]) * (1 + NEAR)
    index[n + 3] = index[n + 2] + 1 + near
    return n + 4


@compiled("i8(i8[::1], i8, i8, i8[::1])")
def active_covariates(index: IntArray, n: int, base: int, codes: IntArray) -> int:
    """Append the weights of a request's covariates; a code of 0 is unknown and has none."""
    if codes[0] > 0:
        index[n] = base + codes[0]
        n += 1
    if codes[1] > 0:
        index[n] = base + CONTEXTS + codes[1]
        n += 1
    if codes[2] > 0:
        index[n] = base + CONTEXTS + TEMPERATURES + codes[2]
        n += 1
    return n


@compiled(
    "void(f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[::1], i8[:,::1],"
    "i8[::1], i8[::1], i8[:,::1], i8[:,::1], i8, f8[:,::1], f8[:,::1], f8[:,::1])"
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
    n_hints: int,
    probability: FloatArray,
    plain: FloatArray,
    spread: FloatArray,
) -> None:
    """Write q for every request and position, its log-odds before calibration, and their spread."""
    depth = probability.shape[1]
    index = np.empty(16, dtype=np.int64)
    longest = (request_effects.shape[2] - 1 - depth - 3) // 2
    covariate_base = weights.shape[2] - COVARIATES
    near_mean, near_variance = np.empty(NEAR), np.empty(NEAR)
    for r in range(slots.shape[0]):
        slot, row = slots[r], rows[r]
        p = pool[slot]
        mean, variance = weights[p, 0], weights[p, 1]
        slot_mean, slot_variance = slot_effects[slot, 0], slot_effects[slot, 1]
        own_mean, own_variance = request_effects[row, 0], request_effects[row, 1]
        code = renewal_code(past[row, RUN], past[row, WHOLE], longest)
        renewal = 1 + depth + n_hints * (1 + NEAR) + code * (1 + NEAR)
        age = 1 + depth + (n_hints + 3 + 2 * longest + age_code(past[row, AGE])) * (1 + NEAR)
        z = mean[0] + mean[renewal] + mean[age] + slot_mean[0]
        s = variance[0] + variance[renewal] + variance[age] + slot_variance[0]
        z += own_mean[0] + own_mean[1 + depth + code]
        s += own_variance[0] + own_variance[1 + depth + code]
        for f in range(active_covariates(index, 0, covariate_base, covariates[r])):
            z += mean[index[f]]
            s += variance[index[f]]
        for near in range(NEAR):
            near_mean[near] = z + mean[renewal + 1 + near] + mean[age + 1 + near]
            near_mean[near] += slot_mean[1 + near]
            near_variance[near] = s + variance[renewal + 1 + near] + variance[age + 1 + near]
            near_variance[near] += slot_variance[1 + near]
        for i in range(depth):
            near = min(i, NEAR - 1)
            z = near_mean[near] + mean[1 + i] + own_mean[1 + i]
            s = near_variance[near] + variance[1 + i] + own_variance[1 + i]
            if hints[r, i] > 0:
                hint = 1 + depth + hints[r, i] * (1 + NEAR)
                z += mean[hint] + mean[hint + 1 + near]
                s += variance[hint] + variance[hint + 1 + near]
            if not (math.isfinite(z) and s >= 0.0 and math.isfinite(s)):
                z, s = math.log(_UNKNOWN_MEAN / (1.0 - _UNKNOWN_MEAN)), 1.0
            plain[r, i] = moderated(z, s)
            bent = _bent(plain[r, i], pool_bend[p, 0], slot_bend[slot, 0])
            probability[r, i] = sigmoid(bent)
            spread[r, i] = math.sqrt(s)


@compiled("i8(f8[:,::1], i8, f8, f8, f8)")
def _move(effects: FloatArray, i: int, value: float, step: float, shrink: float) -> int:
    """Move one effect by one token; return 1 if it had to be started afresh, else 0.

    ``step`` is the residual over 1 + slope · total variance, ``shrink`` the slope over the same.
    """
    variance = effects[1, i]
    mean = effects[0, i] + variance * value * step
    variance -= shrink * (variance * value) ** 2
    if math.isfinite(mean) and math.isfinite(variance):
        effects[0, i] = min(max(mean, -_CLAMP), _CLAMP)
        effects[1, i] = max(variance, 0.0)
        return 0
    effects[0, i] = 0.0
    effects[1, i] = 0.0
    return 1


@compiled("void(f8[:,::1], i8, f8, f8)")
def _loosen(effects: FloatArray, i: int, prior: float, rate: float) -> None:
    """Let an effect wander: its variance grows by a share of its prior, and never beyond it."""
    effects[1, i] = min(prior, effects[1, i] + rate * prior)


@compiled("i8(f8[:,::1], f8[:,::1], f8, f8, f8, f8, f8[::1])")
def _learn_bend(
    pool_bend: FloatArray,
    slot_bend: FloatArray,
    plain: float,
    y: float,
    influence: float,
    rate: float,
    prior: FloatArray,
) -> int:
    """Move the calibration curves of a pool and a slot; return how many knots were started afresh."""
    knot, above = _knot(plain)
    variance = 0.0
    for c in range(2):
        share = above if c else 1.0 - above
        _loosen(pool_bend, knot + c, prior[0], rate)
        _loosen(slot_bend, knot + c, prior[1], rate)
        variance += share * share * (pool_bend[1, knot + c] + slot_bend[1, knot + c])
    q = sigmoid(_bent(plain, pool_bend[0], slot_bend[0]))
    slope = max(q * (1.0 - q), _LEAST_SLOPE)
    step, shrink = (y - q) / (1.0 + slope * variance), slope / (1.0 + slope * variance)
    healed = 0
    for c in range(2):
        share = above if c else 1.0 - above
        healed += _move(pool_bend, knot + c, share, step * influence, shrink * influence)
        healed += _move(slot_bend, knot + c, share, step, shrink)
    return healed


@compiled("void(f8[::1], f8[::1], i8, f8, f8, f8[:,::1], i8)")
def _pair(
    products: FloatArray,
    slopes: FloatArray,
    kind: int,
    residual: float,
    slope: float,
    sums: FloatArray,
    cell: int,
) -> None:
    """Add a token's pairs with those before it that share an effect."""
    products[kind] += residual * sums[0, cell]
    slopes[kind] += slope * sums[1, cell]


@compiled("void(f8[:,::1], i8, f8, f8, f8)")
def _keep(sums: FloatArray, cell: int, keep: float, residual: float, slope: float) -> None:
    sums[0, cell] = keep * sums[0, cell] + residual
    sums[1, cell] = keep * sums[1, cell] + slope


@compiled("void(f8[::1], f8[::1], f8[::1], f8[::1], f8)")
def estimate_variances(
    products: FloatArray,
    slopes: FloatArray,
    prior: FloatArray,
    variances: FloatArray,
    prior_pairs: float,
) -> None:
    """Write the variance of each kind of effect, from pairs of tokens that share it.

    Two tokens that share effects have residuals e, e' with E[e·e'] = h·h'·(the variances of what
    they share), h = q(1 - q). Summed over pairs that share a slot and near position, and over those
    that share a request and a position or a renewal, these are linear equations in the variances.
    A prior counts like ``prior_pairs`` of weighted pairs.
    """
    own, position, renewal = slopes[REQUEST], slopes[REQUEST_POSITION], slopes[REQUEST_RENEWAL]
    both = slopes[SHARED_PAIR]
    matrix = np.empty((3, 3))
    matrix[0, 0], matrix[0, 1], matrix[0, 2] = own, position, renewal
    matrix[1, 0], matrix[1, 1], matrix[1, 2] = position, position, both
    matrix[2, 0], matrix[2, 1], matrix[2, 2] = renewal, both, renewal
    right = products[:3].copy()
    for k in range(3):
        matrix[k, k] += prior_pairs
        right[k] += prior_pairs * prior[k]
    solved = np.linalg.solve(matrix, right)
    apart = max(slopes[SLOT] - slopes[SLOT_NEAR], 0.0)
    across = (products[SLOT] - products[SLOT_NEAR] + prior_pairs * prior[SLOT]) / (
        apart + prior_pairs
    )
    near = (products[SLOT_NEAR] - across * slopes[SLOT_NEAR] + prior_pairs * prior[SLOT_NEAR]) / (
        slopes[SLOT_NEAR] + prior_pairs
    )
    for k in range(N_KINDS):
        value = solved[k] if k < 3 else (across if k == SLOT else near)
        if math.isfinite(value):
            # A quarter of the prior at least: what is small for now may grow.
            variances[k] = min(max(value, 0.25 * prior[k]), 9.0 * prior[k])
        else:
            variances[k] = prior[k]


@compiled(
    "i8(f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[::1], i8[:,::1],"
    "f8[:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[::1], f8[:,:,::1], f8[:,:,::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[:,::1], i8[:,::1], f8[::1], i8,"
    "f8[::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[:,::1])"
)
def learn_runs(
    weights: FloatArray,
    slot_effects: FloatArray,
    request_effects: FloatArray,
    pool_bend: FloatArray,
    slot_bend: FloatArray,
    pool: IntArray,
    past: IntArray,
    variances: FloatArray,
    products: FloatArray,
    slopes: FloatArray,
    centre: FloatArray,
    prior_weight: FloatArray,
    request_sums: FloatArray,
    slot_sums: FloatArray,
    slots: IntArray,
    rows: IntArray,
    start: IntArray,
    graded: IntArray,
    matched: IntArray,
    hints: IntArray,
    covariates: IntArray,
    influence: FloatArray,
    n_hints: int,
    rates: FloatArray,
    prior_bend: FloatArray,
    keeps: FloatArray,
    predicted: FloatArray,
    plain: FloatArray,
    sums: FloatArray,
) -> int:
    """Learn runs of graded tokens whose predictions are given; return how often it healed itself.

    ``rates`` are shares of a prior's variance by which weights, slots, requests and calibration
    loosen per token; ``prior_bend`` the variances of the calibration curves of pool and slot;
    ``keeps`` the decay of a request's sums and of the pairs. ``influence`` in [0, 1] is how much a
    run counts for what its pool shares.
    """
    depth = predicted.shape[1]
    longest = (request_effects.shape[2] - 1 - depth - 3) // 2
    covariate_base = weights.shape[2] - COVARIATES
    index = np.empty(16, dtype=np.int64)
    healed = 0
    for d in range(slots.shape[0]):
        slot, row = slots[d], rows[d]
        p = pool[slot]
        code = renewal_code(past[row, RUN], past[row, WHOLE], longest)
        tau = variances[p]
        for j in range(graded[d]):
            i = start[d] + j
            near = min(i, NEAR - 1)
            y = 1.0 if j < matched[d] else 0.0
            n = active_weights(index, depth, past[row], hints[d, i], i, n_hints, longest)
            n = active_covariates(index, n, covariate_base, covariates[d])
            z, s = 0.0, 0.0
            for f in range(n):
                _loosen(weights[p], index[f], prior_weight[index[f]], rates[0])
                m, v = _added(weights[p, 0, index[f]], weights[p, 1, index[f]])
                z, s = z + m, s + v
            pooled = sigmoid(moderated(z, s) + centre[p, 0, i])
            _loosen(slot_effects[slot], 0, tau[SLOT], rates[1])
            _loosen(slot_effects[slot], 1 + near, tau[SLOT_NEAR], rates[1])
            for c in (0, 1 + near):
                m, v = _added(slot_effects[slot, 0, c], slot_effects[slot, 1, c])
                z, s = z + m, s + v
            by_slot = sigmoid(moderated(z, s) + centre[p, 1, i])
            if row:
                _loosen(request_effects[row], 0, tau[REQUEST], rates[2])
                _loosen(request_effects[row], 1 + i, tau[REQUEST_POSITION], rates[2])
                _loosen(request_effects[row], 1 + depth + code, tau[REQUEST_RENEWAL], rates[2])
                for c in (0, 1 + i, 1 + depth + code):
                    m, v = _added(request_effects[row, 0, c], request_effects[row, 1, c])
                    z, s = z + m, s + v
            q = sigmoid(moderated(z, s))
            slope = max(q * (1.0 - q), _LEAST_SLOPE)
            step, shrink = (y - q) / (1.0 + slope * s), slope / (1.0 + slope * s)

            if row:
                e, h = y - by_slot, by_slot * (1.0 - by_slot)
                _pair(products[p], slopes[p], REQUEST, e, h, request_sums[row], 0)
                _pair(products[p], slopes[p], REQUEST_POSITION, e, h, request_sums[row], 1 + i)
                cell = 1 + depth + code
                _pair(products[p], slopes[p], REQUEST_RENEWAL, e, h, request_sums[row], cell)
                # Pairs that share both: as many as if sharing one said nothing of the other.
                if slopes[p, REQUEST] > 0.0:
                    slopes[p, SHARED_PAIR] = (
                        slopes[p, REQUEST_POSITION]
                        * slopes[p, REQUEST_RENEWAL]
                        / slopes[p, REQUEST]
                    )
                for c in (0, 1 + i, cell):
                    _keep(request_sums[row], c, keeps[0], e, h)
            e, h = y - pooled, pooled * (1.0 - pooled)
            _pair(products[p], slopes[p], SLOT, e, h, slot_sums[slot], 0)
            _pair(products[p], slopes[p], SLOT_NEAR, e, h, slot_sums[slot], 1 + near)
            if row:
                waiting = request_sums.shape[2] - 1 - NEAR
                for c in (0, 1 + near):
                    _keep(request_sums[row], waiting + c, keeps[0], e, h)
            # A residual's mean is no overdispersion: the plain sum is not what is seen on average.
            centre[p, 0, i] += _CENTRE_RATE * (y - pooled)
            centre[p, 1, i] += _CENTRE_RATE * (y - by_slot)
            for k in range(SHARED_PAIR):
                products[p, k] *= keeps[1]
                slopes[p, k] *= keeps[1]

            for f in range(n):
                healed += _move(
                    weights[p], index[f], 1.0, step * influence[d], shrink * influence[d]
                )
            for c in (0, 1 + near):
                healed += _move(slot_effects[slot], c, 1.0, step, shrink)
            if row:
                for c in (0, 1 + i, 1 + depth + code):
                    healed += _move(request_effects[row], c, 1.0, step, shrink)
            # Calibrated is what was predicted before the step; what it taught is in z already.
            healed += _learn_bend(
                pool_bend[p], slot_bend[slot], plain[d, i], y, influence[d], rates[3], prior_bend
            )

            sums[slot, 0] += 1.0
            sums[slot, 1] += predicted[d, i]
            sums[slot, 2] += y
            sums[slot, 3] += (y - predicted[d, i]) ** 2
    for d in range(slots.shape[0]):
        row = rows[d]
        if row and graded[d]:
            past[row, RUN] = start[d] + matched[d]
            past[row, WHOLE] = 1 if matched[d] == graded[d] else 0
            past[row, AGE] += graded[d]
    return healed
