"""How many tokens a drafter proposes: n-gram lookup often finds fewer than asked, or none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_PRIOR_DRAFTS = 4.0
_STATE = ("drafts", "reached")


class DraftLength:
    """P(a draft has at least i tokens), per slot and position.

    Parameters
    ----------
    n_slots, max_depth
        Rows and positions.
    window_drafts
        Drafts after which a slot's evidence has decayed to 1/e.

    Examples
    --------
    >>> lengths = DraftLength(n_slots=1, max_depth=3, window_drafts=1000.0)
    >>> for _ in range(2000):
    ...     lengths.learn(np.array([0, 0]), np.array([0, 2]))
    >>> lengths.reach(np.array([0])).round(1).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def __init__(self, n_slots: int, max_depth: int, *, window_drafts: float = 200.0) -> None:
        self.window_drafts = window_drafts
        self.drafts = np.zeros(n_slots)
        self.reached = np.zeros((n_slots, max_depth))

    def learn(self, slots: IntArray, lengths: IntArray) -> None:
        """Add drafts of the given lengths (0 where the drafter found nothing)."""
        _learn(self.drafts, self.reached, slots, lengths, math.exp(-1.0 / self.window_drafts))

    def reach(self, slots: IntArray) -> FloatArray:
        """Return P(length >= i), shape ``(n, max_depth)``; 1 before there is evidence."""
        drafts = self.drafts[slots][:, None]
        return (self.reached[slots] + _PRIOR_DRAFTS) / (drafts + _PRIOR_DRAFTS)

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.drafts[slot] = 0.0
        self.reached[slot] = 0.0

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


@compiled("void(f8[::1], f8[:,::1], i8[::1], i8[::1], f8)")
def _learn(
    drafts: FloatArray, reached: FloatArray, slots: IntArray, lengths: IntArray, keep: float
) -> None:
    for d in range(slots.shape[0]):
        slot = slots[d]
        drafts[slot] = drafts[slot] * keep + 1.0
        for i in range(reached.shape[1]):
            reached[slot, i] = reached[slot, i] * keep + (1.0 if lengths[d] > i else 0.0)
