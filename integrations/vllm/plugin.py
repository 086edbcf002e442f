"""The ``vllm.general_plugins`` entry point: attaches without any user code, if asked to."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("vllm.acclimate")


def register() -> None:
    """Let engines choose the controller's scheduler; loaded in every process of an engine.

    Installing the package changes nothing: ``ACCLIMATE=1`` in the environment or a key
    ``acclimate`` in ``additional_config`` is needed, and a scheduler class that somebody else set
    stays. Calling it again does nothing, and it never raises.
    """
    try:
        from vllm.config import SchedulerConfig

        from acclimate.integrations.vllm.kernel_scan import hide_numba_from_kernel_scan

        hide_numba_from_kernel_scan()
        stock = SchedulerConfig.get_scheduler_cls
        if getattr(stock, "_acclimate", False):
            return

        def get_scheduler_cls(self: Any) -> Any:
            if self.scheduler_cls is not None:
                return stock(self)
            from acclimate.integrations.vllm.factory import make_scheduler_if_asked

            return make_scheduler_if_asked

        get_scheduler_cls._acclimate = True  # type: ignore[attr-defined]
        SchedulerConfig.get_scheduler_cls = get_scheduler_cls
    except Exception as error:
        logger.warning(
            "acclimate disabled: the plugin did not load, because %s: %s",
            type(error).__name__,
            error,
        )
