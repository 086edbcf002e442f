"""What a drafter's own probabilities are worth: corrected per domain, depth and request.

A drafter says p of a token; whether the target takes it is another matter, and differs between
domains, depths and requests. On the log-odds scale

    logit q = (a + A_slot) + (b + B_slot) · logit p + o_slot,depth + u_request

with a = 0 and b = 1 at the start, so that a drafter is believed until it is known better. Each
level learns what those above leave unexplained, by Newton steps on the discounted log likelihood
with a Gaussian prior around 0 that does not fade (online Laplace approximation).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

GRADE_COLUMNS = 4
"""Columns of what `DraftCalibration.learn` returns per slot: graded nodes, and sums of predictions,
outcomes and squared errors."""

_LEAST_SAID = 1e-3  # what is said is taken to lie in [1e-3, 1 - 1e-3]
_TOKEN = 0.15  # information of a graded token: q(1 - q), about
_SPREAD = 4.0  # mean square of logit p, about
_POOL_TOKENS, _SLOT_TOKENS, _DEPTH_TOKENS, _REQUEST_TOKENS = 20.0, 20.0, 20.0, 40.0
_POOL_WINDOWS = 16.0
_SHAKEN = 0.05  # share of evidence that a declared change leaves
_STATE = (
    "pool",
    "pool_line",
    "pool_weight",
    "slot_line",
    "slot_weight",
    "depth_offset",
    "depth_weight",
    "offset",
    "offset_weight",
)


class DraftCalibration:
    """Draft probabilities → acceptance probabilities, learned while serving.

    Parameters
    ----------
    n_slots
        Traffic classes.
    max_depth
        Depths kept apart; deeper nodes share the last.
    window_tokens
        Tokens' worth of information after which a slot's evidence has decayed to 1/e; its pool's
        lasts longer. An unlikely sibling tells little, and so makes little be forgotten.
    request_window_tokens
        The same for a request's own history.

    Examples
    --------
    A drafter that says 0.9 and is right half of the time:

    >>> calibration = DraftCalibration(n_slots=2, max_depth=3)
    >>> one, said = np.ones(2, np.int64), np.array([0.9, 0.9])
    >>> for _ in range(300):
    ...     _ = calibration.learn(one, one, one, said, np.array([0, 1]))
    >>> calibration.conditional(one, one, one, said).round(1).tolist()
    [0.5, 0.5]
    """

    def __init__(
        self,
        n_slots: int,
        max_depth: int,
        *,
        window_tokens: float = 800.0,
        request_window_tokens: float = 160.0,
    ) -> None:
        if max_depth < 1:
            raise ValueError(f"max_depth must be >= 1, got {max_depth}")
        self.n_slots = n_slots
        self.max_depth = max_depth
        windows = (_POOL_WINDOWS * window_tokens, window_tokens, request_window_tokens)
        self._fading = 1.0 / (_TOKEN * np.array(windows))
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self.pool_line = np.tile(np.array([0.0, 1.0]), (n_slots, 1))
        self.pool_weight = np.tile(_prior(_POOL_TOKENS), (n_slots, 1, 1))
        self.slot_line = np.zeros((n_slots, 2))
        self.slot_weight = np.tile(_prior(_SLOT_TOKENS), (n_slots, 1, 1))
        self.depth_offset = np.zeros((n_slots, max_depth))
        self.depth_weight = np.full((n_slots, max_depth), _DEPTH_TOKENS * _TOKEN)
        # Row 0 stands for requests that nobody knows, and never learns.
        self.offset = np.zeros(64)
        self.offset_weight = np.full(64, _REQUEST_TOKENS * _TOKEN)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        missing = n_requests - self.offset.shape[0]
        if missing > 0:
            fresh = np.full(missing, _REQUEST_TOKENS * _TOKEN)
            self.offset = np.concatenate([self.offset, np.zeros(missing)])
            self.offset_weight = np.concatenate([self.offset_weight, fresh])

    def open_slot(self, slot: int, pool: int) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self.pool[slot] = pool
        self.slot_line[slot] = 0.0
        self.slot_weight[slot] = _prior(_SLOT_TOKENS)
        self.depth_offset[slot] = 0.0
        self.depth_weight[slot] = _DEPTH_TOKENS * _TOKEN

    def open_request(self, row: int) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.offset[row] = 0.0
        self.offset_weight[row] = _REQUEST_TOKENS * _TOKEN

    def shake(self) -> None:
        """Doubt what was learned: it still predicts, and gives way to a little new evidence."""
        for weight, prior in (
            (self.pool_weight, _prior(_POOL_TOKENS)),
            (self.slot_weight, _prior(_SLOT_TOKENS)),
            (self.depth_weight, np.array(_DEPTH_TOKENS * _TOKEN)),
        ):
            weight[:] = prior + _SHAKEN * (weight - prior)
        self.offset[:] = 0.0
        self.offset_weight[:] = _REQUEST_TOKENS * _TOKEN

    def shake_pools(self) -> None:
        """Doubt what was learned of all slots of a pool together."""
        prior = _prior(_POOL_TOKENS)
        self.pool_weight[:] = prior + _SHAKEN * (self.pool_weight - prior)

    def learn_anew(
        self,
        slot: int,
        rows: IntArray,
        depth: IntArray,
        said: FloatArray,
        accepted: IntArray,
    ) -> None:
        """Let a slot's beliefs rest on some nodes alone: what it learned before is but a first guess.

        Parameters
        ----------
        slot
            The traffic class that changed.
        rows
            Shape (m,): request rows of the nodes, 0 for a request that is gone.
        depth, said, accepted
            As in `learn`.
        """
        own = np.unique(rows[rows > 0])
        gone = self.offset.shape[0]
        offset = np.append(self.offset, 0.0)
        weight = np.append(self.offset_weight, 0.0)
        self.slot_weight[slot] = _prior(_SLOT_TOKENS)
        self.depth_weight[slot] = _DEPTH_TOKENS * _TOKEN
        # The pool has learned these nodes before.
        pool_line, pool_weight = self.pool_line.copy(), self.pool_weight.copy()
        offset[own], weight[own] = 0.0, _REQUEST_TOKENS * _TOKEN
        weight[gone] = np.inf
        slots = np.full(rows.shape[0], slot, dtype=np.int64)
        self._learn_into(
            (pool_line, pool_weight, offset, weight),
            slots,
            np.where(rows > 0, rows, gone),
            depth,
            said,
            accepted,
            np.zeros(rows.shape[0]),
            np.zeros((self.n_slots, GRADE_COLUMNS)),
        )
        self.offset[own], self.offset_weight[own] = offset[own], weight[own]

    def conditional(
        self, slots: IntArray, rows: IntArray, depth: IntArray, said: FloatArray
    ) -> FloatArray:
        """Return P(each node is accepted | its parent was), in (0, 1), shape (m,).

        Parameters
        ----------
        slots, rows
            Shape (m,): slot and request row of each node.
        depth
            Shape (m,): from 1 on.
        said
            Shape (m,): the drafter's probability; what is not finite counts as 0.5.
        """
        return _conditional(
            self.pool,
            self.pool_line,
            self.slot_line,
            self.depth_offset,
            self.offset,
            slots,
            rows,
            depth,
            said,
        )

    def learn(
        self,
        slots: IntArray,
        rows: IntArray,
        depth: IntArray,
        said: FloatArray,
        accepted: IntArray,
    ) -> FloatArray:
        """Learn graded nodes: those whose parent was accepted, and whose own fate is known.

        Parameters
        ----------
        slots, rows, depth, said
            As in `conditional`; row 0, an unknown request's, is passed over.
        accepted
            Shape (m,): 0 or 1.

        Returns
        -------
        FloatArray
            Shape (n_slots, 4): what was predicted before learning against what was seen, in sums
            per slot; see `GRADE_COLUMNS`.
        """
        sums = np.zeros((self.n_slots, GRADE_COLUMNS))
        predicted = self.conditional(slots, rows, depth, said)
        levels = (self.pool_line, self.pool_weight, self.offset, self.offset_weight)
        self._learn_into(levels, slots, rows, depth, said, accepted, predicted, sums)
        return sums

    def _learn_into(
        self,
        levels: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
        slots: IntArray,
        rows: IntArray,
        depth: IntArray,
        said: FloatArray,
        accepted: IntArray,
        predicted: FloatArray,
        sums: FloatArray,
    ) -> None:
        pool_line, pool_weight, offset, offset_weight = levels
        _learn(
            self.pool,
            pool_line,
            pool_weight,
            self.slot_line,
            self.slot_weight,
            self.depth_offset,
            self.depth_weight,
            offset,
            offset_weight,
            slots,
            rows,
            depth,
            said,
            accepted,
            predicted,
            _prior(_POOL_TOKENS),
            _prior(_SLOT_TOKENS),
            self._fading,
            sums,
        )

    def state(self) -> dict[str, Any]:
        """Return what was learned as arrays; predictions after `load` are bitwise the same."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of other slots or depths.
        """
        shape = np.asarray(state["depth_offset"]).shape
        if shape != self.depth_offset.shape:
            raise ValueError(f"calibration must be {self.depth_offset.shape}, got {shape}")
        load_arrays(self, _STATE, state)


def _prior(tokens: float) -> FloatArray:
    return np.diag([tokens * _TOKEN, tokens * _TOKEN * _SPREAD])


@compiled("f8(f8)")
def _log_odds(said: float) -> float:
    if not math.isfinite(said):
        return 0.0
    inside = min(max(said, _LEAST_SAID), 1.0 - _LEAST_SAID)
    return math.log(inside / (1.0 - inside))


@compiled("f8(f8)")
def _probability(log_odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(log_odds, -20.0), 20.0)))


@compiled(
    "f8[::1](i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], i8[::1], i8[::1], i8[::1], f8[::1])"
)
def _conditional(
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
        result[j] = _probability(line + depth_offset[s, d] + offset[rows[j]])
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
def _learn(
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
    depth_prior, request_prior = _DEPTH_TOKENS * _TOKEN, _REQUEST_TOKENS * _TOKEN
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
        q = _probability(by_pool)
        _step_line(
            pool_line[p], pool_weight[p], pool_prior, believed, x, hit - q, q * (1.0 - q), fading[0]
        )
        q = _probability(by_slot)
        _step_line(
            slot_line[s], slot_weight[s], slot_prior, nothing, x, hit - q, q * (1.0 - q), fading[1]
        )
        q = _probability(by_depth)
        keep = math.exp(-fading[1] * q * (1.0 - q))
        gained = (1.0 - keep) * depth_prior
        depth_weight[s, d] = keep * depth_weight[s, d] + gained + q * (1.0 - q)
        depth_offset[s, d] += (hit - q - gained * depth_offset[s, d]) / depth_weight[s, d]
        q = _probability(by_request)
        keep = math.exp(-fading[2] * q * (1.0 - q))
        gained = (1.0 - keep) * request_prior
        offset_weight[row] = keep * offset_weight[row] + gained + q * (1.0 - q)
        offset[row] += (hit - q - gained * offset[row]) / offset_weight[row]
