"""Compiled core of the calibration of drafters: predictions, and Newton steps of every level."""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray
from acclimate.predictors.sigmoid import probability_of

TOKEN = 0.15
"""Information of a graded token: q(1 - q), about."""

DEPTH_TOKENS, REQUEST_TOKENS = 20.0, 40.0
"""Tokens that the priors of a depth's and a request's offset are worth."""

_LEAST_SAID = 1e-3  # what is said is taken to lie in [1e-3, 1 - 1e-3]


@compiled("f8(f8)")
def _log_odds(said: float) -> float:
    if not math.isfinite(said):
        return 0.0
    inside = min(max(said, _LEAST_SAID), 1.0 - _LEAST_SAID)
    return math.log(inside / (1.0 - inside))


@compiled(
    "f8[::1](i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], i8[::1], i8[::1], i8[::1], f8[::1])"
)
def conditionals_of(
    pool: IntArray,
    pool_line: FloatArray,
    slot_line: FloatArray,
    depth_offset: FloatArray,
    offset: FloatArray,
    slots: IntArray,
    rows: IntArray,
    depth: IntArray,
    said: FloatArray,
) -> FloatArray:
    result = np.empty(slots.shape[0])
    for j in range(slots.shape[0]):
        s, x = slots[j], _log_odds(said[j])
        p = pool[s]
        d = min(max(depth[j], 1), depth_offset.shape[1]) - 1
        line = pool_line[p, 0] + slot_line[s, 0] + (pool_line[p, 1] + slot_line[s, 1]) * x
        result[j] = probability_of(line + depth_offset[s, d] + offset[rows[j]])
    return result


@compiled("void(f8[::1], f8[:,::1], f8[:,::1], f8[::1], f8, f8, f8, f8)")
def _step_line(
    line: FloatArray,
    weight: FloatArray,
    prior: FloatArray,
    centre: FloatArray,
    x: float,
    error: float,
    information: float,
    fading: float,
) -> None:
    """Take a Newton step of a line; what fades of its evidence, the prior replaces."""
    keep = math.exp(-fading * information)
    fade = 1.0 - keep
    g0 = error + fade * prior[0, 0] * (centre[0] - line[0])
    g1 = error * x + fade * prior[1, 1] * (centre[1] - line[1])
    weight[0, 0] = keep * weight[0, 0] + fade * prior[0, 0] + information
    weight[0, 1] = keep * weight[0, 1] + information * x
    weight[1, 0] = weight[0, 1]
    weight[1, 1] = keep * weight[1, 1] + fade * prior[1, 1] + information * x * x
    det = weight[0, 0] * weight[1, 1] - weight[0, 1] ** 2
    line[0] += (weight[1, 1] * g0 - weight[0, 1] * g1) / det
    line[1] += (weight[0, 0] * g1 - weight[0, 1] * g0) / det


@compiled(
    "void(i8[::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[::1],"
    "f8[::1], i8[::1], i8[::1], i8[::1], f8[::1], i8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1],"
    "f8[:,::1])"
)
def learn_nodes(
    pool: IntArray,
    pool_line: FloatArray,
    pool_weight: FloatArray,
    slot_line: FloatArray,
    slot_weight: FloatArray,
    depth_offset: FloatArray,
    depth_weight: FloatArray,
    offset: FloatArray,
    offset_weight: FloatArray,
    slots: IntArray,
    rows: IntArray,
    depth: IntArray,
    said: FloatArray,
    accepted: IntArray,
    predicted: FloatArray,
    pool_prior: FloatArray,
    slot_prior: FloatArray,
    fading: FloatArray,
    sums: FloatArray,
) -> None:
    believed, nothing = np.array([0.0, 1.0]), np.zeros(2)
    depth_prior, request_prior = DEPTH_TOKENS * TOKEN, REQUEST_TOKENS * TOKEN
    for j in range(slots.shape[0]):
        s, row = slots[j], rows[j]
        if not row:
            continue
        x, hit = _log_odds(said[j]), float(accepted[j])
        p = pool[s]
        d = min(max(depth[j], 1), depth_offset.shape[1]) - 1
        sums[s, 0] += 1.0
        sums[s, 1] += predicted[j]
        sums[s, 2] += hit
        sums[s, 3] += (hit - predicted[j]) ** 2
        # Each level by the levels above and itself: what comes below must not explain it away.
        by_pool = pool_line[p, 0] + pool_line[p, 1] * x
        by_slot = by_pool + slot_line[s, 0] + slot_line[s, 1] * x
        by_depth = by_slot + depth_offset[s, d]
        by_request = by_depth + offset[row]
        q = probability_of(by_pool)
        _step_line(
            pool_line[p], pool_weight[p], pool_prior, believed, x, hit - q, q * (1.0 - q), fading[0]
        )
        q = probability_of(by_slot)
        _step_line(
            slot_line[s], slot_weight[s], slot_prior, nothing, x, hit - q, q * (1.0 - q), fading[1]
        )
        q = probability_of(by_depth)
        keep = math.exp(-fading[1] * q * (1.0 - q))
        gained = (1.0 - keep) * depth_prior
        depth_weight[s, d] = keep * depth_weight[s, d] + gained + q * (1.0 - q)
        depth_offset[s, d] += (hit - q - gained * depth_offset[s, d]) / depth_weight[s, d]
        q = probability_of(by_request)
        keep = math.exp(-fading[2] * q * (1.0 - q))
        gained = (1.0 - keep) * request_prior
        offset_weight[row] = keep * offset_weight[row] + gained + q * (1.0 - q)
        offset[row] += (hit - q - gained * offset[row]) / offset_weight[row]
