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

from acclimate.predictors.numerics import FloatArray, IntArray, logit, sigmoid

_PRIOR_MEAN = 0.6
_PRIOR_TOKENS = 2.0
_FOLD_TOKENS = 64
_TINY = 1e-9
_POOL_MEMORY = 4.0  # the pool remembers this many times longer than a slot


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
    >>> one = np.array([0]), np.array([0]), np.array([0])
    >>> for _ in range(300):
    ...     _ = table.learn(*one, graded=np.array([2]), matched=np.array([1]))
    >>> table.predict(np.array([0]), np.array([0]))[0, :2].round(1).tolist()
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
        self.log_odds = np.full(shape, float(logit(np.array(_PRIOR_MEAN))))
        self._new_graded = np.zeros(n_slots * max_depth)
        self._new_accepted = np.zeros(n_slots * max_depth)
        self._new_tokens = 0
        self._ones = np.ones(max_depth)
        self.seen_tokens = 0
        self.n_open = 1
        self.request_accepted = np.zeros(0)
        self.request_graded = np.zeros(0)
        self.request_expected = np.zeros(0)
        self.request_offset = np.zeros(0)
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        missing = n_requests - self.request_offset.shape[0]
        if missing > 0:
            for name in ("accepted", "graded", "expected", "offset"):
                old = getattr(self, f"request_{name}")
                setattr(self, f"request_{name}", np.concatenate([old, np.zeros(missing)]))

    def open_slot(self, slot: int, pool: int) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self.fold()
        self.accepted[slot] = 0.0
        self.graded[slot] = 0.0
        self.pool[slot] = pool
        self.n_open = max(self.n_open, slot + 1)
        self._refresh()

    def open_request(self, row: int) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.request_accepted[row] = 0.0
        self.request_graded[row] = 0.0
        self.request_expected[row] = 0.0
        self.request_offset[row] = 0.0

    def predict(self, slots: IntArray, rows: IntArray) -> FloatArray:
        """Return q, shape ``(n, max_depth)``, of requests in ``rows`` that belong to ``slots``."""
        return sigmoid(self.log_odds[slots] + self.request_offset[rows][:, None])

    def predict_slots(self) -> FloatArray:
        """Return q of a cold request, shape ``(n_slots, max_depth)``."""
        return sigmoid(self.log_odds)

    def learn(
        self, slots: IntArray, rows: IntArray, start: IntArray, graded: IntArray, matched: IntArray
    ) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """Learn runs of graded tokens, one run per entry of the arrays.

        Parameters
        ----------
        slots, rows
            Shape (d,): slot and request row of each run.
        start, graded, matched
            Shape (d,): positions ``start + 1 … start + graded`` became known, the first
            ``matched`` of them accepted.

        Returns
        -------
        tuple
            For each graded token: index of its run, position (from 0), outcome (0 or 1), and the q
            that was predicted for it before learning.
        """
        total = int(graded.sum())
        run = np.repeat(np.arange(graded.shape[0]), graded)
        offset = np.arange(total) - (graded.cumsum() - graded)[run]
        position = start[run] + offset
        outcome = (offset < matched[run]).astype(np.float64)
        if not total:
            return run, position, outcome, outcome
        slot, row = slots[run], rows[run]
        log_odds = self.log_odds[slot, position]
        predicted = sigmoid(log_odds + self.request_offset[row])
        # Expected by the slot alone: the request's own offset must not explain itself away.
        self._learn_requests(row, outcome, sigmoid(log_odds))
        cell = slot * self.max_depth + position
        size = self._new_graded.size
        self._new_graded += np.bincount(cell, minlength=size)
        self._new_accepted += np.bincount(cell, outcome, size)
        self._new_tokens += total
        self.seen_tokens += total
        if self._new_tokens >= min(_FOLD_TOKENS, 8 + self.seen_tokens // 8):
            self.fold()
        return run, position, outcome, predicted

    def fold(self) -> None:
        """Let the counts since the last fold act on predictions; done every 64 graded tokens, sooner at first."""
        if not self._new_tokens:
            return
        n = self.n_open
        new_graded = self._new_graded[: n * self.max_depth].reshape(n, self.max_depth)
        new_accepted = self._new_accepted[: n * self.max_depth].reshape(n, self.max_depth)
        per_slot = new_graded @ self._ones
        keep = np.exp(per_slot * (-1.0 / self.window_tokens))[:, None]
        self.graded[:n] *= keep
        self.graded[:n] += new_graded
        self.accepted[:n] *= keep
        self.accepted[:n] += new_accepted
        for pool in set(self.pool[:n].tolist()):
            mine = (self.pool[:n] == pool).astype(np.float64)
            keep_pool = math.exp(-(mine @ per_slot) / (_POOL_MEMORY * self.window_tokens))
            self.pool_graded[pool] = self.pool_graded[pool] * keep_pool + mine @ new_graded
            self.pool_accepted[pool] = self.pool_accepted[pool] * keep_pool + mine @ new_accepted
        self._new_graded[:] = 0.0
        self._new_accepted[:] = 0.0
        self._new_tokens = 0
        self._refresh()

    def state(self) -> dict[str, Any]:
        """Return counts as arrays; predictions after `load` are bitwise the same."""
        counts = {name: getattr(self, name).copy() for name in _STATE}
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {**counts, **numbers}

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
        for name in _STATE:
            setattr(self, name, np.array(state[name], dtype=getattr(self, name).dtype))
        for name in _NUMBERS:
            setattr(self, name, int(state[name]))

    def _learn_requests(self, row: IntArray, outcome: FloatArray, expected: FloatArray) -> None:
        size = self.request_graded.shape[0]
        count = np.bincount(row, minlength=size)
        keep = np.exp(count * (-1.0 / self.request_window_tokens))
        self.request_graded *= keep
        self.request_graded += count
        self.request_accepted *= keep
        self.request_accepted += np.bincount(row, outcome, size)
        self.request_expected *= keep
        self.request_expected += np.bincount(row, expected, size)
        self.request_offset = _offset(
            self.request_accepted,
            self.request_graded,
            self.request_expected,
            self.request_shrinkage,
        )

    def _refresh(self) -> None:
        """Recompute the log-odds of a cold request in every open slot from the counts."""
        n, weight = self.n_open, self.slot_shrinkage
        graded, accepted, pools = self.graded[:n], self.accepted[:n], self.pool[:n]
        pool_mean = (self.pool_accepted + _PRIOR_TOKENS * _PRIOR_MEAN) / (
            self.pool_graded + _PRIOR_TOKENS
        )
        pool_mean = pool_mean[pools]
        offset = _offset(
            accepted @ self._ones,
            graded @ self._ones,
            (graded * pool_mean) @ self._ones,
            weight,
        )
        prior = sigmoid(logit(pool_mean) + offset[:, None])
        self.log_odds[:n] = np.log(
            (accepted + weight * prior + _TINY)
            / (graded - accepted + weight * (1.0 - prior) + _TINY)
        )


_STATE = (
    "accepted",
    "graded",
    "pool",
    "pool_accepted",
    "pool_graded",
    "log_odds",
    "_new_graded",
    "_new_accepted",
    "request_accepted",
    "request_graded",
    "request_expected",
    "request_offset",
)
_NUMBERS = ("_new_tokens", "seen_tokens", "n_open")


def _offset(
    accepted: FloatArray, graded: FloatArray, expected: FloatArray, shrinkage: float
) -> FloatArray:
    """Return the log-odds by which acceptance exceeds what was expected, shrunk towards 0."""
    mean = expected / np.maximum(graded, _TINY)
    odds_seen = (accepted + shrinkage * mean + _TINY) / (
        graded - accepted + shrinkage * (1.0 - mean) + _TINY
    )
    odds_expected = (expected + _TINY) / (graded - expected + _TINY)
    return np.where(graded > _TINY, np.log(odds_seen / odds_expected), 0.0)
