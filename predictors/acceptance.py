"""Acceptance of draft tokens: discounted counts per slot and position, shrunk level by level.

The model, on the log-odds scale: ``logit q = b_position + u_slot + v_request`` where a slot is a
traffic domain. A position's pool gives ``b``; a slot's and a request's offset compare what was
accepted with what the level above expected, shrunk by a fixed number of pseudo-tokens; a slot's
own counts per position then correct the sum. The request is the unit of prediction, its slot the
prior of a cold request.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_PRIOR_MEAN = 0.6
_PRIOR_TOKENS = 2.0
_POOL_MEMORY = 4.0  # the pool remembers this many times longer than a slot
_TINY = 1e-9
GRADE_COLUMNS = 6
"""Columns of what `AcceptanceTable.learn` returns per slot: graded tokens, sums of predictions,
outcomes and squared errors; then fresh tokens and their summed residual against the slot's frozen
reference, both 0 while there is none."""


class AcceptanceTable:
    """Conditional acceptance q per (slot, position), and each request's own offset.

    Parameters
    ----------
    n_slots
        Rows of the table.
    max_depth
        Positions, 1 to ``max_depth`` (column 0 is position 1).
    window_tokens
        Graded tokens after which a slot's evidence has decayed to 1/e.
    request_window_tokens
        The same for a request's own history.
    slot_shrinkage, request_shrinkage
        Pseudo-tokens that hold a slot to its pool and a request to its slot.

    Examples
    --------
    >>> table = AcceptanceTable(n_slots=2, max_depth=3)
    >>> none, one = np.array([0]), np.array([1])
    >>> for _ in range(300):
    ...     _ = table.learn(none, one, start=none, graded=one + 1, matched=one, fresh=none)
    >>> table.predict_slots()[0, :2].round(1).tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        n_slots: int,
        max_depth: int,
        *,
        window_tokens: float = 400.0,
        request_window_tokens: float = 40.0,
        slot_shrinkage: float = 10.0,
        request_shrinkage: float = 8.0,
    ) -> None:
        self.n_slots = n_slots
        self.max_depth = max_depth
        self.window_tokens = window_tokens
        self.request_window_tokens = request_window_tokens
        self.slot_shrinkage = slot_shrinkage
        self.request_shrinkage = request_shrinkage
        shape = (n_slots, max_depth)
        self.accepted = np.zeros(shape)
        self.graded = np.zeros(shape)
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self.pool_accepted = np.zeros(shape)
        self.pool_graded = np.zeros(shape)
        self.log_odds = np.full(shape, math.log(_PRIOR_MEAN / (1.0 - _PRIOR_MEAN)))
        # What drift is measured against: a predictor that learns on would chase the shift.
        self.reference = np.zeros(shape)
        self.frozen = np.zeros(n_slots, dtype=np.int64)
        # Per request row: accepted, graded, expected by its slot; and the offset that follows.
        self.history = np.zeros((0, 3))
        self.offset = np.zeros(0)
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        missing = n_requests - self.offset.shape[0]
        if missing > 0:
            self.history = np.concatenate([self.history, np.zeros((missing, 3))])
            self.offset = np.concatenate([self.offset, np.zeros(missing)])

    def open_slot(self, slot: int, pool: int) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self.accepted[slot] = 0.0
        self.graded[slot] = 0.0
        self.pool[slot] = pool
        self.frozen[slot] = 0
        self._refresh(slot)

    def open_request(self, row: int) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.history[row] = 0.0
        self.offset[row] = 0.0

    def freeze(self, slot: int) -> None:
        """Take what is believed of a slot now as the reference for its drift."""
        self.reference[slot] = self.log_odds[slot]
        self.frozen[slot] = 1

    def thaw(self, slot: int) -> None:
        """Drop a slot's reference, until the next `freeze`."""
        self.frozen[slot] = 0

    def survival(self, slots: IntArray, rows: IntArray) -> FloatArray:
        """Return P(the first i drafts are all accepted), shape ``(n, max_depth)``.

        Row 0 never learns: it is predicted as a cold request of its slot.
        """
        return survival_of(self.log_odds, self.offset, slots, rows)

    def predict_slots(self) -> FloatArray:
        """Return q of a cold request, shape ``(n_slots, max_depth)``."""
        result: FloatArray = 1.0 / (1.0 + np.exp(-self.log_odds))
        return result

    def learn(
        self,
        slots: IntArray,
        rows: IntArray,
        start: IntArray,
        graded: IntArray,
        matched: IntArray,
        fresh: IntArray,
    ) -> FloatArray:
        """Learn runs of graded tokens, one run per entry of the arrays.

        Parameters
        ----------
        slots, rows
            Shape (d,): slot and request row of each run; row 0, an unknown request's, is passed over.
        start, graded, matched
            Shape (d,): positions ``start + 1 … start + graded`` became known, the first
            ``matched`` of them accepted.
        fresh
            Shape (d,): how many of them, counted from the end, are news of a committed token.

        Returns
        -------
        FloatArray
            Shape (n_slots, 6): what was predicted before learning against what was seen, in sums
            per slot; see `GRADE_COLUMNS`.
        """
        sums = np.zeros((self.n_slots, GRADE_COLUMNS))
        fits = _learn(
            self.log_odds,
            self.reference,
            self.frozen,
            self.accepted,
            self.graded,
            self.pool,
            self.pool_accepted,
            self.pool_graded,
            self.history,
            self.offset,
            slots,
            rows,
            start,
            graded,
            matched,
            fresh,
            math.exp(-1.0 / self.window_tokens),
            math.exp(-1.0 / (_POOL_MEMORY * self.window_tokens)),
            math.exp(-1.0 / self.request_window_tokens),
            self.slot_shrinkage,
            self.request_shrinkage,
            sums,
        )
        if not fits:
            raise ValueError(f"graded positions must be in [1, {self.max_depth}]")
        return sums

    def state(self) -> dict[str, Any]:
        """Return counts as arrays; predictions after `load` are bitwise the same."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state's table has another shape.
        """
        shape = np.asarray(state["graded"]).shape
        if shape != self.graded.shape:
            raise ValueError(f"acceptance table must be {self.graded.shape}, got {shape}")
        load_arrays(self, _STATE, state)

    def _refresh(self, slot: int) -> None:
        _refresh_slot(
            self.log_odds,
            self.accepted,
            self.graded,
            self.pool,
            self.pool_accepted,
            self.pool_graded,
            slot,
            self.slot_shrinkage,
        )


_STATE = (
    "accepted",
    "graded",
    "pool",
    "pool_accepted",
    "pool_graded",
    "log_odds",
    "reference",
    "frozen",
    "history",
    "offset",
)


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


@compiled("void(f8[:,::1], f8[:,::1], f8[:,::1], i8[::1], f8[:,::1], f8[:,::1], i8, f8)")
def _refresh_slot(
    log_odds: FloatArray,
    accepted: FloatArray,
    graded: FloatArray,
    pool: IntArray,
    pool_accepted: FloatArray,
    pool_graded: FloatArray,
    slot: int,
    shrinkage: float,
) -> None:
    """Recompute the log-odds of a cold request in one slot from the counts."""
    p = pool[slot]
    total_accepted = total_graded = expected = 0.0
    for i in range(log_odds.shape[1]):
        mean = (pool_accepted[p, i] + _PRIOR_TOKENS * _PRIOR_MEAN) / (
            pool_graded[p, i] + _PRIOR_TOKENS
        )
        total_accepted += accepted[slot, i]
        total_graded += graded[slot, i]
        expected += graded[slot, i] * mean
    offset = _shrunk_offset(total_accepted, total_graded, expected, shrinkage)
    for i in range(log_odds.shape[1]):
        mean = (pool_accepted[p, i] + _PRIOR_TOKENS * _PRIOR_MEAN) / (
            pool_graded[p, i] + _PRIOR_TOKENS
        )
        odds = mean / (1.0 - mean + _TINY) * math.exp(offset)
        prior = odds / (1.0 + odds)
        log_odds[slot, i] = math.log(
            (accepted[slot, i] + shrinkage * prior + _TINY)
            / (graded[slot, i] - accepted[slot, i] + shrinkage * (1.0 - prior) + _TINY)
        )


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
    "b1(f8[:,::1], f8[:,::1], i8[::1],"
    "f8[:,::1], f8[:,::1], i8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8, f8, f8, f8, f8, f8[:,::1])"
)
def _learn(
    log_odds: FloatArray,
    reference: FloatArray,
    frozen: IntArray,
    accepted: FloatArray,
    graded: FloatArray,
    pool: IntArray,
    pool_accepted: FloatArray,
    pool_graded: FloatArray,
    history: FloatArray,
    offset: FloatArray,
    slots: IntArray,
    rows: IntArray,
    start: IntArray,
    count: IntArray,
    matched: IntArray,
    fresh: IntArray,
    keep_slot: float,
    keep_pool: float,
    keep_request: float,
    slot_shrinkage: float,
    request_shrinkage: float,
    sums: FloatArray,
) -> bool:
    """Learn all runs, or return False if a position is outside the table."""
    for d in range(slots.shape[0]):
        if start[d] < 0 or start[d] + count[d] > log_odds.shape[1]:
            return False
    for d in range(slots.shape[0]):
        slot, row = slots[d], rows[d]
        if not row:
            continue
        for j in range(count[d]):
            i = start[d] + j
            seen = 1.0 if j < matched[d] else 0.0
            expected = 1.0 / (1.0 + math.exp(-log_odds[slot, i]))
            predicted = 1.0 / (1.0 + math.exp(-(log_odds[slot, i] + offset[row])))
            residual = seen - predicted
            sums[slot, 0] += 1.0
            sums[slot, 1] += predicted
            sums[slot, 2] += seen
            sums[slot, 3] += residual * residual
            if frozen[slot] and j >= count[d] - fresh[d]:
                sums[slot, 4] += 1.0
                sums[slot, 5] += seen - 1.0 / (1.0 + math.exp(-reference[slot, i]))
            # Expected by the slot alone: a request's own offset must not explain itself away.
            history[row, 0] = history[row, 0] * keep_request + seen
            history[row, 1] = history[row, 1] * keep_request + 1.0
            history[row, 2] = history[row, 2] * keep_request + expected
    # Counts decay by the step's tokens at once: within a step, order must not matter.
    for slot in range(log_odds.shape[0]):
        if sums[slot, 0] > 0.0:
            fade = keep_slot ** sums[slot, 0]
            fade_pool = keep_pool ** sums[slot, 0]
            for i in range(log_odds.shape[1]):
                graded[slot, i] *= fade
                accepted[slot, i] *= fade
                pool_graded[pool[slot], i] *= fade_pool
                pool_accepted[pool[slot], i] *= fade_pool
    for d in range(slots.shape[0]):
        slot = slots[d]
        for j in range(count[d] if rows[d] else 0):
            i = start[d] + j
            graded[slot, i] += 1.0
            pool_graded[pool[slot], i] += 1.0
            if j < matched[d]:
                accepted[slot, i] += 1.0
                pool_accepted[pool[slot], i] += 1.0
    for d in range(slots.shape[0]):
        row = rows[d]
        offset[row] = _shrunk_offset(
            history[row, 0], history[row, 1], history[row, 2], request_shrinkage
        )
    for slot in range(log_odds.shape[0]):
        if sums[slot, 0] > 0.0:
            _refresh_slot(
                log_odds,
                accepted,
                graded,
                pool,
                pool_accepted,
                pool_graded,
                slot,
                slot_shrinkage,
            )
    return True
