"""What it costs that rows of a step are filled up to the widest, and which nodes are worth it.

An engine that computes requests side by side fills the smaller trees up, wholly or in its attention:
a node that makes the widest tree wider costs a place in every row. Whether it does, and how much, is
learned from the steps.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from acclimate.controller.records import FloatArray, IntArray, NodeOutcomes
from acclimate.controller.select_kernels import descending
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import geometric_buckets, load_arrays, save_arrays

_WINDOW_STEPS = 400.0
_FAR_STEPS = 4.0  # what is so many deviations off is a stall's
_STATE = ("scale", "line", "sums")


class Filled(NamedTuple):
    """Nodes as wide rows leave them.

    ``believed``, shape (m,), is 0 for nodes that would make a row wider than it pays; ``curve``,
    shape (m + 1,), are the milliseconds with the best 0, 1, … m of them, filling included.
    """

    believed: FloatArray
    curve: FloatArray


class RowFilling:
    """Learns the milliseconds of a place that is only filled up, and cuts trees that are too wide.

    Regression of what a step took beyond its prediction on its filled places, each of which is first
    freed of what its number of requests and verified nodes explains. Until that is certain, a place
    costs nothing; it never costs more than a node.

    Parameters
    ----------
    max_requests
        Largest number of requests kept apart.

    Examples
    --------
    >>> filling = RowFilling(max_requests=8)
    >>> rng = np.random.default_rng(0)
    >>> for places in rng.integers(0, 40, size=300).tolist():
    ...     filling.learn(8, 20, places, 0.2 * places + rng.normal() - filling.ms(places), 1.0)
    >>> round(filling.place_ms, 2)
    0.2
    """

    def __init__(self, max_requests: int) -> None:
        self._load = geometric_buckets(max_requests, exact=16, per_octave=8)
        self._last = max_requests
        # Milliseconds of a place; variance of what is not explained.
        self.scale = np.zeros(2)
        # Places against verified nodes, per load: weight, and means of nodes, places, nodes squared,
        # and nodes times places.
        self.line = np.zeros((int(self._load[-1]) + 1, 5))
        # Places squared, and places times milliseconds, both freed.
        self.sums = np.zeros(2)

    @property
    def place_ms(self) -> float:
        """Milliseconds of a place that is filled up."""
        return float(self.scale[0])

    def ms(self, places: int) -> float:
        """Return what filling so many places takes."""
        return self.place_ms * places

    def limit(
        self,
        request: IntArray,
        believed: FloatArray,
        weights: FloatArray,
        curve: FloatArray,
        price_tokens_per_ms: float,
        n_requests: int,
    ) -> Filled:
        """Cut what makes rows wider than it pays, and add filling to the curve.

        Every width is examined, and for every width each number of the best nodes.

        Parameters
        ----------
        request, believed
            Shape (m,): of each node; survival never rises along a path.
        weights
            Shape (m,): what a token of each node's request is worth; empty where all are worth 1.
        curve
            Milliseconds with 0, 1, … m verified nodes, without filling.
        price_tokens_per_ms
            Tokens that a millisecond could earn elsewhere.
        n_requests
            Rows.

        Examples
        --------
        >>> filling, request = RowFilling(max_requests=4), np.array([0, 0, 0, 1, 2, 3])
        >>> believed, curve = np.array([0.9, 0.8, 0.7, 0.9, 0.9, 0.9]), 10.0 + np.arange(7.0)
        >>> def chosen():
        ...     return filling.limit(request, believed, np.zeros(0), curve, 0.4, 4)
        >>> chosen().believed.tolist() == believed.tolist()
        True
        >>> filling.scale[0] = 0.5
        >>> chosen().believed.tolist(), chosen().curve[[0, 1, 4]].tolist()
        ([0.9, 0.0, 0.0, 0.9, 0.9, 0.9], [10.0, 12.5, 14.0])
        """
        if self.place_ms <= 0.0 or n_requests < 2:
            return Filled(believed, curve)
        worth = believed * weights if weights.size else believed
        inside, filled = _limit(
            request, worth, curve, price_tokens_per_ms, n_requests, self.place_ms
        )
        return Filled(believed * inside, filled)

    def learn(
        self, requests: int, verified: int, places: int, residual_ms: float, node_ms: float
    ) -> None:
        """Learn from a step.

        Parameters
        ----------
        requests, verified
            Rows, and nodes in them.
        places
            Places that were only filled up.
        residual_ms
            What the step took beyond its prediction, filling included.
        node_ms
            What a verified node takes, which no place exceeds.
        """
        if requests < 2:
            return
        _learn(
            self.scale, self.line[self._load[min(requests, self._last)]], self.sums,
            float(verified), float(places), residual_ms, node_ms, math.exp(-1.0 / _WINDOW_STEPS),
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return what was learned as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


def places_filled(nodes: NodeOutcomes | None, n_requests: int) -> int:
    """Return how many places of a step were only filled up.

    >>> places_filled(None, 3)
    0
    """
    if nodes is None or not n_requests:
        return 0
    sizes = np.bincount(nodes.request[nodes.verified > 0], minlength=n_requests)
    return int(n_requests * sizes.max() - sizes.sum())


@compiled("Tuple((f8[::1], f8[::1]))(i8[::1], f8[::1], f8[::1], f8, i8, f8)")
def _limit(
    request: IntArray, worth: FloatArray, curve: FloatArray, price: float, n: int, place_ms: float
) -> tuple[FloatArray, FloatArray]:
    m = worth.shape[0]
    order = descending(worth)
    rank = np.empty(m, dtype=np.int64)  # among its request's nodes, the best first
    size = np.zeros(n, dtype=np.int64)
    for j in order:
        rank[j] = size[request[j]]
        size[request[j]] += 1
    best, width = 0.0, 0
    for cap in range(1, (size.max() if m else 0) + 1):
        earned, count, widest = 0.0, 0, 0
        for j in order:
            if rank[j] >= cap:
                continue
            earned += worth[j]
            count += 1
            widest = max(widest, rank[j] + 1)
            cost = curve[count] - curve[0] + place_ms * (n * widest - count)
            if earned - price * cost > best:
                best, width = earned - price * cost, cap
    inside = np.zeros(m)
    filled = curve.copy()
    count, widest = 0, 0
    for within in (True, False):
        for j in order:
            if (rank[j] < width) != within:
                continue
            count += 1
            widest = max(widest, rank[j] + 1)
            filled[count] += place_ms * (n * widest - count)
            inside[j] = 1.0 if within else 0.0
    return inside, filled


@compiled("void(f8[::1], f8[::1], f8[::1], f8, f8, f8, f8, f8)")
def _learn(
    scale: FloatArray,
    line: FloatArray,
    sums: FloatArray,
    verified: float,
    places: float,
    residual_ms: float,
    node_ms: float,
    keep: float,
) -> None:
    line[0] = keep * line[0] + 1.0
    share = 1.0 / line[0]
    values = (verified, places, verified * verified, verified * places)
    for i in range(4):
        line[i + 1] += share * (values[i] - line[i + 1])
    spread = line[3] - line[1] * line[1]
    slope = (line[4] - line[1] * line[2]) / spread if spread > 1e-9 else 0.0
    beyond = places - line[2] - slope * (verified - line[1])
    if scale[1] > 0.0 and abs(residual_ms) > _FAR_STEPS * math.sqrt(scale[1]):
        residual_ms = math.copysign(_FAR_STEPS * math.sqrt(scale[1]), residual_ms)
    scale[1] += max(share, 1.0 - keep) * (residual_ms * residual_ms - scale[1])
    sums[0] = keep * sums[0] + beyond * beyond
    sums[1] = keep * sums[1] + beyond * (residual_ms + scale[0] * beyond)
    if sums[0] > 0.0:
        error = math.sqrt(scale[1] / sums[0])
        scale[0] = min(max(sums[1] / sums[0] - error, 0.0), node_ms)
