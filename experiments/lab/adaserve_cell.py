"""One cell of ``lab adaserve``: an arm at one load in one setting, and whose targets it met."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.measures import met_targets
from acclimate.experiments.peers.adaserve import AdaServe, Shape
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.stage import Stage

if TYPE_CHECKING:
    from acclimate.experiments.run_record import Run

SETTINGS = ("stationary", "covariate", "calibration", "swap")
"""Scenarios in the folder ``adaserve``; ``calibration_x<s>`` is the shift's size times s."""

PLAIN_ARMS = {"none": 0, "spec4": 4, "spec6": 6, "spec8": 8}
"""Arms on an engine as the published vLLM was, with their depths: prompts first, no chunks."""

ARMS = (
    *("none", "chunked", "spec4", "spec6", "spec8"),
    *("adaserve", "adaserve_ascending", "adaserve_true", "adaptive"),
)

BUDGET_TOKENS = 128
"""What AdaServe may verify in a step. Its authors profile their GPUs for it, and print 512 and 256;
on these step times 128 serves it best of 96 to 512, and more costs it attainment."""

SPEC_OVERHEAD_MS = 25.0
"""What a step of the published vLLM-Spec takes beyond its parts: with it ``spec4`` comes to the
published 52 % at the middle load. The roofline alone puts ``spec4`` ahead of ``chunked``."""

_LEAST_DEPTH = 4
_PLAIN_BUDGET_TOKENS = 8_192  # early vLLM's tokens of prompts in a step


class AdaServeCell(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    Parameters
    ----------
    setting
        One of `SETTINGS`, or ``calibration_x<s>``.
    arm
        One of `ARMS`.
    rate_per_s
        Requests per second, on average.
    budget_tokens
        What AdaServe may verify in a step.
    duration_s
        Until when requests arrive; None: as the scenario says.
    """

    setting: str
    arm: str
    rate_per_s: float
    seed: int
    budget_tokens: int = BUDGET_TOKENS
    spec_overhead_ms: float = SPEC_OVERHEAD_MS
    duration_s: float | None = None

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"{self.setting}/{self.arm}/rps{self.rate_per_s:g}/seed{self.seed}"


class ClassCount(msgspec.Struct, frozen=True):
    """Judged requests of a class, and how many of them met their targets."""

    name: str
    requests: int
    met: int


class AdaServeRow(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a cell: of the requests that arrived after the scenario's ``measure_from_s``.

    Parameters
    ----------
    classes
        Requests per class, and how many met their targets.
    tokens, goodput_tokens
        Output tokens of these requests, and of those that met their targets.
    window_s
        Time in which they arrived.
    steps, step_ms, verified, accepted
        Engine steps, their mean time, and drafts of the whole run.
    """

    key: str
    cell: AdaServeCell
    classes: list[ClassCount]
    tokens: int
    goodput_tokens: int
    window_s: float
    steps: int
    step_ms: float
    verified: int
    accepted: int

    @property
    def attainment(self) -> float:
        """Share of judged requests that met their targets."""
        total = sum(each.requests for each in self.classes)
        return sum(each.met for each in self.classes) / max(total, 1)

    @property
    def violations(self) -> float:
        """Share of judged requests that missed a target."""
        return 1.0 - self.attainment

    @property
    def goodput_tokens_per_s(self) -> float:
        """Output tokens of the requests that met their targets, per second of arrivals."""
        return self.goodput_tokens / self.window_s


def adaserve_scenario(cell: AdaServeCell) -> Scenario:
    """Return the scenario of a cell, at its load and with its shift.

    Raises
    ------
    ValueError
        There is no such setting.
    """
    name, sized, size = cell.setting.partition("_x")
    if name not in SETTINGS or (sized and name != "calibration"):
        raise ValueError(
            f"setting must be one of {', '.join(SETTINGS)} or calibration_x<s>, got "
            f"{cell.setting!r}"
        )
    scenario = Scenario.read(f"adaserve/{name}")
    arrivals = {"rate_per_s": cell.rate_per_s}
    if cell.duration_s is not None:
        arrivals["duration_s"] = cell.duration_s
    changes: dict[str, object] = {"arrivals": scenario.arrivals.model_copy(update=arrivals)}
    if PLAIN_ARMS.get(cell.arm):
        times = scenario.step_time
        slower = (times.overhead_ms or 0.0) + cell.spec_overhead_ms
        changes["step_time"] = times.model_copy(update={"overhead_ms": slower})
    if sized:
        (shift,) = scenario.shifts
        meaning = shift.confidence
        if meaning is None:
            raise ValueError("adaserve/calibration must shift what confidence means, got no shift")
        scaled = meaning.model_copy(update={"a": float(size) * meaning.a})
        changes["shifts"] = (shift.model_copy(update={"confidence": scaled}),)
    return scenario.model_copy(update=changes)


def run_adaserve_cell(cell: AdaServeCell) -> AdaServeRow:
    """Run a cell; the same cell gives the same row."""
    scenario = adaserve_scenario(cell)
    stage = Stage.of(scenario, seed=cell.seed)
    stage = dataclasses.replace(stage, limits=_limits(cell.arm, stage.limits))
    config = ControlConfig(seed=cell.seed)
    lines: list[str] = []
    policy = _policy(cell, config, stage)
    engine = stage.engine(policy, config=config, log=lines.append, keep_steps=False)
    run = engine.run()
    if lines:
        raise RuntimeError(f"policy {cell.arm!r} must not fail in a simulation, got: {lines[0]}")
    return _row(cell, run, scenario)


def _limits(arm: str, limits: EngineLimits) -> EngineLimits:
    """Return what an arm's engine can hold; without speculation there is no draft model either."""
    if arm in ("none", "chunked"):
        limits = dataclasses.replace(limits, least_draft_passes=0)
    if arm in PLAIN_ARMS:
        limits = dataclasses.replace(limits, prefill_first=True, token_budget=_PLAIN_BUDGET_TOKENS)
    return limits


def _policy(cell: AdaServeCell, config: ControlConfig, stage: Stage) -> Policy:
    engine, truth = stage.capabilities, stage.truth
    if cell.arm in PLAIN_ARMS:
        return arm_policy(f"k{PLAIN_ARMS[cell.arm]}", config, engine)
    if cell.arm == "chunked":
        return arm_policy("k0", config, engine)
    if not cell.arm.startswith("adaserve"):
        return arm_policy(cell.arm, config, engine, truth)
    return AdaServe(
        engine,
        descending=cell.arm != "adaserve_ascending",
        profile=truth.step_time,
        shape=Shape(budget_tokens=cell.budget_tokens, least_depth=_LEAST_DEPTH),
        truth=truth if cell.arm == "adaserve_true" else None,
    )


def _row(cell: AdaServeCell, run: Run, scenario: Scenario) -> AdaServeRow:
    from_s = scenario.measure_from_s
    judged = run.arrival_s >= from_s
    met = judged & (met_targets(run) == 1.0) & run.finished
    totals = run.totals
    return AdaServeRow(
        key=cell.key,
        cell=cell,
        classes=[
            ClassCount(
                name,
                int(np.count_nonzero(judged & (run.domain_of == index))),
                int(np.count_nonzero(met & (run.domain_of == index))),
            )
            for index, name in enumerate(run.domain)
        ],
        tokens=int(run.tokens[judged].sum()),
        goodput_tokens=int(run.tokens[met].sum()),
        window_s=_duration_s(scenario) - from_s,
        steps=totals.steps,
        step_ms=totals.duration_ms / max(totals.steps, 1),
        verified=totals.verified,
        accepted=totals.accepted,
    )


def _duration_s(scenario: Scenario) -> float:
    if scenario.arrivals.kind != "staggered":
        raise ValueError(f"arrivals must be staggered, got {scenario.arrivals.kind!r}")
    return scenario.arrivals.duration_s
