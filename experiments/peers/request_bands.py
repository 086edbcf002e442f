"""Per-request bands: each request switches between two depths on its own acceptance length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import (
    Capabilities,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.base import Peer, PeerReason, moved, verified_drafts

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth


class RequestBands(Peer):
    """Depth 3 or 5 per request: deep above the high threshold, shallow below the low one.

    A request's acceptance length (bonus token included) is averaged with weight 0.3; between the
    thresholds it keeps its depth. Neither load nor latency is looked at, and the depth is never 0.
    Without a band (``low == high``) noise about the threshold flips the depth at every step. All
    requests draft together, so that the deepest sets the draft depth; verify lengths are each
    request's own.

    The thresholds and the weight are ours; the predecessor's were tuned per model.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    low, high
        Acceptance lengths, ``low <= high``.
    depths
        The shallow and the deep depth, cut to the engine's.

    Raises
    ------
    ValueError
        ``low`` is above ``high``.

    Examples
    --------
    >>> RequestBands(Capabilities(max_depth=5, depths=(0, 3, 5)), low=3.0, high=2.0)
    Traceback (most recent call last):
        ...
    ValueError: low must be <= high 2.0, got 3.0
    """

    FOLLOWS: ClassVar[str] = "per-request bands (predecessor), K in {3, 5}"
    name = "request_bands"

    def __init__(
        self,
        capabilities: Capabilities,
        *,
        low: float = 2.0,
        high: float = 3.0,
        weight: float = 0.3,
        depths: tuple[int, int] = (3, 5),
    ) -> None:
        if low > high:
            raise ValueError(f"low must be <= high {high}, got {low}")
        super().__init__(capabilities)
        self.low, self.high, self.weight = low, high, weight
        self.shallow, self.deep = (self.allowed(depth) for depth in depths)
        self._requests: dict[int, tuple[float, int]] = {}

    def admit(self, request: RequestInfo) -> None:
        """Start a request between the thresholds, at the shallow depth."""
        self._requests[request.request] = ((self.low + self.high) / 2.0, self.shallow)

    def forget(self, request: int) -> None:
        """Drop the request."""
        self._requests.pop(request, None)

    def depth_of(self, request: int) -> int:
        """Return the depth that a request has now; unknown requests are shallow."""
        return self._requests.get(request, (0.0, self.shallow))[1]

    def plan(self, context: StepContext) -> StepPlan:
        """Verify each request at its own depth, and draft for the deepest."""
        wanted = np.array([self.depth_of(r) for r in context.requests.tolist()], dtype=np.int64)
        deepest = int(wanted.max()) if wanted.size else self.shallow
        lens = np.minimum(context.drafts, wanted)
        return self.make_plan(context, deepest, lens, PeerReason.RULE, drafted=deepest)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Move each request's average, and its depth if it left the band."""
        requests, _, accepted = verified_drafts(outcome)
        for request, count in zip(requests.tolist(), accepted.tolist(), strict=True):
            if request not in self._requests:
                continue
            average, depth = self._requests[request]
            average = moved(average, count + 1.0, self.weight)
            if average > self.high:
                depth = self.deep
            elif average < self.low:
                depth = self.shallow
            self._requests[request] = (average, depth)
        return ()

    def state(self) -> dict[str, Any]:
        """Return average and depth of each request."""
        return {"requests": [[r, average, depth] for r, (average, depth) in self._requests.items()]}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._requests = {int(r): (float(a), int(depth)) for r, a, depth in state["requests"]}


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> RequestBands:
    """Return the peer with its band."""
    return RequestBands(capabilities)
