"""Starts engines the way experiments and tests want them: eager, quiet, speculating."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acclimate.integrations.runtime import Runtime
    from acclimate.integrations.vllm.handle import AdaptiveController


@dataclasses.dataclass(slots=True)
class Engine:
    """A started engine; `scheduler` and `bridge` exist only for one that runs in this process."""

    llm: Any
    in_process: bool

    @property
    def scheduler(self) -> Any:
        """Return the engine core's scheduler.

        Raises
        ------
        RuntimeError
            The engine runs in a process of its own.
        """
        if not self.in_process:
            raise RuntimeError("the scheduler must be in this process, got in_process=False")
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    @property
    def bridge(self) -> Any:
        """Return what connects the scheduler with the control loop.

        Raises
        ------
        RuntimeError
            The engine runs in a process of its own, or without a controller.
        """
        bridge = getattr(self.scheduler, "acclimate", None)
        if bridge is None:
            raise RuntimeError("the engine must be started with a controller, got none")
        return bridge

    @property
    def runtime(self) -> Runtime:
        """Return the loop's runtime with its sinks.

        Raises
        ------
        RuntimeError
            As `bridge` does.
        """
        runtime: Runtime | None = self.scheduler.acclimate_runtime if self.bridge else None
        if runtime is None:
            raise RuntimeError("the engine must be running, got one that was shut down")
        return runtime

    def tokens(self, messages: list[dict[str, str]]) -> tuple[int, ...]:
        """Return a conversation as the token ids of a prompt."""
        tokenizer = self.llm.get_tokenizer()
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return tuple(tokenizer.encode(text, add_special_tokens=False))

    def shutdown(self) -> None:
        """Stop the engine and free its memory; a second call does nothing."""
        if self.llm is None:
            return
        self.llm.llm_engine.engine_core.shutdown()
        self.llm = None


def start_engine(
    model: str | os.PathLike[str],
    *,
    controller: AdaptiveController | None = None,
    method: str | None = "ngram",
    max_depth: int = 8,
    draft_model: str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    max_num_seqs: int = 16,
    max_model_len: int = 1024,
    in_process: bool = True,
    seed: int = 0,
    speculative: dict[str, Any] | None = None,
    **engine_args: Any,
) -> Engine:
    """Start an engine.

    Parameters
    ----------
    model
        Folder of the target model.
    controller
        Attached if given; without one the engine is stock.
    method
        ``ngram``, ``draft_model``, any other method of the engine, or None for an engine that
        does not speculate at all.
    max_depth
        The engine's ``num_speculative_tokens``.
    draft_model
        What the method drafts with, where it needs something.
    dtype
        ``float32`` makes greedy tokens independent of the batch's shape.
    max_num_seqs, max_model_len
        Requests at a time, and tokens per request.
    in_process
        Whether the engine core runs in this process, where its scheduler can be reached.
    seed
        The engine's seed.
    speculative
        Further entries of the engine's speculative configuration.
    engine_args
        Further arguments of the engine; they win over the ones set here.

    Raises
    ------
    ValueError
        The depth is below 1, or the method needs a draft model.
    """
    if method is not None and max_depth < 1:
        raise ValueError(f"max_depth must be >= 1, got {max_depth}")
    if method == "draft_model" and draft_model is None:
        raise ValueError("draft_model must be a folder for method 'draft_model', got None")
    # The engine reads it when it is built; an earlier engine of this process must not decide.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if in_process else "1"
    from vllm import LLM

    arguments: dict[str, Any] = {
        "model": str(Path(model)),
        "dtype": dtype,
        "max_num_seqs": max_num_seqs,
        "max_model_len": max_model_len,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": seed,
    }
    if method is not None:
        config: dict[str, Any] = {"method": method, "num_speculative_tokens": max_depth}
        if method == "ngram":
            config |= {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
        if draft_model is not None:
            config["model"] = str(draft_model)
        arguments["speculative_config"] = config | (speculative or {})
    if controller is not None:
        arguments |= controller.engine_args()
    return Engine(LLM(**(arguments | engine_args)), in_process)
