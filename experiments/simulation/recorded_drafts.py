"""Drafts of a simulation that were recorded, and are played again at every offset."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import IntArray


class RecordedDrafts:
    """Drafts as they would have been at every output offset of recorded requests.

    Parameters
    ----------
    start
        Shape (n,): where each request's offsets begin in ``length`` and ``run``.
    length, run
        Per output offset: tokens that the drafter proposes there, and how many are right.
    max_depth
        The engine's; longer drafts are cut.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> drafts = RecordedDrafts(int_array([0, 2]), int_array([0, 3, 3]), int_array([0, 3, 1]), 2)
    >>> [a.tolist() for a in drafts.draw(int_array([0, 1]), int_array([1, 0]), 0.0)]
    [[2, 2], [2, 1]]
    """

    def __init__(self, start: IntArray, length: IntArray, run: IntArray, max_depth: int) -> None:
        if length.shape != run.shape:
            raise ValueError(f"length and run must pair, got {length.shape} and {run.shape}")
        if (run > length).any() or (run < 0).any():
            raise ValueError("run must be in [0, length], got a run outside")
        self.max_depth = max_depth
        self._start = np.ascontiguousarray(start, dtype=np.int64)
        self._length = np.minimum(length, max_depth).astype(np.int64)
        self._run = np.minimum(run, max_depth).astype(np.int64)

    def draw(self, rows: IntArray, offsets: IntArray, now_s: float) -> tuple[IntArray, IntArray]:
        """Return length and run of the recorded drafts, whatever the time."""
        at = self._start[rows] + offsets
        return self._length[at], self._run[at]
