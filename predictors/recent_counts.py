"""What was accepted lately, per slot and position, for whoever is told how long ago that began."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_EVERY_TOKENS = 24.0
_MARKS = 48


class RecentCounts:
    """Accepted and graded tokens since a moment in a slot's past, a few tokens apart.

    Counts only rise; every 24 tokens a mark is set, and the difference to a mark is what came
    since. Changes that lie further back than 48 marks are counted from the first of them.

    Parameters
    ----------
    n_slots, max_depth
        As of `AcceptanceTable`.

    Examples
    --------
    >>> counts, slot, zero = RecentCounts(1, 2), np.array([0]), np.array([0])
    >>> for step in range(200):
    ...     right = np.array([step >= 100], dtype=np.int64)
    ...     counts.learn(slot, zero, np.array([1]), right, np.array([1]))
    >>> accepted, graded = counts.since(0, tokens=90.0)
    >>> accepted.tolist(), graded.tolist()
    ([79.0, 0.0], [79.0, 0.0])
    """

    def __init__(self, n_slots: int, max_depth: int) -> None:
        self.counts = np.zeros((n_slots, 2, max_depth))
        self.tokens = np.zeros(n_slots)
        self.marks = np.zeros((n_slots, _MARKS, 2, max_depth))
        self.marked_at = np.zeros((n_slots, _MARKS))
        self.set_marks = np.zeros(n_slots, dtype=np.int64)

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        for array in (self.counts, self.tokens, self.marks, self.marked_at, self.set_marks):
            array[slot] = 0

    def learn(
        self, slots: IntArray, start: IntArray, graded: IntArray, matched: IntArray, fresh: IntArray
    ) -> None:
        """Count runs of graded tokens, arrays as of `AcceptanceTable.learn`.

        ``fresh`` says how many of each run's tokens had graded no draft before: these are counted
        as the slot's tokens.
        """
        _count(
            self.counts,
            self.tokens,
            self.marks,
            self.marked_at,
            self.set_marks,
            slots,
            start,
            graded,
            matched,
            fresh,
        )

    def since(self, slot: int, tokens: float) -> tuple[FloatArray, FloatArray]:
        """Return accepted and graded of about the latest ``tokens``, each of shape (max_depth,).

        Not more: the mark that is taken lies behind that moment, if there is one.
        """
        known = min(int(self.set_marks[slot]), _MARKS)
        began = self.tokens[slot] - tokens
        if not known:
            return self.counts[slot, 0].copy(), self.counts[slot, 1].copy()
        last = int(self.set_marks[slot])
        order = np.arange(last - known, last) % _MARKS
        behind = np.flatnonzero(self.marked_at[slot, order] >= began)
        mark = order[behind[0]] if behind.size else order[-1]
        accepted, graded = self.counts[slot] - self.marks[slot, mark]
        return accepted, graded

    def state(self) -> dict[str, Any]:
        """Return everything as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another shape.
        """
        shape = np.asarray(state["marks"]).shape
        if shape != self.marks.shape:
            raise ValueError(f"marks must be {self.marks.shape}, got {shape}")
        load_arrays(self, _STATE, state)


_STATE = ("counts", "tokens", "marks", "marked_at", "set_marks")


@compiled(
    "void(f8[:,:,::1], f8[::1], f8[:,:,:,::1], f8[:,::1], i8[::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])"
)
def _count(
    counts: FloatArray,
    tokens: FloatArray,
    marks: FloatArray,
    marked_at: FloatArray,
    set_marks: IntArray,
    slots: IntArray,
    start: IntArray,
    graded: IntArray,
    matched: IntArray,
    fresh: IntArray,
) -> None:
    for r in range(slots.shape[0]):
        slot = slots[r]
        for i in range(graded[r]):
            counts[slot, 1, start[r] + i] += 1.0
            if i < matched[r]:
                counts[slot, 0, start[r] + i] += 1.0
        tokens[slot] += fresh[r]
        latest = (set_marks[slot] - 1) % _MARKS
        if set_marks[slot] == 0 or tokens[slot] >= marked_at[slot, latest] + _EVERY_TOKENS:
            mark = set_marks[slot] % _MARKS
            marks[slot, mark] = counts[slot]
            marked_at[slot, mark] = tokens[slot]
            set_marks[slot] += 1
