"""Learning of `acclimate.predictors.random_effects`, compiled: one pass, a few terms per token."""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray
from acclimate.predictors.overdispersion import (
    N_KINDS,
    REQUEST,
    REQUEST_POSITION,
    REQUEST_RENEWAL,
    SLOT,
    SLOT_NEAR,
)
from acclimate.predictors.random_effects_kernels import (
    AGE,
    AGES,
    COVARIATES,
    NEAR,
    RUN,
    WHOLE,
    active_covariates,
    age_code,
    moderated,
    predict_positions,
    renewal_code,
)
from acclimate.predictors.random_effects_updates import (
    LEAST_SLOPE,
    learn_bend,
    loosen,
    move,
    pair,
)
from acclimate.predictors.sigmoid import probability_of

_CENTRE_RATE = 0.02
_MOST_WEIGHTS = 12


FAULTS = ("slot or row is unknown", "position out of range", "matched out of range")
"""Why a run cannot be learned."""


@compiled("i8(i8, i8, i8, i8, i8, i8, i8, i8)")
def _fault_of(
    slot: int,
    row: int,
    start: int,
    graded: int,
    matched: int,
    n_slots: int,
    n_rows: int,
    depth: int,
) -> int:
    """Return the place of a run's first fault in `FAULTS`, -1 for none."""
    if not (0 <= slot < n_slots and 0 <= row < n_rows):
        return 0
    if not (0 <= start <= depth and 0 <= graded <= depth - start):
        return 1
    return -1 if 0 <= matched <= graded else 2


@compiled(
    "Tuple((i8, i8))(f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[::1],"
    "i8[:,::1], i8[::1], f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[::1], f8[:,:,::1], f8[:,:,::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[:,::1], i8[:,::1], f8[::1], i8, i8, i8, i8,"
    "f8[::1], f8, f8[::1], i8[::1], f8[:,::1])"
)
def learn_runs(
    weights: FloatArray,
    slot_effects: FloatArray,
    request_effects: FloatArray,
    pool_bend: FloatArray,
    slot_bend: FloatArray,
    pool: IntArray,
    past: IntArray,
    slot_of: IntArray,
    variances: FloatArray,
    pairs: FloatArray,
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
    most_runs: int,
    shared_tokens: int,
    step: int,
    rates: FloatArray,
    prior_bend: float,
    keeps: FloatArray,
    faults: IntArray,
    sums: FloatArray,
) -> tuple[int, int]:
    """Learn runs of graded tokens; return how many were, and how many effects were started afresh.

    Parameters
    ----------
    hints, covariates
        With d rows, or none.
    influence
        Shape (n_slots,), in [0, 1]: how much a slot's tokens count for what its pool shares.
    most_runs
        Learned from at most: an even choice that moves on with ``step``.
    shared_tokens
        About as many teach what is shared; all that are learned teach their slot and request.
    step
        Number of the step.
    rates
        Shares of a prior's variance by which weights, slots, requests and calibration loosen per
        token.
    keeps
        Decay per token of a request's sums, and of the pairs.
    faults
        Raised per kind of fault: runs that cannot be are passed over.
    sums
        Filled per slot: graded tokens, sums of predictions, outcomes and squared errors, log loss.
    """
    runs, depth = slots.shape[0], centre.shape[2]
    every = max(-(-runs // most_runs), 1)
    tokens = 0
    ends = np.zeros(runs, dtype=np.int64)  # of the positions to learn; -1: only to be noted
    for d in range(runs):
        fault = _fault_of(
            slots[d], rows[d], start[d], graded[d], matched[d],
            pool.shape[0], slot_of.shape[0], depth,
        )  # fmt: skip
        if fault >= 0:
            faults[fault] += 1
        elif graded[d] > 0:
            ends[d] = -1
            slot_of[rows[d]] = slots[d]
            if d % every == step % every:
                ends[d] = start[d] + graded[d]
                tokens += graded[d]
    predicted = np.empty((3, runs, depth))
    predict_positions(
        weights, slot_effects, request_effects, pool_bend, slot_bend, pool, past,
        slots, rows, hints, covariates, ends, n_hints, predicted,
    )  # fmt: skip
    stride = max(tokens // shared_tokens, 1)
    longest = (request_effects.shape[2] - 1 - depth - 3) // 2
    index = np.empty(_MOST_WEIGHTS, dtype=np.int64)
    healed = 0
    for d in range(runs):
        if ends[d] <= 0:
            continue
        slot, row = slots[d], rows[d]
        p = pool[slot]
        tau, prior = variances[p], prior_weight
        shared, by_slot, own = weights[p], slot_effects[slot], request_effects[row]
        pool_pairs, offsets = pairs[p], centre[p]
        bend, own_bend = pool_bend[p], slot_bend[slot]
        own_sums, others = request_sums[row], slot_sums[slot]
        waiting = own_sums.shape[1] - 1 - NEAR
        code = renewal_code(past[row, RUN], past[row, WHOLE], longest)
        own_renewal = 1 + depth + code
        base = shared.shape[1] - COVARIATES
        fixed = active_covariates(index, covariates, d, base) if covariates.shape[0] else 0
        index[fixed] = 0
        index[fixed + 1] = 1 + depth + (n_hints + code) * (1 + NEAR)
        index[fixed + 2] = base + (age_code(past[row, AGE]) - AGES) * (1 + NEAR)
        fixed += 3
        decay = 1.0
        teaches = d // every % stride == step // every % stride
        said = influence[slot]
        for j in range(graded[d]):
            i = start[d] + j
            near = min(i, NEAR - 1)
            y = 1.0 if j < matched[d] else 0.0
            n = fixed + 3
            index[fixed] = 1 + i
            index[fixed + 1] = index[fixed - 2] + 1 + near
            index[fixed + 2] = index[fixed - 1] + 1 + near
            hint = min(hints[d, i], n_hints - 1) if hints.shape[0] else 0
            if hint > 0:
                index[n] = 1 + depth + hint * (1 + NEAR)
                index[n + 1] = index[n] + 1 + near
                n += 2
            z, s = 0.0, 0.0
            for f in range(n):
                w = index[f]
                if teaches:
                    healed += loosen(shared, w, prior[w], rates[0])
                z += shared[0, w]
                s += shared[1, w]
            pool_z, pool_s = z, s
            healed += loosen(by_slot, 0, tau[SLOT], rates[1])
            healed += loosen(by_slot, 1 + near, tau[SLOT_NEAR], rates[1])
            z += by_slot[0, 0] + by_slot[0, 1 + near]
            s += by_slot[1, 0] + by_slot[1, 1 + near]
            if teaches:
                # A residual's mean is no overdispersion: it is centred.
                q = probability_of(moderated(pool_z, pool_s) + offsets[0, i])
                e, h = y - q, q * (1.0 - q)
                offsets[0, i] += _CENTRE_RATE * e
                # A slot's sums grow when a request ends: pairs are of different requests.
                for kind, cell in ((SLOT, 0), (SLOT_NEAR, 1 + near)):
                    pool_pairs[0, kind] += e * others[0, cell]
                    pool_pairs[1, kind] += h * others[1, cell]
                    if row:
                        cell += waiting
                        own_sums[0, cell] = keeps[0] * own_sums[0, cell] + e
                        own_sums[1, cell] = keeps[0] * own_sums[1, cell] + h
                q = probability_of(moderated(z, s) + offsets[1, i])
                e, h = y - q, q * (1.0 - q)
                offsets[1, i] += _CENTRE_RATE * e
                if row:
                    pair(pool_pairs, own_sums, REQUEST, 0, e, h, keeps[0])
                    pair(pool_pairs, own_sums, REQUEST_POSITION, 1 + i, e, h, keeps[0])
                    pair(pool_pairs, own_sums, REQUEST_RENEWAL, own_renewal, e, h, keeps[0])
                decay *= keeps[1]
            if row:
                healed += loosen(own, 0, tau[REQUEST], rates[2])
                healed += loosen(own, 1 + i, tau[REQUEST_POSITION], rates[2])
                healed += loosen(own, own_renewal, tau[REQUEST_RENEWAL], rates[2])
                z += own[0, 0] + own[0, 1 + i] + own[0, own_renewal]
                s += own[1, 0] + own[1, 1 + i] + own[1, own_renewal]
            q = probability_of(moderated(z, s))
            slope = max(q * (1.0 - q), LEAST_SLOPE)
            push, shrink = (y - q) / (1.0 + slope * s), slope / (1.0 + slope * s)
            if teaches:
                for f in range(n):
                    move(shared, index[f], 1.0, said * push, said * shrink)
                # Calibrated is what was predicted before the step; what the step taught is in z.
                healed += learn_bend(
                    bend, own_bend, predicted[1, d, i], y, said, rates[3], prior_bend
                )
            move(by_slot, 0, 1.0, push, shrink)
            move(by_slot, 1 + near, 1.0, push, shrink)
            if row:
                move(own, 0, 1.0, push, shrink)
                move(own, 1 + i, 1.0, push, shrink)
                move(own, own_renewal, 1.0, push, shrink)
            q = predicted[0, d, i]
            sums[slot, 0] += 1.0
            sums[slot, 1] += q
            sums[slot, 2] += y
            sums[slot, 3] += (y - q) ** 2
            sums[slot, 4] -= math.log(max(q if y else 1.0 - q, 1e-9))
        for k in range(N_KINDS):
            pool_pairs[0, k] *= decay
            pool_pairs[1, k] *= decay
    # Tokens of one step are predicted from the same past.
    for d in range(runs):
        row = rows[d]
        if ends[d] and row:
            past[row, RUN] = start[d] + matched[d]
            past[row, WHOLE] = 1 if matched[d] == graded[d] else 0
            past[row, AGE] += graded[d]
    return tokens, healed
