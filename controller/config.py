"""One typed configuration for everything, in which an unknown key is an error."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

PositiveSeconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Milliseconds = Annotated[float, Field(gt=0, le=3_600_000, allow_inf_nan=False)]
ClassName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]

_BUILT_IN_CLASSES: dict[str, dict[str, float]] = {
    "interactive": {"ttft_ms": 500.0, "tpot_ms": 50.0},
    "standard": {"ttft_ms": 2000.0, "tpot_ms": 150.0},
    "batch": {},
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GuardConfig(_Section):
    """When the engine's own rule takes over."""

    late_ms: float = Field(50.0, gt=0, description="A call slower than this makes its step late.")
    backoff_s: PositiveSeconds = Field(10.0, description="First back-off; doubles each time.")
    max_trips: int = Field(5, ge=1, description="After so many trips: off until a reload.")


class SwitchConfig(_Section):
    """Stability of the depth."""

    dwell_s: float = Field(0.5, ge=0, description="A depth is held at least this long.")
    confidence: float = Field(
        1.64, ge=0, description="Standard errors below the estimate at which a gain must be > 0."
    )
    cost_tokens: float = Field(0.0, ge=0, description="Price of one switch, in tokens.")
    freeze_depth: int | None = Field(None, ge=0, description="Hold this depth, learn on.")


class LearnConfig(_Section):
    """Memory of the learners and the price of exploring."""

    acceptance_window_tokens: float = Field(400.0, ge=10)
    request_window_tokens: float = Field(40.0, ge=2)
    latency_window_steps: float = Field(150.0, ge=10)
    rate_window_s: PositiveSeconds = 5.0
    probe_share: Share = Field(0.02, description="Share of time that probes may cost at most.")
    false_alarms_per_day: float = Field(
        1.0,
        gt=0,
        description="Of shifts in acceptance, per domain; fewer delay true ones a little.",
    )
    max_slots: int = Field(64, ge=2, description="Domains kept apart; later ones share a slot.")


class SloClass(_Section):
    """What a request is promised by naming a class; a target that is missing is not promised."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None
    weight: float = Field(
        1.0, gt=0, le=100, allow_inf_nan=False, description="What a token of it counts, against 1."
    )
    tenants: tuple[str, ...] | None = Field(
        None, description="Tenants that may claim it; null for all."
    )


class SloConfig(_Section):
    """What clients are promised, and what they may ask for.

    Examples
    --------
    >>> slo = SloConfig.model_validate({"classes": {"gold": {"tpot_ms": 30, "tenants": ["a"]}}})
    >>> sorted(slo.classes), slo.classes["interactive"].tpot_ms
    (['batch', 'gold', 'interactive', 'standard'], 50.0)
    """

    classes: dict[ClassName, SloClass] = Field(
        default_factory=dict,
        max_length=32,
        validate_default=True,
        description="By name, beside interactive, standard and batch, whose keys can be replaced.",
    )
    default_class: str | None = Field(None, description="Of requests that claim none, or in vain.")
    trusted_tenants: tuple[str, ...] | None = Field(
        None, description="Tenants that may state targets and raise priorities; null for all."
    )
    least_ttft_ms: Milliseconds = Field(1.0, description="A client's shorter target becomes this.")
    least_tpot_ms: Milliseconds = 1.0
    least_e2e_ms: Milliseconds = 1.0
    priority_factor: float = Field(
        1.5, ge=1, le=10, description="A token counts so many times one of the next priority."
    )
    priority_levels: int = Field(4, ge=0, le=16, description="Priorities beyond count as this one.")
    base_tokens: float = Field(
        1.0,
        gt=0,
        le=1_000,
        allow_inf_nan=False,
        description="V: what a token is worth where nothing is owed; less makes debts count more.",
    )
    twin: Literal["off", "aggregate", "per_request"] = Field(
        "off",
        description="Who never falls behind the engine without speculation: nobody, the batch as a "
        "whole, or every request.",
    )
    eta: Share = Field(0.05, description="Share by which it may fall behind all the same.")
    lag_tokens: float = Field(
        8.0, ge=0, le=10_000, allow_inf_nan=False, description="And by so many tokens beside."
    )
    externality: bool = Field(
        True,
        description="Verify no more than leaves every target that can still be met within reach.",
    )
    fairness: float = Field(
        0.0,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="A tenant 1,000 tokens of work ahead has drafts worth 1/(1 + this); 0: no matter.",
    )

    @field_validator("classes", mode="before")
    @classmethod
    def _beside_the_built_in(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        merged: dict[Any, Any] = dict(_BUILT_IN_CLASSES)
        for name, own in given.items():
            built_in = _BUILT_IN_CLASSES.get(name)
            merged[name] = {**built_in, **own} if built_in and isinstance(own, dict) else own
        return merged

    @model_validator(mode="after")
    def _default_is_known(self) -> SloConfig:
        if self.default_class is not None and self.default_class not in self.classes:
            known = ", ".join(sorted(self.classes))
            raise ValueError(f"default_class must be one of {known}, got {self.default_class!r}")
        return self


class MlflowConfig(_Section):
    """Where the run is tracked."""

    enabled: bool = False
    tracking_uri: str | None = Field(None, description="Default: MLFLOW_TRACKING_URI or sqlite.")
    experiment: str | None = Field(
        None, description="Default: MLFLOW_EXPERIMENT_NAME or acclimate."
    )
    run_name: str | None = None
    parent_run_id: str | None = None
    interval_s: PositiveSeconds = 1.0
    spool_dir: str = "acclimate-out/spool"


class TraceConfig(_Section):
    """Where the event log goes; no path, no trace."""

    path: str | None = None
    rotate_mib: float = Field(64.0, gt=0)
    keep_segments: int = Field(8, ge=1)
    token_hashes: bool = Field(False, description="Salted hashes of prompt and output tokens.")


class MemoryConfig(_Section):
    """What the next start of the same engine begins with."""

    path: str | None = Field(
        None, description="Folder of what was learned; without one, every start is cold."
    )
    interval_s: PositiveSeconds = Field(300.0, description="Between two saves.")


class ControlConfig(_Section):
    """Configuration of a controller.

    Examples
    --------
    >>> ControlConfig.read({"seed": 3}).seed
    3
    >>> ControlConfig.read({"sede": 3})
    Traceback (most recent call last):
        ...
    ValueError: configuration key 'sede' is unknown; known here: enabled, guard, learn, max_depth, \
memory, mlflow, policy, residency, seed, shadow, share_state, slo, switch, trace, trust_domain
    """

    enabled: bool = True
    policy: str = Field(
        "adaptive",
        description="'adaptive', 'static:K', or 'package.module:factory' of your own Policy.",
    )
    shadow: bool = Field(
        False, description="Plan, record and learn, but let the engine's own rule act."
    )
    seed: int = Field(0, ge=0)
    max_depth: int | None = Field(None, ge=0, description="A cap below the engine's own.")
    trust_domain: str = Field("", max_length=64)
    residency: tuple[str, ...] = Field(
        (), max_length=32, description="Where the engine is, in words that a router knows."
    )
    share_state: bool = Field(
        True, description="Show load and beliefs to other processes of this user, for routers."
    )
    guard: GuardConfig = Field(default_factory=GuardConfig)
    switch: SwitchConfig = Field(default_factory=SwitchConfig)
    learn: LearnConfig = Field(default_factory=LearnConfig)
    slo: SloConfig = Field(default_factory=SloConfig)
    mlflow: MlflowConfig = Field(default_factory=MlflowConfig)
    trace: TraceConfig = Field(default_factory=TraceConfig)
    memory: MemoryConfig = Field(default_factory=MemoryConfig)

    @classmethod
    def read(
        cls, source: ControlConfig | dict[str, Any] | str | os.PathLike[str] | None
    ) -> ControlConfig:
        """Build from an object, a dict, the path of a JSON file, or nothing (the defaults).

        Raises
        ------
        ValueError
            A key is unknown or a value is out of range; the message names it.
        FileNotFoundError
            There is no such file.
        """
        from pydantic import ValidationError

        if source is None:
            return cls()
        if isinstance(source, cls):
            return source
        if isinstance(source, (str, os.PathLike)):
            text = Path(source).read_text(encoding="utf-8")
            try:
                source = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"configuration file must be JSON, got {error}") from error
        if not isinstance(source, dict):
            raise ValueError(f"configuration must be an object, got {type(source).__name__}")
        try:
            return cls.model_validate(source)
        except ValidationError as error:
            raise ValueError("; ".join(_explain(cls, e) for e in error.errors())) from None


def _explain(model: type[BaseModel], error: Any) -> str:
    """Say what is wrong in one line: the key, the rule, what was got."""
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        return f"configuration key '{where}': {error['msg']}, got {error['input']!r}"
    for part in error["loc"][:-1]:
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # a name in a dict of sections
        kind = field.annotation
        inner = get_args(kind)[-1] if get_origin(kind) is dict else kind
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            model = inner
    known = ", ".join(sorted(model.model_fields))
    return f"configuration key '{where}' is unknown; known here: {known}"
