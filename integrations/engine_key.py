"""What an engine is, as far as what was learned on it depends on that."""

from __future__ import annotations

from typing import Any

import msgspec

from acclimate.controller.warm_start import ACCEPTANCE, STEP_TIMES
from acclimate.integrations.header import EngineHeader

_TARGET = ("model", "quantization", "dtype")
_FIELDS = {
    ACCEPTANCE: (
        "engine",
        *_TARGET,
        "method",
        "draft_model",
        "max_depth",
        "lookup_min",
        "lookup_max",
    ),
    STEP_TIMES: (
        "engine",
        "engine_version",
        "runner",
        "device",
        *_TARGET,
        "graph_mode",
        "capture_sizes",
        "method",
        "max_depth",
        "tensor_parallel",
        "pipeline_parallel",
        "data_parallel",
        "asynchronous",
    ),
}


class EngineKey(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of an engine; each part of what is learned depends on some of its fields.

    Parameters
    ----------
    engine, engine_version, runner
        The software.
    device
        Name of the GPU, or of the processor.
    model, quantization, dtype
        Of the target; quantization is empty for none.
    graph_mode, capture_sizes
        Which CUDA graphs it captured; empty for none.
    method, draft_model, max_depth
        How it drafts, and how far at most.
    lookup_min, lookup_max
        The n-gram window, None for other drafters.
    tensor_parallel, pipeline_parallel, data_parallel
        Sizes.
    asynchronous
        Whether it schedules one step ahead.
    """

    engine: str
    engine_version: str
    runner: str
    device: str
    model: str
    dtype: str
    method: str
    max_depth: int
    quantization: str = ""
    graph_mode: str = ""
    capture_sizes: tuple[int, ...] = ()
    draft_model: str = ""
    lookup_min: int | None = None
    lookup_max: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    asynchronous: bool = False

    @classmethod
    def of(cls, header: EngineHeader, **more: Any) -> EngineKey:
        """Return the key of an engine: what its header says, and ``more`` in place of it."""
        known = {
            "engine": header.engine,
            "engine_version": header.engine_version,
            "runner": header.runner,
            "device": header.device,
            "model": header.model,
            "dtype": header.dtype,
            "method": header.method,
            "max_depth": header.capabilities.max_depth,
            "capture_sizes": header.capabilities.capture_sizes,
            "lookup_min": header.lookup_min,
            "lookup_max": header.lookup_max,
            "asynchronous": header.capabilities.asynchronous,
        }
        return cls(**{**known, **more})

    def part(self, name: str) -> dict[str, Any]:
        """Return, as plain data, what must be the same for a part to be worth anything.

        Step times depend on the machine, and acceptance on what drafts and what is drafted for:
        another GPU leaves acceptance as it was, and another draft model step times.

        Examples
        --------
        >>> key = EngineKey(
        ...     engine="vllm", engine_version="0.32.0", runner="v1", device="H200", model="m",
        ...     dtype="bfloat16", method="eagle", max_depth=4, draft_model="d")
        >>> other = msgspec.structs.replace(key, device="H100")
        >>> [other.part(name) == key.part(name) for name in (ACCEPTANCE, STEP_TIMES)]
        [True, False]
        """
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {field: plain[field] for field in _FIELDS[name]}

    def named(self, model: str) -> str:
        """Return the key in words for people, ``model`` being what the model is called."""
        mode = "async" if self.asynchronous else "sync"
        what = (
            self.device,
            model,
            self.dtype,
            f"{self.engine} {self.engine_version}",
            self.runner,
            mode,
            f"{self.method}:{self.max_depth}",
            f"tp{self.tensor_parallel}",
        )
        return " | ".join(what)
