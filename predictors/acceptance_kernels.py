"""The arithmetic of `acclimate.predictors.acceptance`, compiled.

Shapes: s slots, d positions, e memories. Counts have shape (e, s, d), pools (s, d); a pool's row is
that of its first slot.
"""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray
from acclimate.predictors.sigmoid import probability_of

PRIOR_MEAN = 0.6
PRIOR_TOKENS = 2.0
GRADE_COLUMNS = 5
"""Columns of what `AcceptanceTable.learn` returns per slot: graded tokens, sums of predictions,
outcomes and squared errors, and the log loss of the predictions in nats."""
LOG_LOSS = 4

_TINY = 1e-9
# Tokens of one request resemble each other: each says less than a coin's toss would.
_LOSS_SHARE = 0.5
_SWITCH_RATE = 2e-3  # per graded token, that another memory becomes the right one
_SPREAD_MEMORY = 2000.0  # looks at a request
_SHRINKAGE_RANGE = (3.0, 1000.0)  # pseudo-tokens


@compiled("f8(f8, f8, f8, f8)")
def _shrunk_offset(accepted: float, graded: float, expected: float, shrinkage: float) -> float:
    """Return the log-odds by which acceptance exceeds what was expected, shrunk towards 0."""
    if graded <= _TINY:
        return 0.0
    mean = expected / graded
    seen = (accepted + shrinkage * mean + _TINY) / (
        graded - accepted + shrinkage * (1.0 - mean) + _TINY
    )
    return math.log(seen * (graded - expected + _TINY) / (expected + _TINY))


@compiled("void(f8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,:,::1], f8[:,:,::1], f8[::1], i8, f8)")
def refresh_slot(
    log_odds: FloatArray,
    by_memory: FloatArray,
    weight: FloatArray,
    accepted: FloatArray,
    graded: FloatArray,
    pool_mean: FloatArray,
    slot: int,
    shrinkage: float,
) -> None:
    """Recompute the q of a cold request in one slot: by each memory, and mixed."""
    memories, depth = by_memory.shape[0], by_memory.shape[2]
    for e in range(memories):
        total_accepted = total_graded = expected = 0.0
        for i in range(depth):
            total_accepted += accepted[e, slot, i]
            total_graded += graded[e, slot, i]
            expected += graded[e, slot, i] * pool_mean[i]
        offset = math.exp(_shrunk_offset(total_accepted, total_graded, expected, shrinkage))
        for i in range(depth):
            odds = pool_mean[i] / (1.0 - pool_mean[i] + _TINY) * offset
            prior = odds / (1.0 + odds)
            by_memory[e, slot, i] = (accepted[e, slot, i] + shrinkage * prior + _TINY) / (
                graded[e, slot, i] + shrinkage + 2.0 * _TINY
            )
    for i in range(depth):
        q = 0.0
        for e in range(memories):
            q += weight[slot, e] * by_memory[e, slot, i]
        q = min(max(q, _TINY), 1.0 - _TINY)
        log_odds[slot, i] = math.log(q / (1.0 - q))


@compiled("f8[::1](f8[:,::1], f8[:,::1], i8)")
def pool_mean_of(pool_accepted: FloatArray, pool_graded: FloatArray, pool: int) -> FloatArray:
    """Return q per position in a pool, shrunk to a prior."""
    mean = np.empty(pool_graded.shape[1])
    for i in range(mean.shape[0]):
        mean[i] = (pool_accepted[pool, i] + PRIOR_TOKENS * PRIOR_MEAN) / (
            pool_graded[pool, i] + PRIOR_TOKENS
        )
    return mean


@compiled("void(f8[::1], f8[:,:,::1], i8, f8[:,::1])")
def _weigh(weight: FloatArray, by_memory: FloatArray, slot: int, seen: FloatArray) -> None:
    """Shift weight to the memories that predicted a step's tokens best, and share a little back.

    ``seen`` has accepted and graded tokens per position as rows.
    """
    memories = weight.shape[0]
    gains = np.zeros(memories)
    tokens = 0.0
    for i in range(seen.shape[1]):
        hit, missed = seen[0, i], seen[1, i] - seen[0, i]
        tokens += seen[1, i]
        if seen[1, i] > 0.0:
            for e in range(memories):
                q = by_memory[e, slot, i]
                gains[e] += hit * math.log(q) + missed * math.log(1.0 - q)
    best = gains.max()
    total = 0.0
    for e in range(memories):
        weight[e] *= math.exp(_LOSS_SHARE * (gains[e] - best))
        total += weight[e]
    shared = 1.0 - (1.0 - _SWITCH_RATE) ** tokens
    for e in range(memories):
        weight[e] = (1.0 - shared) * weight[e] / total + shared / memories


@compiled("f8(f8[::1], f8[::1])")
def _request_shrinkage(spread: FloatArray, history: FloatArray) -> float:
    """Return the pseudo-tokens that hold a request to its slot, from how requests differ there.

    A Beta distribution with mean q and variance v is worth q(1 - q)/v - 1 tokens.
    """
    mean = history[2] / history[1]
    variance = max(spread[0], 0.0) / spread[1]
    least, most = _SHRINKAGE_RANGE
    bernoulli = mean * (1.0 - mean)
    if variance * (most + 1.0) <= bernoulli:
        return most
    return float(max(bernoulli / variance - 1.0, least))


@compiled("void(f8[::1], f8[::1])")
def _compare_request(spread: FloatArray, history: FloatArray) -> None:
    """Learn by how much a request's acceptance differs from its slot's, beyond chance.

    Where requests differ with variance v, the square of accepted minus expected is expected to be
    chance + v · tokens².
    """
    keep = 1.0 - 1.0 / _SPREAD_MEMORY
    spread[0] = spread[0] * keep + (history[0] - history[2]) ** 2 - history[3]
    spread[1] = spread[1] * keep + history[1] ** 2


@compiled("f8[:,::1](f8[:,::1], f8[::1], i8[::1], i8[::1])")
def survival_of(
    log_odds: FloatArray, offset: FloatArray, slots: IntArray, rows: IntArray
) -> FloatArray:
    """Return P(the first i drafts are all accepted), shape (n, max_depth), for compiled callers."""
    n, depth = slots.shape[0], log_odds.shape[1]
    result = np.empty((n, depth))
    for r in range(n):
        own = offset[rows[r]]
        path = 1.0
        for i in range(depth):
            path /= 1.0 + math.exp(-(log_odds[slots[r], i] + own))
            result[r, i] = path
    return result


@compiled(
    "b1(f8[:,::1], f8[:,:,::1], f8[:,::1],"
    "f8[:,:,::1], f8[:,:,::1], i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1],"
    "f8[:,::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8, f8, f8,"
    "f8[:,::1])"
)
def learn_runs(
    log_odds: FloatArray,
    by_memory: FloatArray,
    weight: FloatArray,
    accepted: FloatArray,
    graded: FloatArray,
    pool: IntArray,
    pool_accepted: FloatArray,
    pool_graded: FloatArray,
    history: FloatArray,
    offset: FloatArray,
    spread: FloatArray,
    slots: IntArray,
    rows: IntArray,
    start: IntArray,
    count: IntArray,
    matched: IntArray,
    influence: FloatArray,
    keep: FloatArray,
    keep_pool: float,
    keep_request: float,
    slot_shrinkage: float,
    sums: FloatArray,
) -> bool:
    """Learn all runs, or return False if a position is outside the table."""
    n_slots, depth = log_odds.shape
    for d in range(slots.shape[0]):
        if start[d] < 0 or start[d] + count[d] > depth:
            return False
    seen = np.zeros((n_slots, 2, depth))
    for d in range(slots.shape[0]):
        slot, row = slots[d], rows[d]
        if not row:
            continue
        for j in range(count[d]):
            i = start[d] + j
            hit = 1.0 if j < matched[d] else 0.0
            expected = probability_of(log_odds[slot, i])
            predicted = probability_of(log_odds[slot, i] + offset[row])
            sums[slot, 0] += 1.0
            sums[slot, 1] += predicted
            sums[slot, 2] += hit
            sums[slot, 3] += (hit - predicted) ** 2
            sums[slot, LOG_LOSS] -= math.log(max(predicted if hit else 1.0 - predicted, _TINY))
            seen[slot, 0, i] += hit
            seen[slot, 1, i] += 1.0
            # Expected by the slot alone: a request's own offset must not explain itself away.
            history[row, 0] = history[row, 0] * keep_request + hit
            history[row, 1] = history[row, 1] * keep_request + 1.0
            history[row, 2] = history[row, 2] * keep_request + expected
            history[row, 3] = history[row, 3] * keep_request**2 + expected * (1.0 - expected)
    # Counts decay by the step's tokens at once: within a step, order must not matter. A slot's
    # positions all forget together, a pool's each by its own tokens: a position that nobody
    # verifies falls back on what its pool remembers of it.
    for slot in range(n_slots):
        if sums[slot, 0] == 0.0:
            continue
        _weigh(weight[slot], by_memory, slot, seen[slot])
        p = pool[slot]
        for i in range(depth):
            hit, tokens = influence[slot] * seen[slot, 0, i], influence[slot] * seen[slot, 1, i]
            fade = keep_pool**tokens
            pool_accepted[p, i] = pool_accepted[p, i] * fade + hit
            pool_graded[p, i] = pool_graded[p, i] * fade + tokens
        for e in range(keep.shape[0]):
            fade = keep[e] ** sums[slot, 0]
            for i in range(depth):
                accepted[e, slot, i] = accepted[e, slot, i] * fade + seen[slot, 0, i]
                graded[e, slot, i] = graded[e, slot, i] * fade + seen[slot, 1, i]
    for d in range(slots.shape[0]):
        slot, row = slots[d], rows[d]
        if not row or not count[d]:
            continue
        _compare_request(spread[slot], history[row])
        offset[row] = _shrunk_offset(
            history[row, 0],
            history[row, 1],
            history[row, 2],
            _request_shrinkage(spread[slot], history[row]),
        )
    for slot in range(n_slots):
        if sums[slot, 0] > 0.0:
            refresh_slot(
                log_odds,
                by_memory,
                weight,
                accepted,
                graded,
                pool_mean_of(pool_accepted, pool_graded, pool[slot]),
                slot,
                slot_shrinkage,
            )
    return True
