"""A step on trees before it is decided: its nodes, what they are worth, and what promises allow."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from acclimate.controller.bounds import Limited, StepBounds
from acclimate.controller.records import Candidates, FloatArray, IntArray
from acclimate.controller.select import UNWEIGHTED, Selection, select
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import load_arrays, save_arrays

_NODES = 32
_GAIN = 0.1
_STATE = ("survival",)


class TreeStep(NamedTuple):
    """What a step is decided from, for m nodes at hand.

    Parameters
    ----------
    nodes
        The nodes, with survival as it is believed before the audit.
    slots
        Shape (m,): of each.
    believed
        Shape (m,): survival with the audit's shade.
    curve
        Milliseconds with 0, 1, … m verified nodes.
    price
        Tokens per millisecond, λ.
    weights
        Shape (m,): what a token of each node's request is worth; empty where all are worth the same.
    bounds
        How long the step may be; None if nothing forbids any length.
    """

    nodes: Candidates
    slots: IntArray
    believed: FloatArray
    curve: FloatArray
    price: float
    weights: FloatArray = UNWEIGHTED
    bounds: StepBounds | None = None

    def choose(self) -> Limited:
        """Return the nodes that are worth their time, as far as promises allow."""
        worth = self.believed * self.weights if self.weights.size else self.believed
        selection = select(worth, self.curve, self.price)
        if self.bounds is None:
            return Limited(selection)
        return self.bounds.limit(selection, self.nodes, self.believed)

    def tokens(self, selection: Selection, count: int) -> float:
        """Return how many of the best ``count`` nodes are expected to be accepted."""
        if not self.weights.size:
            return selection.worth(count)
        return float(self.believed[selection.order[:count]].sum())


class TreeReach:
    """How likely the best nodes of a slot's requests are, also in steps that drafted few.

    Promises ask what a request could gain if the step were its own. A step under a tight bound drafts
    little, and its nodes alone would make the request look hopeless.

    Parameters
    ----------
    n_slots
        Slots kept apart.
    n_nodes
        Nodes per request that count.

    Examples
    --------
    >>> reach, zeros = TreeReach(n_slots=1, n_nodes=2), np.zeros(2, np.int64)
    >>> for _ in range(100):
    ...     seen = reach.look(zeros[:1], zeros, np.array([0.5, 0.9]), learn=True)
    >>> seen.tolist()
    [[0.9, 0.5]]
    >>> reach.look(zeros[:1], zeros[:1], np.array([0.6]), learn=False).round(2).tolist()
    [[0.9, 0.5]]
    """

    def __init__(self, n_slots: int, n_nodes: int = _NODES) -> None:
        self.survival = np.zeros((n_slots, n_nodes))

    def look(
        self, slots: IntArray, request: IntArray, survival: FloatArray, *, learn: bool
    ) -> FloatArray:
        """Return survival of each request's best nodes, shape (n, n_nodes), descending.

        Parameters
        ----------
        slots
            Shape (n,): of each request.
        request, survival
            Shape (m,): of each node at hand.
        learn
            Whether as many nodes were drafted as could pay.
        """
        return _look(self.survival, slots, request, survival, learn)

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.survival[slot] = 0.0

    def state(self) -> dict[str, Any]:
        """Return what was seen as an array."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


@compiled("f8[:,::1](f8[:,::1], i8[::1], i8[::1], f8[::1], b1)")
def _look(
    usual: FloatArray, slots: IntArray, request: IntArray, survival: FloatArray, learn: bool
) -> FloatArray:
    n, width = slots.shape[0], usual.shape[1]
    result = np.zeros((n, width))
    count = np.zeros(n, dtype=np.int64)
    for j in range(request.shape[0]):
        r, value = request[j], survival[j]
        place = min(count[r], width)
        if place == width:
            place -= 1
            if value <= result[r, place]:
                continue
        else:
            count[r] += 1
        while place > 0 and result[r, place - 1] < value:
            result[r, place] = result[r, place - 1]
            place -= 1
        result[r, place] = value
    for r in range(n):
        s = slots[r]
        for i in range(width):
            if learn and count[r] > 0:
                usual[s, i] += _GAIN * (result[r, i] - usual[s, i])
            result[r, i] = max(result[r, i], usual[s, i])
    return result
