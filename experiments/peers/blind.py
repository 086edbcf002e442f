"""Our policy without sight of promises: what acting on latency targets is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, RequestInfo

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth


class Blind(AdaptivePolicy):
    """`AdaptivePolicy` that sees neither targets nor classes nor priorities of requests.

    Nothing else differs: every token of every request counts the same.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> Blind(ControlConfig(), engine).name
    'adaptive-plain'
    """

    FOLLOWS: ClassVar[str] = "adaptive, blind to latency targets, classes and priorities"
    name = "adaptive-plain"

    def admit(self, request: RequestInfo) -> None:
        """Take note of the request as if nothing had been promised to it."""
        super().admit(
            msgspec.structs.replace(request, slo=None, slo_class="", importance=1.0, priority=0)
        )


def build(config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None) -> Blind:
    """Return the policy; it needs no truth."""
    return Blind(config, capabilities)
