"""How deep to draft: what is asked of the drafter, what that costs, and what bounds leave of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import Capabilities
from acclimate.predictors.latency import StepLatency
from acclimate.predictors.numerics import load_arrays, save_arrays

_LOADS = 16  # powers of two of requests
_FIRST_STEPS, _EVERY_STEPS = 12, 48  # until one draft less, for the first time and again
_LOOKS_AT_A_TIME = 7
_STATE = ("until_less", "looks")


class Drafting:
    """Draft depths of an engine, and how much longer a step takes with deeper ones.

    What drafting costs is told from steps that drafted otherwise. A depth that is held drafts one less
    now and then, at each load, and of steps that draft only to look one in eight drafts nothing.

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
    >>> drafting.look_depth, drafting.asked(0), drafting.asked(4)
    (1, 0, 4)
    >>> lookup = Capabilities(max_depth=4, depths=(0, 2, 4), free_drafts=True)
    >>> Drafting(lookup, latency).asked(0), Drafting(lookup, latency).extra_ms(3, 4)
    (4, 0.0)
    """

    def __init__(self, capabilities: Capabilities, latency: StepLatency) -> None:
        self.capabilities = capabilities
        self.latency = latency
        self.decides = capabilities.asks_for_depth
        # Of drafts that nobody verifies, whose fate the committed tokens tell all the same.
        self.look_depth = min(1, capabilities.max_depth) if capabilities.hindsight else 0
        # Steps until one draft less is made, per load; looks since a step without drafts.
        self.until_less = np.full(_LOADS, _FIRST_STEPS)
        self.looks = np.zeros(1, dtype=np.int64)

    def asked(self, depth: int) -> int:
        """Return what is drafted where ``depth`` is held."""
        return depth if self.decides else self.capabilities.max_depth

    def varied(self, requests: int, depth: int) -> int:
        """Return a depth above 0 that is held, or now and then one less.

        >>> drafter = Capabilities(max_depth=4, depths=(0, 2, 4))
        >>> drafting = Drafting(drafter, StepLatency(max_requests=4, max_verified=16))
        >>> [drafting.varied(3, 2) for _ in range(13)]
        [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 2]
        """
        if not self.decides:
            return depth
        load = min(requests.bit_length(), _LOADS - 1)
        self.until_less[load] -= 1
        if self.until_less[load]:
            return depth
        self.until_less[load] = _EVERY_STEPS
        return depth - 1

    def may_look(self) -> bool:
        """Whether this step may draft only to look, which counts as done."""
        self.looks[0] = (self.looks[0] + 1) % (_LOOKS_AT_A_TIME + 1)
        return bool(self.looks[0])

    def state(self) -> dict[str, Any]:
        """Return the counts."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)

    def extra_ms(self, requests: int, depth: int) -> float:
        """Return how much longer drafting so deep takes than asking for no drafts."""
        if not self.decides:
            return 0.0
        return float(self.latency.drafting(requests, np.array([float(depth)]))[0])

    def within(self, requests: int, wanted: int, room_ms: float) -> int:
        """Return the deepest depth, up to the wanted one, that takes no longer than there is room."""
        if not self.decides or self.extra_ms(requests, wanted) <= room_ms:
            return wanted
        for depth in reversed(self.capabilities.depths):
            if depth < wanted and self.extra_ms(requests, depth) <= room_ms:
                return depth
        return min(self.capabilities.depths[0], wanted)
