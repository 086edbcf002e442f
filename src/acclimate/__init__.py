"""acclimate: an online feedback controller for speculative decoding.

The loop in five lines: an engine scheduler asks ``controller.loop.ControlLoop.plan`` what to
verify and to draft in this step, applies the answer, and reports what came of it to
``ControlLoop.observe``. A ``controller.policy.Policy`` decides and learns; ``predictors`` hold
what it has learned; ``integrations.vllm`` sits inside the scheduler; ``experiments`` ask questions.

>>> import acclimate
>>> acclimate.__version__
'0.1.0'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["AdaptiveController", "ControlConfig", "__version__"]

if TYPE_CHECKING:
    from acclimate.controller.config import ControlConfig
    from acclimate.integrations.vllm.handle import AdaptiveController


def __getattr__(name: str) -> Any:
    """Load on first use: importing the package itself must cost milliseconds."""
    if name == "AdaptiveController":
        from acclimate.integrations.vllm.handle import AdaptiveController

        return AdaptiveController
    if name == "ControlConfig":
        from acclimate.controller.config import ControlConfig

        return ControlConfig
    raise AttributeError(f"module 'acclimate' has no attribute {name!r}")
