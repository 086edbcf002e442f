"""``acclimate doctor``: what is on, limited or off on this installation, and why."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import acclimate

if TYPE_CHECKING:
    from rich.table import Table

_ENTRY_POINT_GROUP = "vllm.general_plugins"
_VALUES = {"on": 1.0, "limited": 0.5, "off": 0.0}


class State(StrEnum):
    """Whether a part works."""

    ON = "on"
    LIMITED = "limited"
    OFF = "off"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One line of the diagnosis."""

    part: str
    state: State
    why: str


def doctor(*, json: Path | None = None) -> int:
    """Show the diagnosis; return 0 if a controller can act here, else 1.

    Parameters
    ----------
    json
        Also write a figure per part: 1 on, 0.5 limited, 0 off.
    """
    from rich.console import Console

    findings = diagnose()
    Console().print(doctor_table(findings))
    if json is not None:
        from acclimate.experiments.figures import Figure, Meta, write_figures

        figures = [Figure(f"doctor/{f.part.replace(' ', '_')}", _VALUES[f.state]) for f in findings]
        write_figures(json, figures, Meta("doctor"))
    needed = {"vllm", "hooks"}
    return int(any(f.part in needed and f.state is State.OFF for f in findings))


def doctor_table(findings: list[Finding]) -> Table:
    """Return the diagnosis as a table.

    Examples
    --------
    >>> doctor_table([Finding("vllm", State.OFF, "not installed")]).row_count
    1
    """
    from rich.table import Table

    colours = {State.ON: "green", State.LIMITED: "yellow", State.OFF: "red"}
    table = Table("part", "state", "why", title=f"acclimate {acclimate.__version__}")
    for finding in findings:
        colour = colours[finding.state]
        table.add_row(finding.part, f"[{colour}]{finding.state}[/{colour}]", finding.why)
    return table


def diagnose() -> list[Finding]:
    """Look at this installation; works without an engine too."""
    findings = _engine()
    findings.append(_plugin())
    findings.append(_opt_in())
    findings.append(_openmp())
    findings.append(_tracking())
    return findings


def _engine() -> list[Finding]:
    from acclimate.integrations.vllm import compat

    if importlib.util.find_spec("vllm") is None:
        return [Finding("vllm", State.OFF, "not installed: pip install 'acclimate[vllm]'")]
    try:
        version = compat.engine_version()
        reason = compat.version_reason(version)
        if reason is not None:
            return [Finding("vllm", State.OFF, reason)]
        findings = [Finding("vllm", State.ON, f"version {version}")]
        reason = compat.hook_reason()
        findings.append(
            Finding("hooks", State.ON, f"{len(compat.HOOKS)} methods as expected")
            if reason is None
            else Finding("hooks", State.OFF, reason)
        )
        here = compat.platform()
    except Exception as error:
        return [Finding("vllm", State.OFF, f"{type(error).__name__}: {error}")]
    findings.append(Finding("device", State.ON, here.device))
    findings.append(
        Finding("runner", State.ON, "v1: draft ids are visible, hindsight grading works")
        if here.runner == "v1"
        else Finding("runner", State.LIMITED, "v2 by default: draft ids are not visible")
    )
    findings.append(
        Finding("async", State.LIMITED, "by default with model drafters: no hindsight grading")
        if here.asynchronous
        else Finding("async", State.OFF, "this platform never schedules ahead; nothing is lost")
    )
    return findings + _methods(here.runner)


def _methods(runner: str) -> list[Finding]:
    from acclimate.integrations.vllm.capabilities import TRAITS, method_traits

    findings = []
    for method in sorted({name for name, known in TRAITS if known == runner}):
        traits = method_traits(method, runner)
        controls = "depth and verify lengths" if traits.honours_depth else "verify lengths only"
        state = State.ON if traits.honours_depth else State.LIMITED
        why = controls if not traits.note else f"{controls} ({traits.note})"
        findings.append(Finding(f"method {method}", state, why))
    return [*findings, Finding("other methods", State.LIMITED, "verify lengths only")]


def _plugin() -> Finding:
    allowed = os.environ.get("VLLM_PLUGINS")
    found = importlib.metadata.entry_points(group=_ENTRY_POINT_GROUP)
    if "acclimate" not in {point.name for point in found}:
        return Finding("plugin", State.OFF, "entry point missing: reinstall, or use scheduler_cls")
    if allowed is not None and "acclimate" not in allowed.split(","):
        return Finding("plugin", State.OFF, f"VLLM_PLUGINS={allowed} leaves it out")
    return Finding("plugin", State.ON, "registered")


def _opt_in() -> Finding:
    from acclimate.integrations.vllm.settings import CONFIG_FILE, SWITCH, read_settings

    switch = os.environ.get(SWITCH)
    try:
        read_settings({})
    except (OSError, ValueError) as error:
        return Finding("opt-in", State.OFF, f"{CONFIG_FILE}: {error}")
    if switch == "0":
        return Finding("opt-in", State.OFF, f"{SWITCH}=0 switches every controller off")
    if switch == "1":
        return Finding("opt-in", State.ON, f"{SWITCH}=1: every engine with a drafter")
    return Finding(
        "opt-in",
        State.LIMITED,
        f"by engine: additional_config or scheduler_cls; {SWITCH}=1 for all",
    )


def _openmp() -> Finding:
    if "libiomp5" in os.environ.get("LD_PRELOAD", ""):
        return Finding("openmp", State.ON, "libiomp5 is preloaded")
    if (Path(sys.prefix) / "lib" / "libiomp5.so").exists():
        return Finding(
            "openmp", State.LIMITED, "libiomp5 is not preloaded; demo and bench do it themselves"
        )
    return Finding("openmp", State.LIMITED, "libiomp5 is missing: CPU engines stall without it")


def _tracking() -> Finding:
    try:
        version = importlib.metadata.version("mlflow")
    except importlib.metadata.PackageNotFoundError:
        return Finding("mlflow", State.OFF, "not installed: pip install 'acclimate[mlflow]'")
    where = os.environ.get("MLFLOW_TRACKING_URI", "sqlite by default")
    return Finding("mlflow", State.ON, f"version {version}, {where}")
