"""As many drafts as the step's headroom takes, whatever becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, IntArray, StepContext, StepPlan
from acclimate.experiments.peers.base import Peer, PeerReason
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

_CONTEXT_GRAIN_TOKENS = 1_024


class HeadroomSized(Peer):
    """Verifies as many drafts as can be added before verifying makes the step ε longer.

    The budget is spread evenly over the requests. Acceptance does not enter, nor does the price of
    drafting: this is what sizing speculation by the card's headroom alone can do.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    profile
        The engine's step time.
    growth
        ε: by what share verifying may lengthen a step.

    Raises
    ------
    ValueError
        ε is not above 0.

    Examples
    --------
    >>> from acclimate.experiments.simulation.table_time import TableTime
    >>> table = TableTime([1, 1, 8, 8], [0, 4, 0, 4], [10.0, 10.0, 10.0, 40.0])
    >>> peer = HeadroomSized(Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4)), table)
    >>> peer.headroom_tokens(1, 0), peer.headroom_tokens(8, 0)
    (4, 2)
    """

    FOLLOWS: ClassVar[str] = "a budget by headroom alone, after SovereignSpec's baseline"
    name = "headroom"

    def __init__(
        self, capabilities: Capabilities, profile: StepTime, *, growth: float = 0.2
    ) -> None:
        if not growth > 0:
            raise ValueError(f"growth must be > 0, got {growth}")
        super().__init__(capabilities)
        self.growth = growth
        self._profile = profile
        self._known: dict[tuple[int, int], int] = {}

    def headroom_tokens(self, requests: int, context_tokens: int) -> int:
        """Return how many drafts can be added before the step grows by more than ε."""
        grain = context_tokens // _CONTEXT_GRAIN_TOKENS
        key = (requests, grain)
        if key not in self._known:
            most = requests * self.capabilities.max_depth
            curve = self._profile.curve(
                StepMakeUp(requests, most, context_tokens=grain * _CONTEXT_GRAIN_TOKENS)
            )
            above = np.flatnonzero(curve > (1.0 + self.growth) * curve[0])
            self._known[key] = int(above[0]) - 1 if above.size else most
        return self._known[key]

    def plan(self, context: StepContext) -> StepPlan:
        """Spread the headroom over the requests."""
        n = context.requests.shape[0]
        if not n:
            nothing: IntArray = np.zeros(0, dtype=np.int64)
            return self.make_plan(context, 0, nothing, PeerReason.RULE, drafted=0)
        each, left = divmod(self.headroom_tokens(n, int(context.context_tokens.sum())), n)
        depth = self.allowed(each + (left > 0))
        lens = np.minimum(context.drafts, each + (np.arange(n) < left))
        lens = np.minimum(lens, depth)
        return self.make_plan(context, depth, lens, PeerReason.RULE, drafted=depth)

    def state(self) -> dict[str, Any]:
        """Return nothing: nothing is learned."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Nothing to continue from."""


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> HeadroomSized:
    """Return the peer with the engine's profile.

    Raises
    ------
    ValueError
        There is no profile.
    """
    if truth is None:
        raise ValueError("headroom must be given the engine's step time, got None")
    return HeadroomSized(capabilities, truth.step_time)
