"""Makes an engine's scheduler: with the controller where it can act, else the stock one."""

from __future__ import annotations

import logging
import os
import platform
from typing import Any

from acclimate.controller.config import ControlConfig
from acclimate.controller.engine_state import Place
from acclimate.controller.records import Capabilities
from acclimate.integrations.engine_key import EngineKey
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.runtime import Runtime
from acclimate.integrations.state_page import StatePage
from acclimate.integrations.vllm.bridge import EngineBridge
from acclimate.integrations.vllm.capabilities import (
    MethodTraits,
    build_capabilities,
    method_traits,
)
from acclimate.integrations.vllm.compat import engine_version, hook_reason, version_reason
from acclimate.integrations.vllm.flight import EngineFacts
from acclimate.integrations.vllm.scheduler import adaptive_scheduler
from acclimate.integrations.vllm.settings import KEY, SWITCH, opted_in, read_settings
from acclimate.integrations.vllm.state_publisher import StatePublisher

# The engine shows what is logged below its own name.
logger = logging.getLogger("vllm.acclimate")


def _log(line: str) -> None:
    logger.warning("acclimate %s", line)


def make_scheduler(*args: Any, **kwargs: Any) -> Any:
    """Build the scheduler of an engine; takes what ``Scheduler`` takes.

    Name it as the engine's ``scheduler_cls``, or let the plugin do so. Whatever is in the way,
    the engine gets a scheduler: the stock one, with one log line that says why.
    """
    vllm_config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    base = base_class(vllm_config)
    runtime: Runtime | None = None
    try:
        reason = disabled_reason(vllm_config)
        if reason is None:
            config = read_settings(vllm_config.additional_config)
            capabilities = engine_capabilities(vllm_config, config)
            header = engine_header(vllm_config, config, capabilities)
            key = engine_key(vllm_config, header)
            runtime = Runtime.start(config, capabilities, header, _log, key)
    except Exception as error:
        reason = _words(error)
    if reason is not None or runtime is None:
        _log(f"disabled: the stock scheduler acts, because {reason}")
        return base(*args, **kwargs)
    scheduler = adaptive_scheduler(base)(*args, **kwargs)
    try:
        bridge = EngineBridge(
            runtime.loop,
            engine_facts(vllm_config),
            trust_domain=config.trust_domain,
            log=_log,
            record_tokens=runtime.record_tokens,
            place=engine_place(config, header, key),
            publisher=_publisher(config, header),
        )
        scheduler.attach_bridge(bridge, runtime)
        line = active_line(vllm_config, runtime, capabilities)
    except Exception as error:
        scheduler.acclimate = None
        runtime.close()
        _log(f"disabled: the stock scheduler acts, because {_words(error)}")
        return scheduler
    logger.info("acclimate %s", line)
    return scheduler


def make_scheduler_if_asked(*args: Any, **kwargs: Any) -> Any:
    """As `make_scheduler` if environment or configuration ask for it, else the stock scheduler."""
    vllm_config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
    if opted_in(vllm_config.additional_config):
        return make_scheduler(*args, **kwargs)
    return base_class(vllm_config)(*args, **kwargs)


def base_class(vllm_config: Any) -> Any:
    """Return the stock class for this engine; the wrong one turns speculation off silently."""
    if vllm_config.scheduler_config.async_scheduling:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler

        return AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    return Scheduler


def disabled_reason(vllm_config: Any) -> str | None:
    """Return why the controller cannot act on this engine, or None.

    Parameters
    ----------
    vllm_config
        The engine's whole configuration.
    """
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0 is set"
    speculative = vllm_config.speculative_config
    if speculative is None:
        return "the engine has no speculative_config"
    if not speculative.num_speculative_tokens:
        return "num_speculative_tokens must be >= 1, got 0"
    if vllm_config.model_config.is_diffusion:
        return "diffusion models do not draft"
    if vllm_config.parallel_config.pipeline_parallel_size > 1:
        return "pipeline parallelism is not supported"
    reason = version_reason(engine_version()) or hook_reason()
    if reason is not None:
        return reason
    try:
        config = read_settings(vllm_config.additional_config)
        if not config.enabled:
            return "the configuration says enabled = false"
        engine_capabilities(vllm_config, config)
    except (OSError, ValueError) as error:
        return _words(error)
    return None


def runner(vllm_config: Any) -> str:
    """Return ``v1`` or ``v2``."""
    return "v2" if vllm_config.use_v2_model_runner else "v1"


def engine_traits(vllm_config: Any) -> MethodTraits:
    """Return how the engine's drafting method behaves."""
    speculative = vllm_config.speculative_config
    return method_traits(
        str(speculative.method),
        runner(vllm_config),
        parallel_drafting=bool(speculative.parallel_drafting),
        chained_modules=vllm_config.num_prefill_lookahead_tokens > 1,
    )


def engine_capabilities(vllm_config: Any, config: ControlConfig) -> Capabilities:
    """Return what a policy may choose on this engine.

    Raises
    ------
    ValueError
        The configured depth is above the engine's.
    """
    speculative, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    return build_capabilities(
        engine_traits(vllm_config),
        engine_depth=speculative.num_speculative_tokens,
        asynchronous=bool(vllm_config.scheduler_config.async_scheduling),
        cap=config.max_depth,
        # Ranks that make different numbers of draft passes wait for each other for ever.
        pinned=parallel.data_parallel_size > 1 and vllm_config.model_config.is_moe,
        drafts_sampled=_drafts_sampled(speculative),
        capture_sizes=capture_sizes(vllm_config),
    )


def capture_sizes(vllm_config: Any) -> tuple[int, ...]:
    """Return the token counts that the engine pads its steps to; none where it captures no graphs."""
    compilation = getattr(vllm_config, "compilation_config", None)
    mode = getattr(compilation, "cudagraph_mode", None)
    sizes = getattr(compilation, "cudagraph_capture_sizes", None)
    if not sizes or mode is None or getattr(mode, "name", str(mode)) == "NONE":
        return ()
    return tuple(sorted({int(size) for size in sizes if int(size) > 0}))


def engine_facts(vllm_config: Any) -> EngineFacts:
    """Return what the bridge must know of this engine."""
    speculative = vllm_config.speculative_config
    max_model_len = vllm_config.model_config.max_model_len
    drafter = getattr(speculative, "draft_model_config", None)
    drafter_len = getattr(drafter, "max_model_len", None) or max_model_len
    return EngineFacts(
        depth=speculative.num_speculative_tokens,
        max_model_len=max_model_len,
        drafter_len=drafter_len if runner(vllm_config) == "v1" else None,
        drafter_extra=int(speculative.method == "dflash"),
        ids_visible=engine_traits(vllm_config).ids_visible
        and not vllm_config.scheduler_config.async_scheduling,
        drafts_sampled=_drafts_sampled(speculative),
    )


def engine_header(
    vllm_config: Any, config: ControlConfig, capabilities: Capabilities
) -> EngineHeader:
    """Return what traces and tracked runs say of this engine."""
    speculative, model = vllm_config.speculative_config, vllm_config.model_config
    return EngineHeader(
        engine="vllm",
        engine_version=engine_version(),
        runner=runner(vllm_config),
        model=str(getattr(model, "served_model_name", None) or model.model),
        dtype=str(model.dtype).removeprefix("torch."),
        method=str(speculative.method),
        device=str(vllm_config.device_config.device_type),
        capabilities=capabilities,
        max_model_len=model.max_model_len,
        max_num_seqs=vllm_config.scheduler_config.max_num_seqs,
        engine_id=str(getattr(vllm_config, "instance_id", "") or "0"),
        rank=int(getattr(vllm_config.parallel_config, "data_parallel_index", 0) or 0),
        lookup_min=getattr(speculative, "prompt_lookup_min", None),
        lookup_max=getattr(speculative, "prompt_lookup_max", None),
        seed=config.seed,
    )


def engine_place(config: ControlConfig, header: EngineHeader, key: EngineKey) -> Place:
    """Return who this engine is, for routers."""
    return Place(
        engine=f"{header.engine_id}-{header.rank}",
        curve_key=key.named(header.model),
        trust_domains=(config.trust_domain,),
        residency=config.residency,
        seats=header.max_num_seqs,
    )


def engine_key(vllm_config: Any, header: EngineHeader) -> EngineKey:
    """Return what all that is learned on this engine belongs to."""
    parallel, speculative = vllm_config.parallel_config, vllm_config.speculative_config
    mode = getattr(getattr(vllm_config, "compilation_config", None), "cudagraph_mode", None)
    graph_mode = getattr(mode, "name", str(mode)) if header.capabilities.capture_sizes else ""
    return EngineKey.of(
        header,
        device=device_name(header.device),
        model=str(vllm_config.model_config.model),
        quantization=str(getattr(vllm_config.model_config, "quantization", None) or ""),
        graph_mode=graph_mode,
        draft_model=str(getattr(speculative, "model", None) or ""),
        tensor_parallel=int(parallel.tensor_parallel_size),
        pipeline_parallel=int(parallel.pipeline_parallel_size),
        data_parallel=int(parallel.data_parallel_size),
    )


def device_name(kind: str) -> str:
    """Return what the GPU calls itself; of a processor what the system calls it, and its cores."""
    if kind == "cpu":
        return f"{platform.processor() or platform.machine()} x{os.cpu_count()}"
    try:
        from vllm.platforms import current_platform

        return str(current_platform.get_device_name())
    except Exception:  # a name is not worth a fault
        return kind


def active_line(vllm_config: Any, runtime: Runtime, capabilities: Capabilities) -> str:
    """Say in one line what is on."""
    traits = engine_traits(vllm_config)
    mode = "async" if capabilities.asynchronous else "sync"
    what = "draft depth and verify lengths" if capabilities.honours_depth else "verify lengths"
    sinks = ", ".join(type(sink).__name__ for sink in runtime.sinks) or "none"
    note = f"; {traits.note}" if traits.note else ""
    return (
        f"{'shadow' if runtime.loop.config.shadow else 'active'}: policy "
        f"{runtime.loop.policy.name}, method "
        f"{vllm_config.speculative_config.method}, runner {runner(vllm_config)}, {mode}, depths "
        f"0 to {capabilities.max_depth}, controls {what}, hindsight "
        f"{'on' if capabilities.hindsight else 'off'}, sinks: {sinks}{note}"
    )


def _publisher(config: ControlConfig, header: EngineHeader) -> StatePublisher | None:
    """Return what shows the engine's state; None if nobody wants it or it cannot be had."""
    if not config.share_state:
        return None
    try:
        return StatePublisher(StatePage(f"{header.engine_id}-{header.rank}"), _log)
    except (OSError, ValueError) as error:
        _log(f"state is not shown: {_words(error)}")
        return None


def _drafts_sampled(speculative: Any) -> bool:
    return getattr(speculative, "draft_sample_method", "greedy") == "probabilistic"


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())
    known = isinstance(error, ValueError) and text
    return text if known else f"{type(error).__name__}: {text} (key {KEY!r})"
