"""What a drafter's own probabilities are worth: corrected per domain, depth and request.

A drafter says p of a token; whether the target takes it is another matter, and differs between
domains, depths and requests. On the log-odds scale

    logit q = (a + A_slot) + (b + B_slot) · logit p + o_slot,depth + u_request

with a = 0 and b = 1 at the start, so that a drafter is believed until it is known better. Each
level learns what those above leave unexplained, by Newton steps on the discounted log likelihood
with a Gaussian prior around 0 that does not fade (online Laplace approximation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.draft_calibration_kernels import (
    DEPTH_TOKENS,
    REQUEST_TOKENS,
    TOKEN,
    conditionals_of,
    learn_nodes,
)
from acclimate.predictors.numerics import (
    FloatArray,
    IntArray,
    check_range,
    load_arrays,
    save_arrays,
    with_rows,
)

GRADE_COLUMNS = 4
"""Columns of what `DraftCalibration.learn` returns per slot: graded nodes, and sums of predictions,
outcomes and squared errors."""

_SPREAD = 4.0  # mean square of logit p, about
_POOL_TOKENS, _SLOT_TOKENS = 20.0, 20.0
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
        self._fading = 1.0 / (TOKEN * np.array(windows))
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self.pool_line = np.tile(np.array([0.0, 1.0]), (n_slots, 1))
        self.pool_weight = np.tile(_prior(_POOL_TOKENS), (n_slots, 1, 1))
        self.slot_line = np.zeros((n_slots, 2))
        self.slot_weight = np.tile(_prior(_SLOT_TOKENS), (n_slots, 1, 1))
        self.depth_offset = np.zeros((n_slots, max_depth))
        self.depth_weight = np.full((n_slots, max_depth), DEPTH_TOKENS * TOKEN)
        # Row 0 stands for requests that nobody knows, and never learns.
        self.offset = np.zeros(64)
        self.offset_weight = np.full(64, REQUEST_TOKENS * TOKEN)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        self.offset = with_rows(self.offset, n_requests)
        self.offset_weight = with_rows(self.offset_weight, n_requests, REQUEST_TOKENS * TOKEN)

    def open_slot(self, slot: int, pool: int) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self.pool[slot] = pool
        self.slot_line[slot] = 0.0
        self.slot_weight[slot] = _prior(_SLOT_TOKENS)
        self.depth_offset[slot] = 0.0
        self.depth_weight[slot] = DEPTH_TOKENS * TOKEN

    def open_request(self, row: int) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.offset[row] = 0.0
        self.offset_weight[row] = REQUEST_TOKENS * TOKEN

    def shake(self) -> None:
        """Doubt what was learned: it still predicts, and gives way to a little new evidence."""
        for weight, prior in (
            (self.pool_weight, _prior(_POOL_TOKENS)),
            (self.slot_weight, _prior(_SLOT_TOKENS)),
            (self.depth_weight, np.array(DEPTH_TOKENS * TOKEN)),
        ):
            weight[:] = prior + _SHAKEN * (weight - prior)
        self.offset[:] = 0.0
        self.offset_weight[:] = REQUEST_TOKENS * TOKEN

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
        self.depth_weight[slot] = DEPTH_TOKENS * TOKEN
        # The pool has learned these nodes before.
        pool_line, pool_weight = self.pool_line.copy(), self.pool_weight.copy()
        offset[own], weight[own] = 0.0, REQUEST_TOKENS * TOKEN
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
        return conditionals_of(
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
        learn_nodes(
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
        check_range("pool", state["pool"], 0, self.pool.shape[0] - 1)
        load_arrays(self, _STATE, state, growing=("offset", "offset_weight"), finite=True)


def _prior(tokens: float) -> FloatArray:
    return np.diag([tokens * TOKEN, tokens * TOKEN * _SPREAD])
