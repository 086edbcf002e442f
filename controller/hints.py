"""What the drafter said of its drafts, kept until their fate is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import Candidates, FloatArray, IntArray
from acclimate.predictors.acceptance_codes import confidence_hint
from acclimate.predictors.compiled import compiled
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
        self._reserve(int(rows.max(initial=0)) + 1)
        place = step % _KEPT
        self.step[place] = step
        return _note(
            self.codes[place],
            rows,
            candidates.request,
            candidates.depth,
            candidates.confidence,
        )

    def of(self, rows: IntArray, drafted_by: IntArray) -> IntArray | None:
        """Return hints of drafts, shape (d, max_depth), 0 where forgotten; None if none were kept.

        Parameters
        ----------
        rows, drafted_by
            Shape (d,): the request's row, and the step before the one that had the draft at hand.
        """
        if not self.codes.shape[1]:
            return None
        return _find(self.step, self.codes, rows, drafted_by)

    def state(self) -> dict[str, Any]:
        """Return steps and hints as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        codes = np.array(state["codes"], dtype=np.int64, order="C")
        if not codes.size:  # lists of nothing do not say of what
            codes = np.zeros((_KEPT, 0, self.max_depth), dtype=np.int64)
        if codes.ndim != 3 or codes.shape[::2] != self.codes.shape[::2]:
            raise ValueError(f"codes must be of {self.max_depth} positions, got {codes.shape}")
        load_arrays(self, ("step",), state)
        self.codes = codes

    def _reserve(self, n_rows: int) -> None:
        have = self.codes.shape[1]
        if n_rows > have:
            more = np.zeros((_KEPT, max(n_rows, 2 * have) - have, self.max_depth), dtype=np.int64)
            self.codes = np.concatenate([self.codes, more], axis=1)


@compiled("i8[:,::1](i8[:,::1], i8[::1], i8[::1], i8[::1], f8[::1])")
def _note(
    codes: IntArray, rows: IntArray, request: IntArray, depth: IntArray, confidence: FloatArray
) -> IntArray:
    """Write and return the hints of a step's candidates."""
    hints = np.zeros((rows.shape[0], codes.shape[1]), dtype=np.int64)
    for j in range(request.shape[0]):
        hints[request[j], depth[j] - 1] = confidence_hint(confidence[j])
    for r in range(rows.shape[0]):
        codes[rows[r]] = hints[r]
    return hints


@compiled("i8[:,::1](i8[::1], i8[:,:,::1], i8[::1], i8[::1])")
def _find(step: IntArray, codes: IntArray, rows: IntArray, drafted_by: IntArray) -> IntArray:
    hints = np.zeros((rows.shape[0], codes.shape[2]), dtype=np.int64)
    for d in range(rows.shape[0]):
        planned = drafted_by[d] + 1
        if drafted_by[d] >= 0 and step[planned % _KEPT] == planned and rows[d] < codes.shape[1]:
            hints[d] = codes[planned % _KEPT, rows[d]]
    return hints
