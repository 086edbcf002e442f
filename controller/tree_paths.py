"""What a path of a draft tree is worth beyond the product of its steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import load_arrays, save_arrays

_SHRINKAGE_TOKENS = 10.0
_RANGE = (0.8, 1.25)
_STATE = ("realised", "predicted", "factor")


class PathWorth:
    """Realised over predicted survival of nodes behind the first, per slot.

    Each step of a path may be predicted right, and the path still be worth more than their product:
    where a text repeats itself, the first step is likelier than it looks and so are all behind it.
    A factor on the survival of nodes of depth 2 and more makes up for that; none becomes likelier
    than its parent.

    Parameters
    ----------
    n_slots
        Slots kept apart.
    window_tokens
        Accepted nodes behind the first after which evidence has decayed to 1/e.

    Examples
    --------
    >>> worth = PathWorth(n_slots=1)
    >>> zeros = np.zeros(2, np.int64)
    >>> for _ in range(200):
    ...     worth.learn(zeros, np.array([1, 2]), np.array([0.9, 0.5]), np.array([1, 1]), zeros + 1)
    >>> worth.apply(zeros, np.array([-1, 0]), np.array([1, 2]), np.array([0.9, 0.5])).tolist()
    [0.9, 0.625]
    """

    def __init__(self, n_slots: int, *, window_tokens: float = 400.0) -> None:
        self._fading = 1.0 / window_tokens
        self.realised = np.zeros(n_slots)
        self.predicted = np.zeros(n_slots)
        self.factor = np.ones(n_slots)

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.realised[slot] = self.predicted[slot] = 0.0
        self.factor[slot] = 1.0

    def apply(
        self, slots: IntArray, parent: IntArray, depth: IntArray, survival: FloatArray
    ) -> FloatArray:
        """Return survival with the slots' factors, shape (m,).

        Parameters
        ----------
        slots, parent, depth, survival
            Shape (m,): of each node, parents before children.
        """
        return _apply(self.factor, slots, parent, depth, survival)

    def learn(
        self,
        slots: IntArray,
        depth: IntArray,
        survival: FloatArray,
        accepted: IntArray,
        verified: IntArray,
    ) -> None:
        """Learn the fate of verified nodes, shape (m,) each; ``survival`` is without the factors."""
        _learn(
            self.realised, self.predicted, self.factor, slots, depth, survival, accepted, verified,
            self._fading,
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


@compiled("f8[::1](f8[::1], i8[::1], i8[::1], i8[::1], f8[::1])")
def _apply(
    factor: FloatArray, slots: IntArray, parent: IntArray, depth: IntArray, survival: FloatArray
) -> FloatArray:
    result = survival.copy()
    for j in range(survival.shape[0]):
        if depth[j] > 1:
            result[j] = min(survival[j] * factor[slots[j]], result[parent[j]])
    return result


@compiled("void(f8[::1], f8[::1], f8[::1], i8[::1], i8[::1], f8[::1], i8[::1], i8[::1], f8)")
def _learn(
    realised: FloatArray,
    predicted: FloatArray,
    factor: FloatArray,
    slots: IntArray,
    depth: IntArray,
    survival: FloatArray,
    accepted: IntArray,
    verified: IntArray,
    fading: float,
) -> None:
    for j in range(slots.shape[0]):
        if not verified[j] or depth[j] < 2:
            continue
        s = slots[j]
        keep = math.exp(-fading * survival[j])
        realised[s] = keep * realised[s] + accepted[j]
        predicted[s] = keep * predicted[s] + survival[j]
        ratio = (realised[s] + _SHRINKAGE_TOKENS) / (predicted[s] + _SHRINKAGE_TOKENS)
        factor[s] = min(max(ratio, _RANGE[0]), _RANGE[1])
