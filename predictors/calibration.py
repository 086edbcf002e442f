"""How good predictions are, per slot: what was predicted, what was seen, and the Brier score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_COLUMNS = 4  # graded tokens, sums of predictions, outcomes and squared errors
_STATE = ("sums", "graded_tokens", "accepted_tokens")


class Calibration:
    """Discounted means of predictions, outcomes and squared errors, and undiscounted counts.

    Parameters
    ----------
    n_slots
        Rows.
    window_tokens
        Graded tokens after which a slot's evidence has decayed to 1/e.

    Examples
    --------
    >>> calibration = Calibration(n_slots=1)
    >>> calibration.learn(np.array([[2.0, 1.0, 1.0, 0.5]]))
    >>> calibration.means(0)
    (0.5, 0.5, 0.25)
    """

    def __init__(self, n_slots: int, *, window_tokens: float = 400.0) -> None:
        self.window_tokens = window_tokens
        self.sums = np.zeros((n_slots, _COLUMNS))
        self.graded_tokens = np.zeros(n_slots, dtype=np.int64)
        self.accepted_tokens = np.zeros(n_slots, dtype=np.int64)

    def learn(self, sums: FloatArray) -> None:
        """Add a step's sums, shape ``(n_slots, >= 4)``: tokens, predictions, outcomes, squares."""
        keep = math.exp(-1.0 / self.window_tokens)
        _learn(self.sums, self.graded_tokens, self.accepted_tokens, sums, keep)

    def means(self, slot: int) -> tuple[float, float, float] | None:
        """Return predicted mean, seen mean and Brier score; None before the first graded token."""
        tokens, predicted, seen, squared = self.sums[slot].tolist()
        if tokens <= 0:
            return None
        return predicted / tokens, seen / tokens, squared / tokens

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.sums[slot] = 0.0
        self.graded_tokens[slot] = 0
        self.accepted_tokens[slot] = 0

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state, finite=True)


@compiled("void(f8[:,::1], i8[::1], i8[::1], f8[:,::1], f8)")
def _learn(
    sums: FloatArray, graded: IntArray, accepted: IntArray, step: FloatArray, keep: float
) -> None:
    for slot in range(sums.shape[0]):
        if step[slot, 0] > 0.0:
            fade = keep ** step[slot, 0]
            for column in range(_COLUMNS):
                sums[slot, column] = sums[slot, column] * fade + step[slot, column]
            graded[slot] += int(step[slot, 0])
            accepted[slot] += int(step[slot, 2])
