"""Acceptance of draft tokens: discounted counts per slot and position, shrunk level by level.

The model, on the log-odds scale: ``logit q = b_position + u_slot + v_request`` where a slot is a
traffic domain. A position's pool gives ``b``; a slot's and a request's offset compare what was
accepted with what the level above expected, shrunk by pseudo-tokens (a request's by how much the
requests of its slot differ); a slot's own counts per position then correct the sum. The request is the unit of prediction, its slot the
prior of a cold request.

No memory is right for every moment: a short one is right soon after a shift, a long one is exact
while nothing shifts. So each slot keeps its counts with several memories, and mixes their
predictions by how well each predicted the latest tokens (fixed share, Herbster and Warmuth, 1998).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.acceptance_kernels import (
    GRADE_COLUMNS,
    PRIOR_MEAN,
    learn_runs,
    pool_mean_of,
    refresh_slot,
    survival_of,
)
from acclimate.predictors.numerics import (
    FloatArray,
    IntArray,
    check_range,
    load_arrays,
    save_arrays,
    with_rows,
)

_MEMORIES = (0.25, 2.0, 16.0)  # in windows; the last is the pool's as well
_SPREAD_TOKENS = 40_000.0  # squared: 25 looks at requests of 40 tokens
_KEPT_TOKENS = 2.0  # of old evidence per position that an alarm leaves
_SHAKEN_TOKENS = 20.0  # of evidence that a declared change leaves


class AcceptanceTable:
    """Conditional acceptance q per (slot, position), and each request's own offset.

    Parameters
    ----------
    n_slots
        Rows of the table.
    max_depth
        Positions, 1 to ``max_depth`` (column 0 is position 1).
    window_tokens
        Graded tokens after which evidence has decayed to 1/e: the shortest memory is a quarter of
        it, the longest sixteen times as long.
    request_window_tokens
        The same for a request's own history.
    slot_shrinkage
        Pseudo-tokens that hold a slot to its pool.
    request_shrinkage
        Pseudo-tokens that hold a request to its slot, until it is known how requests differ.

    Examples
    --------
    >>> table = AcceptanceTable(n_slots=2, max_depth=3)
    >>> none, one = np.array([0]), np.array([1])
    >>> for _ in range(300):
    ...     _ = table.learn(none, one, start=none, graded=one + 1, matched=one)
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
        request_shrinkage: float = 12.0,
    ) -> None:
        self.n_slots = n_slots
        self.max_depth = max_depth
        self.window_tokens = window_tokens
        self.request_window_tokens = request_window_tokens
        self._keep_request = math.exp(-1.0 / request_window_tokens)
        self.slot_shrinkage = slot_shrinkage
        shape, memories = (n_slots, max_depth), len(_MEMORIES)
        self.accepted = np.zeros((memories, *shape))
        self.graded = np.zeros((memories, *shape))
        self.by_memory = np.full((memories, *shape), PRIOR_MEAN)
        self.weight = np.full((n_slots, memories), 1.0 / memories)
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self.pool_accepted = np.zeros(shape)
        self.pool_graded = np.zeros(shape)
        self.log_odds = np.full(shape, math.log(PRIOR_MEAN / (1.0 - PRIOR_MEAN)))
        self._keep = np.exp(-1.0 / (window_tokens * np.array(_MEMORIES)))
        # Variance between a slot's requests, as a ratio of two sums.
        self.spread = np.zeros((n_slots, 2))
        self._spread_prior = _SPREAD_TOKENS * np.array([0.24 / (request_shrinkage + 1.0), 1.0])
        self.spread[:] = self._spread_prior
        self._whole_influence = np.ones(n_slots)
        # Per request row: accepted, graded, expected by its slot, variance of chance; and the
        # offset that follows.
        self.history = np.zeros((0, 4))
        self.offset = np.zeros(0)
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        self.history = with_rows(self.history, n_requests)
        self.offset = with_rows(self.offset, n_requests)

    def open_slot(self, slot: int, pool: int) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self.accepted[:, slot] = 0.0
        self.graded[:, slot] = 0.0
        self.weight[slot] = 1.0 / len(_MEMORIES)
        self.spread[slot] = self._spread_prior
        self.pool[slot] = pool
        self._refresh(slot)

    def open_request(self, row: int) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.history[row] = 0.0
        self.offset[row] = 0.0

    def catch_up(self, slot: int) -> None:
        """Give all of a slot's memories the evidence of the shortest: older evidence is in doubt.

        If the doubt was unfounded, little is lost: what remains is noisier, and still unbiased.
        """
        self.accepted[1:, slot] = self.accepted[0, slot]
        self.graded[1:, slot] = self.graded[0, slot]
        self.weight[slot] = 1.0 / len(_MEMORIES)
        self._refresh(slot)

    def begin_at(self, slot: int, accepted: FloatArray, graded: FloatArray) -> None:
        """Put what came since a change in the place of a slot's evidence, in all its memories.

        A few tokens of the old evidence stay. The slot's old share of its pool goes as well: where
        it made most of it, the pool is as outdated.

        Parameters
        ----------
        accepted, graded
            Shape (max_depth,): counted since the change, per position.
        """
        pool = int(self.pool[slot])
        old_accepted, old_graded = self.accepted[-1, slot].copy(), self.graded[-1, slot].copy()
        left = np.minimum(_KEPT_TOKENS / np.maximum(old_graded, _KEPT_TOKENS), 1.0)
        new_accepted, new_graded = accepted + left * old_accepted, graded + left * old_graded
        self.pool_graded[pool] = np.maximum(self.pool_graded[pool] - old_graded, 0.0) + new_graded
        self.pool_accepted[pool] = np.clip(
            self.pool_accepted[pool] - old_accepted + new_accepted, 0.0, self.pool_graded[pool]
        )
        self.accepted[:, slot] = new_accepted
        self.graded[:, slot] = new_graded
        self.weight[slot] = 1.0 / len(_MEMORIES)
        self._refresh(slot)

    def shake(self, tokens: float = _SHAKEN_TOKENS) -> None:
        """Keep ``tokens`` of evidence per slot and pool at most: what was learned may be over."""
        for counts, hits in ((self.graded, self.accepted), (self.pool_graded, self.pool_accepted)):
            share = np.minimum(tokens / np.maximum(counts.sum(axis=-1, keepdims=True), tokens), 1.0)
            counts *= share
            hits *= share
        self.weight[:] = 1.0 / len(_MEMORIES)
        self.history[:] = 0.0
        self.offset[:] = 0.0
        for slot in range(self.n_slots):
            self._refresh(slot)

    def evidence(self, slots: IntArray) -> FloatArray:
        """Return graded tokens per position that a slot's predictions rest on, ``(n, max_depth)``.

        A pool's, which a position keeps while nobody verifies it.
        """
        tokens: FloatArray = self.pool_graded[self.pool[slots]]
        return tokens

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
        influence: FloatArray | None = None,
    ) -> FloatArray:
        """Learn runs of graded tokens, one run per entry of the arrays.

        Parameters
        ----------
        slots, rows
            Shape (d,): slot and request row of each run; row 0, an unknown request's, is passed over.
        start, graded, matched
            Shape (d,): positions ``start + 1 … start + graded`` became known, the first
            ``matched`` of them accepted.
        influence
            Shape (n_slots,), in [0, 1]: what a slot's tokens count in its pool; None for 1.

        Returns
        -------
        FloatArray
            Shape (n_slots, 5): what was predicted before learning against what was seen, in sums
            per slot; see `GRADE_COLUMNS`.
        """
        sums = np.zeros((self.n_slots, GRADE_COLUMNS))
        fits = learn_runs(
            self.log_odds,
            self.by_memory,
            self.weight,
            self.accepted,
            self.graded,
            self.pool,
            self.pool_accepted,
            self.pool_graded,
            self.history,
            self.offset,
            self.spread,
            slots,
            rows,
            start,
            graded,
            matched,
            self._whole_influence if influence is None else influence,
            self._keep,
            float(self._keep[-1]),
            self._keep_request,
            self.slot_shrinkage,
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
            The state is of another shape, or holds a value that cannot be.
        """
        check_range("pool", state["pool"], 0, self.n_slots - 1)
        if np.asarray(state["history"]).shape[:1] != np.asarray(state["offset"]).shape:
            raise ValueError("history and offset must be of as many requests")
        load_arrays(self, _STATE, state, growing=("history", "offset"), finite=True)

    def _refresh(self, slot: int) -> None:
        refresh_slot(
            self.log_odds,
            self.by_memory,
            self.weight,
            self.accepted,
            self.graded,
            pool_mean_of(self.pool_accepted, self.pool_graded, int(self.pool[slot])),
            slot,
            self.slot_shrinkage,
        )


_STATE = (
    "accepted",
    "graded",
    "by_memory",
    "weight",
    "pool",
    "pool_accepted",
    "pool_graded",
    "log_odds",
    "history",
    "offset",
    "spread",
)
