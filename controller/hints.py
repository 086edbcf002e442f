"""What the drafter said of its drafts, kept until their fate is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import Candidates, IntArray
from acclimate.predictors.acceptance_codes import confidence_hints
from acclimate.predictors.numerics import load_arrays, save_arrays

_KEPT = 16  # steps; a draft is graded as far as later tokens reach
_STATE = ("step", "codes")


class DraftHints:
    """Hints of the drafts at hand, by the step that planned with them and the request's row.

    Nothing is kept, and nothing costs, until a drafter says how sure it is.

    Parameters
    ----------
    max_depth
        Positions.
    """

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.step = np.full(_KEPT, -1)
        self.codes = np.zeros((_KEPT, 0, max_depth), dtype=np.int64)

    def note(self, step: int, rows: IntArray, candidates: Candidates | None) -> IntArray | None:
        """Keep a step's hints, and return them, shape (n, max_depth); None where there are none.

        Parameters
        ----------
        step
            Number of the step that is planned.
        rows
            Shape (n,): the requests' rows.
        candidates
            The drafts at hand.
        """
        if candidates is None or candidates.confidence is None:
            return None
        hints = np.zeros((rows.shape[0], self.max_depth), dtype=np.int64)
        hints[candidates.request, candidates.depth - 1] = confidence_hints(candidates.confidence)
        self._reserve(int(rows.max(initial=0)) + 1)
        place = step % _KEPT
        self.step[place] = step
        self.codes[place, rows] = hints
        return hints

    def of(self, rows: IntArray, drafted_by: IntArray) -> IntArray | None:
        """Return hints of drafts, shape (d, max_depth), 0 where forgotten; None if none were kept.

        Parameters
        ----------
        rows, drafted_by
            Shape (d,): the request's row, and the step before the one that had the draft at hand.
        """
        if not self.codes.shape[1]:
            return None
        steps = drafted_by + 1
        place = steps % _KEPT
        known = (self.step[place] == steps) & (drafted_by >= 0) & (rows < self.codes.shape[1])
        hints: IntArray = np.where(known[:, None], self.codes[place, np.where(known, rows, 0)], 0)
        return hints

    def state(self) -> dict[str, Any]:
        """Return steps and hints as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)

    def _reserve(self, n_rows: int) -> None:
        have = self.codes.shape[1]
        if n_rows > have:
            more = np.zeros((_KEPT, max(n_rows, 2 * have) - have, self.max_depth), dtype=np.int64)
            self.codes = np.concatenate([self.codes, more], axis=1)
