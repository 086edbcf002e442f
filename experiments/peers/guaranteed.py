"""Our policy with the twin's guarantee for every request: what it keeps, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth


class Guaranteed(AdaptivePolicy):
    """`AdaptivePolicy` under which no request may fall behind the engine that verifies nothing.

    How far behind is what the configuration says: a share η and some tokens.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> Guaranteed(ControlConfig(), engine).name
    'adaptive-twin'
    """

    FOLLOWS: ClassVar[str] = "adaptive, with the twin's guarantee for every request"
    name = "adaptive-twin"

    def __init__(self, config: ControlConfig, capabilities: Capabilities) -> None:
        slo = config.slo.model_copy(update={"twin": "per_request"})
        super().__init__(config.model_copy(update={"slo": slo}), capabilities)


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> Guaranteed:
    """Return the policy; it needs no truth."""
    return Guaranteed(config, capabilities)
