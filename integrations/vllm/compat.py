"""Checks that the installed engine has the joints that the scheduler's hooks need."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

TESTED_VERSIONS = ("0.32",)

# Parameters that each overridden method must have, in this order, after self.
HOOKS = {
    "add_request": ("request",),
    "schedule": ("throttle_prefills",),
    "_update_after_schedule": ("scheduler_output",),
    "update_from_output": ("scheduler_output", "model_runner_output"),
    "update_draft_token_ids_in_output": ("draft_token_ids", "scheduler_output"),
    "_preempt_request": ("request",),
    "_free_request": ("request",),
    "shutdown": (),
}
_OUTPUT_FIELDS = (
    "num_spec_tokens_to_schedule",
    "num_scheduled_tokens",
    "total_num_scheduled_tokens",
    "scheduled_spec_decode_tokens",
    "num_invalid_spec_tokens",
)


def version_reason(version: str) -> str | None:
    """Return why an engine of this version is not supported, or None.

    Examples
    --------
    >>> version_reason("0.32.1+cpu"), version_reason("0.33.0")
    (None, 'vLLM must be 0.32.*, got 0.33.0')
    """
    if any(version == known or version.startswith(known + ".") for known in TESTED_VERSIONS):
        return None
    return f"vLLM must be {' or '.join(v + '.*' for v in TESTED_VERSIONS)}, got {version}"


def engine_version() -> str:
    """Return the version of the installed engine.

    Raises
    ------
    ImportError
        There is none.
    """
    import vllm

    return str(vllm.__version__)


def hook_reason() -> str | None:
    """Return which joint the installed engine lacks, or None."""
    try:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.output import SchedulerOutput
        from vllm.v1.core.sched.scheduler import Scheduler
    except ImportError as error:
        return f"the scheduler must be importable, got {error}"
    return (
        signature_reason(Scheduler)
        or field_reason(SchedulerOutput)
        or source_reason(AsyncScheduler)
        or source_reason(Scheduler)
    )


def signature_reason(scheduler: type[Any]) -> str | None:
    """Return which method is missing or takes other arguments, or None."""
    for name, wanted in HOOKS.items():
        method = getattr(scheduler, name, None)
        if method is None:
            return f"{scheduler.__name__} must have {name}, it has not"
        names = tuple(inspect.signature(method).parameters)[1:]
        if names[: len(wanted)] != wanted:
            return (
                f"{scheduler.__name__}.{name} must take ({', '.join(wanted)}), "
                f"got ({', '.join(names)})"
            )
    return None


def field_reason(output: type[Any]) -> str | None:
    """Return which field the scheduler's output lacks, or None."""
    names = {field.name for field in dataclasses.fields(output)}
    missing = [name for name in _OUTPUT_FIELDS if name not in names]
    return f"{output.__name__} must have {', '.join(missing)}" if missing else None


def source_reason(scheduler: type[Any]) -> str | None:
    """Return which rule is no longer in the scheduler's source, or None."""
    is_async = scheduler.__name__.startswith("Async")
    probes = (
        {"_update_after_schedule": "num_spec_tokens_to_schedule"}
        if is_async
        else {"schedule": "dynamic_sd_lookup", "update_from_output": "sampled_token_ids"}
    )
    for name, word in probes.items():
        try:
            source = inspect.getsource(getattr(scheduler, name))
        except (OSError, TypeError, AttributeError):
            return f"the source of {scheduler.__name__}.{name} must be readable, it is not"
        if word not in source:
            return f"{scheduler.__name__}.{name} must use {word}, it does not"
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Platform:
    """What the installed engine runs on: device, the runner it prefers, whether it goes ahead."""

    device: str
    runner: str
    asynchronous: bool


def platform() -> Platform:
    """Return what the installed engine runs on here.

    Raises
    ------
    ImportError
        There is no engine.
    """
    from vllm.platforms import current_platform
    from vllm.triton_utils import HAS_TRITON

    device = str(current_platform.device_type)
    return Platform(device, "v2" if HAS_TRITON else "v1", asynchronous=device != "cpu")
