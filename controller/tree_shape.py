"""How deep and wide to draft, where drafting costs: as much as is verified, and a look beyond."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import Capabilities, IntArray
from acclimate.predictors.numerics import load_arrays, save_arrays

_COVERED = 0.98  # of the nodes that were chosen
_STATE = ("by_depth", "by_rank")


class TreeShape:
    """Draft depth and width that would have held nearly all nodes that were chosen lately.

    Each is one larger than that, so that growing worth shows: a tree that is chosen whole is drawn
    larger in the next step. Where drafts are free, or come whatever is asked, both stay at their
    maximum.

    Parameters
    ----------
    capabilities
        What the engine allows.
    window_steps
        Steps with a chosen node after which evidence has decayed to 1/e.

    Examples
    --------
    >>> engine = Capabilities(max_depth=8, depths=tuple(range(9)), max_width=4)
    >>> shape = TreeShape(engine)
    >>> shape.depth, shape.width
    (8, 4)
    >>> for _ in range(200):
    ...     shape.note(np.array([1, 2]), np.array([0, 0]))
    >>> shape.depth, shape.width
    (3, 2)
    """

    def __init__(self, capabilities: Capabilities, *, window_steps: float = 50.0) -> None:
        self.capabilities = capabilities
        self._keep = 1.0 - 1.0 / window_steps
        # Weight of the chosen nodes by depth - 1 and by rank among their siblings. A prior weight
        # at the maximum lets the first steps draft all.
        self.by_depth = np.zeros(max(capabilities.max_depth, 1))
        self.by_rank = np.zeros(max(capabilities.max_width, 1))
        self.by_depth[-1] = self.by_rank[-1] = 1.0

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

    def note(self, depths: IntArray, ranks: IntArray) -> None:
        """Note which nodes were chosen in a step, by depth (from 1) and rank (from 0)."""
        if not depths.size:
            return
        for weights, values in ((self.by_depth, depths - 1), (self.by_rank, ranks)):
            last = weights.shape[0] - 1
            counts = np.bincount(np.minimum(values, last), minlength=last + 1)
            weights *= self._keep
            weights += counts / counts.sum()

    def state(self) -> dict[str, Any]:
        """Return the weights as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)


def _covering(weights: np.ndarray[Any, np.dtype[np.float64]]) -> int:
    """Return how many of the first entries hold nearly all weight."""
    return int(np.searchsorted(np.cumsum(weights), _COVERED * weights.sum())) + 1
