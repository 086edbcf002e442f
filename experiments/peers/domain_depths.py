"""A fixed depth for each traffic class: the plans among which the best is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from acclimate.controller.records import Capabilities, RequestInfo, StepContext, StepPlan
from acclimate.experiments.peers.base import Peer, PeerReason


class DomainDepths(Peer):
    """Verifies as many drafts of a request as its declared domain is given.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    depth_of
        Depth per domain; others verify nothing.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> peer = DomainDepths(Capabilities(max_depth=4, depths=(0, 2, 4)), {"code": 4})
    >>> for number, domain in ((1, "code"), (2, "prose")):
    ...     peer.admit(
    ...         RequestInfo(request=number, prompt_tokens=9, max_tokens=50, domain=domain))
    >>> peer.plan(StepContext(
    ...     step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
    ...     requests=int_array([1, 2]), drafts=int_array([3, 3]), committed=int_array([1, 1]),
    ...     context_tokens=int_array([9, 9]), tokens_left=int_array([9, 9]))).verify_lens.tolist()
    [3, 0]
    """

    FOLLOWS: ClassVar[str] = "a fixed depth per domain"
    name = "domain_depths"

    def __init__(self, capabilities: Capabilities, depth_of: Mapping[str, int]) -> None:
        super().__init__(capabilities)
        self.depth_of = dict(depth_of)
        self._depths: dict[int, int] = {}

    def admit(self, request: RequestInfo) -> None:
        """Note the depth of the request's domain."""
        self._depths[request.request] = self.depth_of.get(request.domain, 0)

    def forget(self, request: int) -> None:
        """Drop the request."""
        self._depths.pop(request, None)

    def plan(self, context: StepContext) -> StepPlan:
        """Verify each request's own depth, and draft the deepest."""
        own = np.array([self._depths.get(r, 0) for r in context.requests.tolist()], dtype=np.int64)
        depth = max(self.depth_of.values(), default=0)
        lens = np.minimum(context.drafts, own)
        return self.make_plan(context, depth, lens, PeerReason.RULE, drafted=depth)

    def state(self) -> dict[str, Any]:
        """Return the depths of the requests."""
        return {"depths": [[request, depth] for request, depth in self._depths.items()]}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._depths = {int(request): int(depth) for request, depth in state["depths"]}
