"""What a user holds: a validated configuration that becomes engine arguments."""

from __future__ import annotations

import os
from typing import Any

from acclimate.controller.config import ControlConfig

FACTORY = "acclimate.integrations.vllm.factory.make_scheduler"


class AdaptiveController:
    """Attaches a feedback controller for speculative decoding to a vLLM engine.

    The controller itself lives where the engine's scheduler runs, which may be another process;
    this object carries the configuration there::

        from acclimate import AdaptiveController
        from vllm import LLM, SamplingParams

        controller = AdaptiveController()
        llm = LLM(model=..., speculative_config={...}, **controller.engine_args())
        llm.chat(messages, SamplingParams(extra_args={"acclimate_domain": "code"}))

    Parameters
    ----------
    config
        A `ControlConfig`, a dict, the path of a JSON file, or nothing for the defaults.

    Raises
    ------
    ValueError
        The configuration has an unknown key or a value out of range.

    Examples
    --------
    >>> AdaptiveController({"policy": "static:2"}).engine_args()["additional_config"]
    {'acclimate': {'policy': 'static:2'}}
    """

    def __init__(
        self, config: ControlConfig | dict[str, Any] | str | os.PathLike[str] | None = None
    ) -> None:
        self.config = ControlConfig.read(config)

    def engine_args(self) -> dict[str, Any]:
        """Return the arguments that `vllm.LLM` or `vllm.EngineArgs` needs."""
        changed = self.config.model_dump(mode="json", exclude_defaults=True)
        return {"scheduler_cls": FACTORY, "additional_config": {"acclimate": changed}}
