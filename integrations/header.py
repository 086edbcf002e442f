"""What a trace or a tracked run says of the engine it came from."""

from __future__ import annotations

import msgspec

from acclimate.controller.records import Capabilities


class EngineHeader(msgspec.Struct, frozen=True, kw_only=True):
    """One engine core, as far as a reader of its trace must know it.

    ``lookup_min`` and ``lookup_max`` are the n-gram window, None for other drafters. Units of every
    record are in their names; ``_ns`` fields are monotonic nanoseconds since an arbitrary start.
    """

    engine: str
    engine_version: str
    runner: str
    model: str
    dtype: str
    method: str
    device: str
    capabilities: Capabilities
    max_model_len: int
    max_num_seqs: int
    engine_id: str = "0"
    rank: int = 0
    lookup_min: int | None = None
    lookup_max: int | None = None
    seed: int = 0
