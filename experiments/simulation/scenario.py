"""A scenario: what is served, how drafts fare and shift, how long steps take. One TOML file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from acclimate.experiments.simulation.scenario_sections import (
    BurstArrivals,
    ClosedArrivals,
    EngineSection,
    FileArrivals,
    Length,
    LengthsSection,
    NotNegative,
    PoissonArrivals,
    Positive,
    Probabilities,
    Section,
    StaggeredArrivals,
    StepTimeSection,
)

FOLDER = Path(__file__).parent.parent / "scenarios"
"""Where the scenarios of this package lie."""

Name = Annotated[str, Field(max_length=64)]


class Meaning(Section):
    """What confidence c means: acceptance is logistic(a + b * logit(c))."""

    a: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    b: Annotated[float, Field(allow_inf_nan=False)] = 1.0


class DomainSection(Section):
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
    e2e_slo_ms: Positive | None = None
    slo_class: Name = Field("", description="The class of service that clients claim.")
    tenant: Name = ""
    trust_domain: Name = Field("", description="Where the requests may be served, and with whom.")
    prompt_tokens: int | Length | None = Field(None, description="Default: those of lengths.")
    output_tokens: int | Length | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        _one_of(self, "survival", "conditional")
        if self.request_concentration is not None and self.request_spread:
            raise ValueError("must have request_spread or request_concentration, got both")
        return self


class ShiftSection(Section):
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
        if self.move_logits is None or self.confidence is None:
            _one_of(self, "survival", "conditional", "move_logits", "confidence")
        else:  # another drafter: surer or less sure, and its confidence means something else
            _one_of(self, "survival", "conditional", "move_logits")
        return self


class ThrottleSection(Section):
    """A window in which every step takes longer by a factor."""

    from_s: NotNegative
    until_s: Positive
    factor: Positive


class Scenario(Section):
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
    measure_from_s: NotNegative = Field(
        0.0, description="Requests that arrive before are served and not judged."
    )
    arrivals: (
        ClosedArrivals | PoissonArrivals | BurstArrivals | StaggeredArrivals | FileArrivals
    ) = Field(discriminator="kind")
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
        own = any(d.prompt_tokens is not None or d.output_tokens is not None for d in self.domains)
        if self.arrivals.kind == "file" and (self.lengths is not None or own):
            raise ValueError("lengths must be absent where arrivals come from a file, got both")
        if self.arrivals.kind == "staggered" and self.arrivals.peak_factor > len(self.domains):
            raise ValueError(
                "arrivals.peak_factor must be at most the number of domains "
                f"{len(self.domains)}, got {self.arrivals.peak_factor:g}"
            )
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
            # A name, or the folder of an experiment and a name.
            named = Path(*path.parts[-2:]) if len(path.parts) == 2 else Path(path.name)
            path = FOLDER / named.with_name(f"{named.name.removesuffix('.toml')}.toml")
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
    kinds = ("closed", "poisson", "bursts", "staggered", "file", "Length", "int")
    where = ".".join(str(part) for part in error["loc"] if part not in kinds)
    message = error["msg"].removeprefix("Value error, ")
    got = "" if error["type"] in ("value_error", "missing") else f", got {error['input']!r}"
    return f"{name}: {where + ': ' if where else ''}{message}{got}"
