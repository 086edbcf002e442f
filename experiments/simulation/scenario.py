"""A scenario: what is served, how drafts fare and shift, how long steps take. One TOML file."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

FOLDER = Path(__file__).parent.parent / "scenarios"
"""Where the scenarios of this package lie."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Probabilities = Annotated[tuple[Probability, ...], Field(min_length=1)]


class _Table(BaseModel):
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


class EngineSection(_Table):
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


class ClosedArrivals(_Table):
    """Constant concurrency: a finished request is replaced at once."""

    kind: Literal["closed"]
    concurrency: int = Field(ge=1)
    requests: int = Field(ge=1)


class PoissonArrivals(_Table):
    """Arrivals that know nothing of each other."""

    kind: Literal["poisson"]
    rate_per_s: Positive
    requests: int = Field(ge=1)


class BurstArrivals(_Table):
    """Poisson arrivals whose rate rises by a factor in regular bursts."""

    kind: Literal["bursts"]
    rate_per_s: Positive
    requests: int = Field(ge=1)
    burst_factor: Positive
    every_s: Positive
    burst_s: Positive


class FileArrivals(_Table):
    """A trace of arrivals with their lengths; ``speed`` 2 lets them come twice as fast."""

    kind: Literal["file"]
    path: str
    speed: Positive = 1.0
    requests: int | None = Field(None, ge=1, description="Only the first so many.")


class Length(_Table):
    """Log-normal lengths."""

    mean: Positive
    variation: NotNegative = Field(0.0, description="Standard deviation over mean.")


class LengthsSection(_Table):
    """Tokens of prompts and answers: a number, or a mean and its variation."""

    prompt_tokens: int | Length = 100
    output_tokens: int | Length = 200


class StepTimeSection(_Table):
    """How long a step takes: exactly one of a table's file, its rows, or a roofline."""

    table: str | None = Field(None, description="CSV: batch, K, ms; relative to the scenario.")
    rows: tuple[tuple[float, float, float], ...] | None = Field(None, description="batch, K, ms")
    roofline: str | None = Field(None, description="a100, h100, h200 or rtx4090")
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


class Meaning(_Table):
    """What confidence c means: acceptance is logistic(a + b * logit(c))."""

    a: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    b: Annotated[float, Field(allow_inf_nan=False)] = 1.0


class DomainSection(_Table):
    """One traffic class; acceptance as survival or as conditional, and which it is is said."""

    name: str = Field(min_length=1, max_length=64)
    share: Positive = 1.0
    declared: bool = Field(True, description="Whether clients name the domain.")
    survival: Probabilities | None = None
    conditional: Probabilities | None = None
    reach: Probabilities | None = Field(None, description="P(draft has at least i tokens)")
    request_spread: NotNegative = Field(0.0, description="Between requests, in logits.")
    request_concentration: Positive | None = Field(None, description="The same as of a Beta.")
    token_scatter: NotNegative = Field(0.0, description="Between tokens, in logits.")
    confidence: Meaning | None = None
    ttft_slo_ms: Positive | None = None
    tpot_slo_ms: Positive | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _one_of(self, "survival", "conditional")
        if self.request_concentration is not None and self.request_spread:
            raise ValueError("must have request_spread or request_concentration, got both")
        return self


class ShiftSection(_Table):
    """A change of acceptance, or of what confidence means, in some domains or in all."""

    at_s: NotNegative
    domains: tuple[str, ...] | None = Field(None, description="Default: all at once.")
    over_s: NotNegative = Field(0.0, description="0: abrupt; else the mixture takes so long.")
    for_s: NotNegative = Field(0.0, description="0: for ever; else it goes as it came.")
    every_s: NotNegative = Field(0.0, description="0: once; else it recurs.")
    survival: Probabilities | None = None
    conditional: Probabilities | None = None
    reach: Probabilities | None = None
    move_logits: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        None, description="Covariate shift: confidence and acceptance move together."
    )
    confidence: Meaning | None = Field(
        None, description="Calibration shift: the same confidence means something else."
    )
    declare: Literal["draft", "model", "engine", "adapter"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _one_of(self, "survival", "conditional", "move_logits", "confidence")
        return self


class ThrottleSection(_Table):
    """A window in which every step takes longer by a factor."""

    from_s: NotNegative
    until_s: Positive
    factor: Positive


class Scenario(_Table):
    """A scenario; see the files in ``experiments/scenarios``.

    Examples
    --------
    >>> Scenario.read("stable").engine.max_depth
    5
    """

    title: str
    note: str = ""
    seed: int = Field(0, ge=0)
    until_s: Positive | None = Field(None, description="End here, whatever is left.")
    engine: EngineSection
    arrivals: ClosedArrivals | PoissonArrivals | BurstArrivals | FileArrivals = Field(
        discriminator="kind"
    )
    lengths: LengthsSection | None = None
    step_time: StepTimeSection
    domains: tuple[DomainSection, ...] = Field(min_length=1)
    shifts: tuple[ShiftSection, ...] = ()
    throttle: tuple[ThrottleSection, ...] = ()
    folder: Path = Field(Path("."), exclude=True, description="Where relative paths begin.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [domain.name for domain in self.domains]
        if len(set(names)) < len(names):
            raise ValueError(f"domains must have different names, got {', '.join(names)}")
        for what, sections in (("domains", self.domains), ("shifts", self.shifts)):
            for index, section in enumerate(sections):
                for kind in ("survival", "conditional", "reach"):
                    values = getattr(section, kind)
                    if values is not None and len(values) != self.engine.max_depth:
                        raise ValueError(
                            f"{what}.{index}.{kind} must have engine.max_depth = "
                            f"{self.engine.max_depth} positions, got {len(values)}"
                        )
        for index, shift in enumerate(self.shifts):
            for name in shift.domains or ():
                if name not in names:
                    raise ValueError(
                        f"shifts.{index}.domains must be among {', '.join(names)}, got {name!r}"
                    )
        if self.arrivals.kind == "file" and self.lengths is not None:
            raise ValueError("lengths must be absent where arrivals come from a file, got both")
        return self

    @classmethod
    def read(cls, source: str | os.PathLike[str]) -> Scenario:
        """Read a TOML file, or the scenario of this package that has the name.

        Raises
        ------
        ValueError
            The file is no TOML or no scenario; the message names the key and the rule.
        FileNotFoundError
            There is no such file or name; the message lists the names.
        """
        path = Path(source)
        if not path.exists():
            path = FOLDER / f"{path.name.removesuffix('.toml')}.toml"
        if not path.is_file():
            raise FileNotFoundError(
                f"scenario must be a TOML file or one of {', '.join(scenario_names())}, "
                f"got {str(source)!r}"
            )
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path.name} must be a scenario in TOML, got {error}") from None
        return cls.of({**data, "folder": path.parent}, name=path.name)

    @classmethod
    def of(cls, data: dict[str, Any], *, name: str = "scenario") -> Scenario:
        """Build from plain data.

        Raises
        ------
        ValueError
            A key is unknown or a value out of range; the message names all of them.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError("; ".join(_explain(name, e) for e in error.errors())) from None


def scenario_names() -> tuple[str, ...]:
    """Return the names of this package's scenarios."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def _one_of(section: BaseModel, *kinds: str) -> None:
    given = [kind for kind in kinds if getattr(section, kind) is not None]
    if len(given) != 1:
        raise ValueError(
            f"must have one of {', '.join(kinds)}, got {' and '.join(given) or 'none'}"
        )


def _explain(name: str, error: Any) -> str:
    """Say what is wrong in one line: the key, the rule, what was got."""
    kinds = ("closed", "poisson", "bursts", "file", "Length", "int")
    where = ".".join(str(part) for part in error["loc"] if part not in kinds)
    message = error["msg"].removeprefix("Value error, ")
    got = "" if error["type"] in ("value_error", "missing") else f", got {error['input']!r}"
    return f"{name}: {where + ': ' if where else ''}{message}{got}"
