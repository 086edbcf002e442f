"""How deep, wide and large to draft, where drafting costs: what is verified, and a look beyond."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import Capabilities, FloatArray, IntArray
from acclimate.predictors.numerics import load_arrays, save_arrays

_COVERED = 0.98  # of the nodes that were chosen
_MOST_NODES = 64
_SPARE_SHARE, _SPARE_NODES = 0.25, 2
_STATE = ("by_depth", "by_rank", "by_count")


class TreeShape:
    """Draft depth, width and nodes that would have held nearly all nodes that were chosen lately.

    Each is larger than that, so that growing worth shows: a tree that is chosen whole is drawn
    larger in the next step. Where nothing is chosen, little is drafted. Where drafts are free, or
    come whatever is asked, all stay at their maximum.

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
    >>> shape.depth, shape.width
    (8, 4)
    >>> for _ in range(200):
    ...     shape.note(np.array([1, 2]), np.array([0, 0]), np.array([2]))
    >>> shape.depth, shape.width, shape.nodes
    (3, 2, 5)
    """

    def __init__(self, capabilities: Capabilities, *, window_steps: float = 50.0) -> None:
        self.capabilities = capabilities
        self._keep = 1.0 - 1.0 / window_steps
        # Weight of the chosen nodes by depth - 1 and by rank among their siblings, and of requests
        # by how many of their nodes were chosen. A prior weight at the maximum lets the first
        # steps draft all.
        self.by_depth = np.zeros(max(capabilities.max_depth, 1))
        self.by_rank = np.zeros(max(capabilities.max_width, 1))
        self.by_count = np.zeros(_MOST_NODES + 1)
        self.by_depth[-1] = self.by_rank[-1] = self.by_count[-1] = 1.0

    @property
    def depth(self) -> int:
        """Depth to draft: the smallest allowed one that is deep enough."""
        depths = self.capabilities.depths
        if not self.capabilities.asks_for_depth:
            return self.capabilities.max_depth
        wanted = _covering(self.by_depth) + 1
        return next((d for d in depths if d >= wanted), depths[-1])

    @property
    def width(self) -> int:
        """Children per node to draft."""
        if not self.capabilities.asks_for_depth:
            return self.capabilities.max_width
        return min(_covering(self.by_rank) + 1, self.capabilities.max_width)

    @property
    def nodes(self) -> int | None:
        """Nodes per request to draft; None: as many as the engine does."""
        chosen = _covering(self.by_count) - 1
        if not self.capabilities.asks_for_depth or chosen >= _MOST_NODES:
            return None
        return chosen + int(np.ceil(_SPARE_SHARE * chosen)) + _SPARE_NODES

    def note(self, depths: IntArray, ranks: IntArray, counts: IntArray) -> None:
        """Note what was chosen in a step.

        Parameters
        ----------
        depths, ranks
            Of each chosen node: its depth (from 1) and its rank among its siblings (from 0).
        counts
            Shape (n,): chosen nodes of each request.
        """
        least = np.zeros(1, dtype=np.int64)
        _add(self.by_depth, depths - 1 if depths.size else least, self._keep)
        _add(self.by_rank, ranks if ranks.size else least, self._keep)
        _add(self.by_count, counts, self._keep)

    def state(self) -> dict[str, Any]:
        """Return the weights as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


def _add(weights: FloatArray, values: IntArray, keep: float) -> None:
    last = weights.shape[0] - 1
    counts = np.bincount(np.minimum(values, last), minlength=last + 1)
    weights *= keep
    weights += counts / counts.sum()


def _covering(weights: FloatArray) -> int:
    """Return how many of the first entries hold nearly all weight."""
    return int(np.searchsorted(np.cumsum(weights), _COVERED * weights.sum())) + 1
