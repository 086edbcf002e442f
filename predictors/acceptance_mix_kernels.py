"""The arithmetic of `acclimate.predictors.acceptance_mix`, compiled."""

from __future__ import annotations

import numpy as np

from acclimate.predictors.acceptance_kernels import LOG_LOSS
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray
from acclimate.predictors.random_effects_kernels import predict_positions
from acclimate.predictors.sigmoid import probability_of

HANDICAP_NATS = 2.0
"""By which the model must be ahead for an even share: the tables are the quicker learner."""
LEAST_NATS, MOST_NATS = -2.0, 5.0  # of advantage that count: who was wrong is soon forgiven
_LEAST_SHARE = 0.03  # below, the model is not asked


@compiled(
    "f8[:,::1](f8[:,::1], f8[::1], f8[::1],"
    "f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[::1], i8[:,::1],"
    "i8[::1], i8[::1], i8[:,::1], i8[:,::1], i8[::1], i8)"
)
def mixed_survival(
    log_odds: FloatArray,
    offset: FloatArray,
    advantage: FloatArray,
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
) -> FloatArray:
    """Return survival by the table and the model, mixed; see `AcceptanceMix.survival`."""
    n, depth = slots.shape[0], log_odds.shape[1]
    share, asked = np.empty(n), np.empty(n, dtype=np.int64)
    for r in range(n):
        share[r] = probability_of(advantage[slots[r]] - HANDICAP_NATS)
        asked[r] = positions[r] if share[r] >= _LEAST_SHARE else 0
    theirs = np.empty((3, n, depth))
    predict_positions(
        weights, slot_effects, request_effects, pool_bend, slot_bend, pool, past,
        slots, rows, hints, covariates, asked, n_hints, theirs,
    )  # fmt: skip
    result = np.zeros((n, depth))
    for r in range(n):
        own = offset[rows[r]]
        path, path_of_model = 1.0, 1.0
        for i in range(min(positions[r], depth)):
            path *= probability_of(log_odds[slots[r], i] + own)
            result[r, i] = path
            if asked[r]:
                path_of_model *= theirs[0, r, i]
                result[r, i] += share[r] * (path_of_model - path)
    return result


@compiled("void(f8[::1], f8[:,::1], f8[:,::1], f8)")
def settle(advantage: FloatArray, sums: FloatArray, theirs: FloatArray, keep: float) -> None:
    """Compare a step's log losses per slot, and put the better learner's sums in ``sums``.

    Parameters
    ----------
    advantage
        Log loss of the table above that of the model, decayed by ``keep`` per token.
    sums, theirs
        As `AcceptanceTable.learn` and `RandomEffectsAcceptance.learn` return them; the model's may
        be of fewer tokens.
    """
    for slot in range(advantage.shape[0]):
        tokens = theirs[slot, 0]
        if not tokens:
            continue
        gained = tokens * sums[slot, LOG_LOSS] / max(sums[slot, 0], 1.0) - theirs[slot, LOG_LOSS]
        fresh = advantage[slot] * keep**tokens + gained
        advantage[slot] = min(max(fresh, LEAST_NATS), MOST_NATS)
        if advantage[slot] > HANDICAP_NATS:
            scale = sums[slot, 0] / tokens
            sums[slot, 1] = theirs[slot, 1] * scale
            sums[slot, 3] = theirs[slot, 3] * scale
