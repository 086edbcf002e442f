"""How many tokens a drafter proposes: n-gram lookup often finds fewer than asked, or none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_PRIOR_DRAFTS = 4.0
_STATE = ("tried", "reached")


class DraftLength:
    """P(a draft has at least i tokens), per slot and position, from drafts that may be cut short.

    A draft as long as was asked says nothing of how it would go on: it is censored there. So each
    position keeps the share of drafts that got there among those that could, and the product of
    these shares is the survival of a draft's length (Kaplan and Meier, 1958). A position forgets by
    the drafts that it sees itself: one that nobody asks for stays as it was.

    Parameters
    ----------
    n_slots, max_depth
        Rows and positions.
    window_drafts
        Drafts after which a position's evidence has decayed to 1/e.

    Examples
    --------
    >>> lengths = DraftLength(n_slots=1, max_depth=3, window_drafts=1000.0)
    >>> two = np.array([0, 0])
    >>> for _ in range(2000):
    ...     lengths.learn(two, np.array([0, 2]), asked=np.array([3, 2]))
    >>> lengths.reach(np.array([0])).round(1).tolist()  # nobody saw a draft of two end there
    [[0.5, 0.5, 0.5]]
    """

    def __init__(self, n_slots: int, max_depth: int, *, window_drafts: float = 1000.0) -> None:
        self.window_drafts = window_drafts
        self.tried = np.zeros((n_slots, max_depth))
        self.reached = np.zeros((n_slots, max_depth))

    def learn(self, slots: IntArray, lengths: IntArray, asked: IntArray) -> None:
        """Add drafts.

        Parameters
        ----------
        slots
            Shape (d,).
        lengths
            Shape (d,): tokens proposed, 0 where the drafter found nothing.
        asked
            Shape (d,): tokens it was asked for; 0 if no draft was asked for, which says nothing.
        """
        _learn(self.tried, self.reached, slots, lengths, asked, math.exp(-1.0 / self.window_drafts))

    def reach(self, slots: IntArray) -> FloatArray:
        """Return P(length >= i), shape ``(n, max_depth)``; 1 before there is evidence."""
        shares = (self.reached[slots] + _PRIOR_DRAFTS) / (self.tried[slots] + _PRIOR_DRAFTS)
        reach: FloatArray = shares.cumprod(axis=1)
        return reach

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.tried[slot] = 0.0
        self.reached[slot] = 0.0

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state, finite=True)


@compiled("void(f8[:,::1], f8[:,::1], i8[::1], i8[::1], i8[::1], f8)")
def _learn(
    tried: FloatArray,
    reached: FloatArray,
    slots: IntArray,
    lengths: IntArray,
    asked: IntArray,
    keep: float,
) -> None:
    for d in range(slots.shape[0]):
        slot = slots[d]
        for i in range(min(asked[d], lengths[d] + 1, tried.shape[1])):
            tried[slot, i] = tried[slot, i] * keep + 1.0
            reached[slot, i] = reached[slot, i] * keep + (1.0 if lengths[d] > i else 0.0)
