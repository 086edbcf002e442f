"""What tests say of the engine that a trace or a tracked run came from."""

from __future__ import annotations

from typing import Any

from acclimate.controller.records import Capabilities
from acclimate.integrations.header import EngineHeader


def engine_header(capabilities: Capabilities, **changes: Any) -> EngineHeader:
    """Return the header of an n-gram engine without a model."""
    said: dict[str, Any] = {
        "engine": "scripted",
        "engine_version": "1",
        "runner": "v1",
        "model": "none",
        "dtype": "float32",
        "method": "ngram",
        "device": "cpu",
        "max_model_len": 1024,
        "max_num_seqs": 8,
    }
    return EngineHeader(capabilities=capabilities, **{**said, **changes})
