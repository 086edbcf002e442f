"""How good predictions are, per slot: what was predicted, what was seen, and the Brier score."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.numerics import FloatArray, IntArray

_COLUMNS = 4  # tokens, predicted, seen, squared error


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
    >>> calibration.learn(np.array([0, 0]), np.array([0.5, 0.5]), np.array([1.0, 0.0]))
    >>> calibration.means(0)
    (0.5, 0.5, 0.25)
    """

    def __init__(self, n_slots: int, *, window_tokens: float = 400.0) -> None:
        self.n_slots = n_slots
        self.window_tokens = window_tokens
        self.sums = np.zeros((n_slots, _COLUMNS))
        self.graded_tokens = np.zeros(n_slots, dtype=np.int64)
        self.accepted_tokens = np.zeros(n_slots, dtype=np.int64)

    def learn(self, slots: IntArray, predicted: FloatArray, outcome: FloatArray) -> None:
        """Add graded tokens: their slots, predicted probabilities and outcomes (0 or 1)."""
        n = self.n_slots
        count = np.bincount(slots, minlength=n)
        accepted = np.bincount(slots, outcome, n)
        self.sums *= np.exp(count * (-1.0 / self.window_tokens))[:, None]
        self.sums[:, 0] += count
        self.sums[:, 1] += np.bincount(slots, predicted, n)
        self.sums[:, 2] += accepted
        self.sums[:, 3] += np.bincount(slots, (outcome - predicted) ** 2, n)
        self.graded_tokens += count
        self.accepted_tokens += accepted.astype(np.int64)

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
        return {
            "sums": self.sums.copy(),
            "graded_tokens": self.graded_tokens.copy(),
            "accepted_tokens": self.accepted_tokens.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.sums = np.array(state["sums"], dtype=np.float64)
        self.graded_tokens = np.array(state["graded_tokens"], dtype=np.int64)
        self.accepted_tokens = np.array(state["accepted_tokens"], dtype=np.int64)
