"""What a scenario's file says of the engine, its arrivals, its lengths and its step times."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Probabilities = Annotated[tuple[Probability, ...], Field(min_length=1)]


class Section(BaseModel):
    """A table of the file, in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = sorted(cls.model_fields)
            for key in data:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(key, known, n=1)
                    hint = f" (did you mean {near[0]!r}?)" if near else ""
                    raise ValueError(f"unknown key {key!r}{hint}; known here: {', '.join(known)}")
        return data


class EngineSection(Section):
    """The engine: what it can hold, and what it lets a policy choose."""

    max_depth: int = Field(ge=1, le=64, description="num_speculative_tokens")
    depths: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        None, description="Draft depths to choose from; default: all."
    )
    max_num_seqs: int = Field(256, ge=1)
    token_budget: int = Field(8_192, ge=1)
    kv_blocks: int | None = Field(None, ge=1)
    block_tokens: int = Field(16, ge=1)
    free_drafts: bool = False
    hindsight: bool = True
    uniform_only: bool = False
    honours_depth: bool = True
    asynchronous: bool = False
    least_draft_passes: int = Field(
        0, ge=0, description="Of the draft model, in a step that asks for fewer drafts."
    )
    prefill_first: bool = Field(
        False, description="A step that can hold prompts holds nothing else, as in early vLLM."
    )


class ClosedArrivals(Section):
    """Constant concurrency: a finished request is replaced at once."""

    kind: Literal["closed"]
    concurrency: int = Field(ge=1)
    requests: int = Field(ge=1)


class PoissonArrivals(Section):
    """Arrivals that know nothing of each other."""

    kind: Literal["poisson"]
    rate_per_s: Positive
    requests: int = Field(ge=1)


class BurstArrivals(Section):
    """Poisson arrivals whose rate rises by a factor in regular bursts."""

    kind: Literal["bursts"]
    rate_per_s: Positive
    requests: int = Field(ge=1)
    burst_factor: Positive
    every_s: Positive
    burst_s: Positive


class StaggeredArrivals(Section):
    """Domains peak in turn; each keeps its mean rate, the share that its section states."""

    kind: Literal["staggered"]
    rate_per_s: Positive = Field(description="Of all domains together, on average.")
    duration_s: Positive
    every_s: Positive = Field(description="After this time every domain has had its peak once.")
    peak_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)]


class FileArrivals(Section):
    """A trace of arrivals with their lengths; ``speed`` 2 lets them come twice as fast."""

    kind: Literal["file"]
    path: str
    speed: Positive = 1.0
    requests: int | None = Field(None, ge=1, description="Only the first so many.")


class Length(Section):
    """Log-normal lengths."""

    mean: Positive
    variation: NotNegative = Field(0.0, description="Standard deviation over mean.")


class LengthsSection(Section):
    """Tokens of prompts and answers: a number, or a mean and its variation."""

    prompt_tokens: int | Length = 100
    output_tokens: int | Length = 200


class StepTimeSection(Section):
    """How long a step takes: exactly one of a table's file, its rows, or a roofline."""

    table: str | None = Field(None, description="CSV: batch, K, ms; relative to the scenario.")
    rows: tuple[tuple[float, float, float], ...] | None = Field(None, description="batch, K, ms")
    roofline: str | None = Field(None, description="a100, h100, h200 or rtx4090")
    gpus: int = Field(1, ge=1, description="Cards that share the model, for a roofline.")
    model: str = Field("llama_8b", description="The target, for a roofline.")
    draft: str | None = Field(None, description="The draft model, for a roofline; none: free.")
    overhead_ms: NotNegative | None = Field(None, description="Of a step, for a roofline.")
    draft_overhead_ms: NotNegative | None = Field(None, description="Of a pass of the draft model.")
    draft_share: Probability = 0.0
    prefill_ms_per_token: NotNegative | None = None
    noise: NotNegative = Field(0.0, description="Standard deviation of log duration.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("table", "rows", "roofline") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"must have one of table, rows and roofline, got {' and '.join(given) or 'none'}"
            )
        return self
