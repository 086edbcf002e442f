"""How deep to draft: what is asked of the drafter, what that costs, and what bounds leave of it."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import Capabilities
from acclimate.predictors.latency import StepLatency


class Drafting:
    """Draft depths of an engine, and how much longer a step takes with deeper ones.

    Parameters
    ----------
    capabilities
        Whether depth is a decision at all.
    latency
        Knows what a drafted token costs.

    Examples
    --------
    >>> latency = StepLatency(max_requests=4, max_verified=16)
    >>> drafter = Capabilities(max_depth=4, depths=(0, 2, 4), hindsight=True)
    >>> drafting = Drafting(drafter, latency)
    >>> drafting.plain_depth, drafting.asked(0), drafting.asked(4)
    (1, 1, 4)
    >>> lookup = Capabilities(max_depth=4, depths=(0, 2, 4), free_drafts=True)
    >>> Drafting(lookup, latency).asked(0), Drafting(lookup, latency).extra_ms(3, 4)
    (4, 0.0)
    """

    def __init__(self, capabilities: Capabilities, latency: StepLatency) -> None:
        self.capabilities = capabilities
        self.latency = latency
        self.decides = capabilities.asks_for_depth
        self.plain_depth = 0
        if capabilities.hindsight:
            self.plain_depth = min(1, capabilities.max_depth)  # its fate is learned for free

    def asked(self, depth: int) -> int:
        """Return what is drafted where ``depth`` is held."""
        if not self.decides:
            return self.capabilities.max_depth
        return depth or self.plain_depth

    def extra_ms(self, requests: int, depth: int) -> float:
        """Return how much longer drafting so deep takes than drafting as little as can be."""
        if not self.decides:
            return 0.0
        passes = np.array([depth, self.plain_depth], dtype=np.float64)
        deep_ms, plain_ms = self.latency.drafting(requests, passes)
        return float(deep_ms - plain_ms)

    def within(self, requests: int, wanted: int, room_ms: float) -> int:
        """Return the deepest depth, up to the wanted one, that takes no longer than there is room."""
        least = min(self.plain_depth, wanted)
        if not self.decides or self.extra_ms(requests, wanted) <= room_ms:
            return wanted
        for depth in reversed(self.capabilities.depths):
            if least < depth < wanted and self.extra_ms(requests, depth) <= room_ms:
                return depth
        return least
