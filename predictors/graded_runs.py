"""Rows of a log as runs that learners take; what cannot be a run is dropped by name."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray

REASONS = (
    "not a number",
    "infinite",
    "negative",
    "too large",
    "more accepted than drafted",
)
"""Why a row is dropped: the first that holds."""


class Runs(NamedTuple):
    """Graded runs, each of shape (d,), as `AcceptanceTable.learn` takes them."""

    slots: IntArray
    rows: IntArray
    start: IntArray
    graded: IntArray
    matched: IntArray


class GradedRuns:
    """Checks rows from outside before learners see them.

    An engine's own counts are whole numbers in range. Those of a log, a client or a spreadsheet may
    be anything, and compiled learners index arrays with them.

    Parameters
    ----------
    n_slots, n_rows, max_depth
        Slots, request rows and positions of the learners.

    Examples
    --------
    >>> runs = GradedRuns(n_slots=1, n_rows=4, max_depth=3)
    >>> kept = runs.take(np.array([[0, 1, 0, 3, 2], [0, 1, 0, np.nan, 0], [0, 2, 0, 1, 2]]))
    >>> kept.graded.tolist(), dict(runs.dropped)
    ([3], {'not a number': 1, 'more accepted than drafted': 1})
    """

    def __init__(self, n_slots: int, n_rows: int, max_depth: int) -> None:
        self.taken = 0
        self._limits = np.array([n_slots - 1, n_rows - 1, max_depth, max_depth, max_depth])
        self._counts = np.zeros(len(REASONS), dtype=np.int64)

    @property
    def dropped(self) -> Counter[str]:
        """Rows that were dropped, by reason."""
        named = zip(REASONS, self._counts.tolist(), strict=True)
        return Counter({reason: count for reason, count in named if count})

    def take(self, table: FloatArray) -> Runs:
        """Return the rows that can be learned from.

        Parameters
        ----------
        table
            Shape (d, 5): slot, request row, positions before the run, graded tokens, and how many
            of them were accepted. Fractions are cut off.

        Raises
        ------
        ValueError
            The table has another number of columns.
        """
        if table.ndim != 2 or table.shape[1] != len(Runs._fields):
            raise ValueError(f"table must have {len(Runs._fields)} columns, got {table.shape}")
        kept = _sift(np.ascontiguousarray(table, dtype=np.float64), self._limits, self._counts)
        self.taken += kept.shape[1]
        return Runs(*kept)


@compiled("i8[:,::1](f8[:,::1], i8[::1], i8[::1])")
def _sift(table: FloatArray, limits: IntArray, counts: IntArray) -> IntArray:
    n_columns = table.shape[1]
    fits = np.empty(table.shape[0], dtype=np.int64)
    kept = 0
    for d in range(table.shape[0]):
        nan, infinite, negative, large = False, False, False, False
        for c in range(n_columns):
            value = table[d, c]
            nan = nan or np.isnan(value)
            infinite = infinite or np.isinf(value)
            negative = negative or value < 0.0
            large = large or value >= limits[c] + 1
        large = large or table[d, 2] + table[d, 3] >= limits[3] + 1
        if nan:
            counts[0] += 1
        elif infinite:
            counts[1] += 1
        elif negative:
            counts[2] += 1
        elif large:
            counts[3] += 1
        elif int(table[d, 4]) > int(table[d, 3]):
            counts[4] += 1
        else:
            fits[kept] = d
            kept += 1
    result = np.empty((n_columns, kept), dtype=np.int64)
    for k in range(kept):
        for c in range(n_columns):
            result[c, k] = int(table[fits[k], c])
    return result
