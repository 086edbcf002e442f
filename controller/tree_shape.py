"""How deep, wide and large to draft, where drafting costs: what is verified, and a look beyond."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from acclimate.controller.records import Capabilities, FloatArray, IntArray
from acclimate.predictors.numerics import load_arrays, save_arrays

_COVERED = 0.98  # of the nodes that were chosen
_MOST_NODES = 64
_SPARE_SHARE, _SPARE_NODES = 0.25, 2
_LOADS = 10  # powers of two of requests in service
_PRIOR_STEPS = 0.1  # at the maximum
_STEPS_PER_HALVING = 2  # bins of survival
_BINS = 10 * _STEPS_PER_HALVING  # down to a thousandth
_STATE = ("by_depth", "by_rank", "by_count", "by_survival")


class Shape(NamedTuple):
    """What to draft for each request: `StepPlan`'s ``draft_depth``, ``_width``, ``_nodes``, ``_floor``."""

    depth: int
    width: int
    nodes: int | None
    floor: float


class TreeShape:
    """Draft depth, width, nodes and least survival that would have held what was chosen lately.

    Each is more generous than that, so that growing worth shows: a tree that is chosen whole is drawn
    larger in the next step. Where nothing is chosen, little is drafted. Every load, by powers of two
    of the requests in service, has a shape of its own, for what a node may cost differs. Where drafts
    are free, or come whatever is asked, all stay at their maximum.

    Parameters
    ----------
    capabilities
        What the engine allows.
    window_steps
        Steps after which evidence has decayed to 1/e.

    Examples
    --------
    >>> engine = Capabilities(max_depth=8, depths=tuple(range(9)), max_width=4)
    >>> shape = TreeShape(engine)
    >>> shape.at(1)
    Shape(depth=8, width=4, nodes=None, floor=0.0)
    >>> for _ in range(200):
    ...     shape.note(np.array([1, 2]), np.array([0, 0]), np.array([0.8, 0.5]), np.array([2]))
    >>> shape.at(1)[:3], round(shape.at(1).floor, 2)
    ((3, 2, 5), 0.25)
    >>> shape.at(8).depth
    8
    """

    def __init__(self, capabilities: Capabilities, *, window_steps: float = 50.0) -> None:
        self.capabilities = capabilities
        self._keep = 1.0 - 1.0 / window_steps
        # Weight of the chosen nodes by depth - 1, by rank among their siblings and by survival, and
        # of requests by how many of their nodes were chosen. A prior weight at the maximum lets the
        # first steps draft all.
        self.by_depth = np.zeros((_LOADS, max(capabilities.max_depth, 1)))
        self.by_rank = np.zeros((_LOADS, max(capabilities.max_width, 1)))
        self.by_count = np.zeros((_LOADS, _MOST_NODES + 1))
        self.by_survival = np.zeros((_LOADS, _BINS + 1))
        for weights in (self.by_depth, self.by_rank, self.by_count, self.by_survival):
            weights[:, -1] = _PRIOR_STEPS

    def at(self, requests: int) -> Shape:
        """Return what to draft while so many requests are in service."""
        most = self.capabilities
        if not most.asks_for_depth:
            return Shape(most.max_depth, most.max_width, None, 0.0)
        load = _load(requests)
        deep = _covering(self.by_depth[load]) + 1
        chosen = _covering(self.by_count[load]) - 1
        spare = int(np.ceil(_SPARE_SHARE * chosen)) + _SPARE_NODES
        halvings = _covering(self.by_survival[load])
        return Shape(
            # The smallest allowed depth that is deep enough.
            next((d for d in most.depths if d >= deep), most.depths[-1]),
            min(_covering(self.by_rank[load]) + 1, most.max_width),
            chosen + spare if chosen < _MOST_NODES else None,
            # A step below the least likely that were chosen.
            0.0 if halvings > _BINS else 2.0 ** (-(halvings + 1) / _STEPS_PER_HALVING),
        )

    def note(
        self, depths: IntArray, ranks: IntArray, survival: FloatArray, counts: IntArray
    ) -> None:
        """Note what was chosen in a step.

        Parameters
        ----------
        depths, ranks, survival
            Of each chosen node: its depth (from 1), its rank among its siblings (from 0), and how
            likely its path is by the drafter's own word.
        counts
            Shape (n,): chosen nodes of each request.
        """
        load = _load(counts.shape[0])
        least = np.zeros(1, dtype=np.int64)
        _add(self.by_depth[load], depths - 1 if depths.size else least, self._keep)
        _add(self.by_rank[load], ranks if ranks.size else least, self._keep)
        _add(self.by_count[load], counts, self._keep)
        if survival.size:
            halvings = -_STEPS_PER_HALVING * np.log2(np.maximum(survival, 2.0**-_BINS))
            _add(self.by_survival[load], halvings.astype(np.int64), self._keep)

    def state(self) -> dict[str, Any]:
        """Return the weights as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


def _load(requests: int) -> int:
    return min(max(requests, 1).bit_length() - 1, _LOADS - 1)


def _add(weights: FloatArray, values: IntArray, keep: float) -> None:
    last = weights.shape[0] - 1
    counts = np.bincount(np.minimum(values, last), minlength=last + 1)
    weights *= keep
    weights += counts / counts.sum()


def _covering(weights: FloatArray) -> int:
    """Return how many of the first entries hold nearly all weight."""
    return int(np.searchsorted(np.cumsum(weights), _COVERED * weights.sum())) + 1
