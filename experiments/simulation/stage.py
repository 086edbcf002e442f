"""Builds what a scenario describes, fresh for every run: workload, drafts, step times, truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities, Change
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.acceptance import DrawnDrafts
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.disturbance import NoisyTime, ThrottledTime
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.roofline import GPUS, MODELS, RooflineTime
from acclimate.experiments.simulation.scenario import Scenario, ShiftSection
from acclimate.experiments.simulation.scenario_drafts import scenario_drafts
from acclimate.experiments.simulation.scenario_sections import ClosedArrivals, StepTimeSection
from acclimate.experiments.simulation.scenario_workload import scenario_workload
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.simulation.truth import DrawnTruth
from acclimate.experiments.workload import Workload


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """One scenario with one seed, ready for one run.

    Stages of one scenario and seed are alike: policies that run on them meet the same requests and
    the same luck. A stage serves one run, since its clock runs on.
    """

    scenario: Scenario
    seed: int
    clock: SimulatedClock
    capabilities: Capabilities
    workload: Workload
    drafts: DrawnDrafts
    step_time: StepTime
    truth: DrawnTruth
    limits: EngineLimits
    concurrency: int | None
    changes: tuple[tuple[float, Change], ...]

    @classmethod
    def of(cls, scenario: Scenario, *, seed: int | None = None) -> Stage:
        """Build a stage; the scenario's seed unless another is given.

        Examples
        --------
        >>> stage = Stage.of(Scenario.read("stable"))
        >>> stage.truth.domain_survival(0, 0).shape
        (5,)
        """
        seed = scenario.seed if seed is None else seed
        engine, clock = scenario.engine, SimulatedClock()
        workload = scenario_workload(scenario, np.random.default_rng(seed))
        drafts = scenario_drafts(scenario, workload, seed)
        exact = step_time_of(scenario.step_time, scenario.folder)
        if scenario.throttle:
            windows = [(t.from_s, t.until_s, t.factor) for t in scenario.throttle]
            exact = ThrottledTime(exact, clock, windows)
        noise = scenario.step_time.noise
        closed = scenario.arrivals if isinstance(scenario.arrivals, ClosedArrivals) else None
        return cls(
            scenario=scenario,
            seed=seed,
            clock=clock,
            capabilities=Capabilities(
                max_depth=engine.max_depth,
                depths=engine.depths or tuple(range(engine.max_depth + 1)),
                uniform_only=engine.uniform_only,
                honours_depth=engine.honours_depth,
                free_drafts=engine.free_drafts,
                hindsight=engine.hindsight,
                asynchronous=engine.asynchronous,
            ),
            workload=workload,
            drafts=drafts,
            step_time=NoisyTime(exact, noise, seed=seed) if noise else exact,
            truth=DrawnTruth(drafts, exact),
            limits=EngineLimits(
                max_num_seqs=max(engine.max_num_seqs, closed.concurrency if closed else 0),
                token_budget=engine.token_budget,
                kv_blocks=engine.kv_blocks,
                block_tokens=engine.block_tokens,
                prefill_first=engine.prefill_first,
                least_draft_passes=engine.least_draft_passes,
            ),
            concurrency=closed.concurrency if closed else None,
            changes=_changes(scenario.shifts),
        )

    @classmethod
    def copies(cls, scenario: Scenario, count: int, *, seed: int | None = None) -> list[Stage]:
        """Return stages for the engines of one fleet: one workload, a clock each."""
        stages = [cls.of(scenario, seed=seed) for _ in range(count)]
        return [dataclasses.replace(stage, workload=stages[0].workload) for stage in stages]

    def engine(
        self,
        policy: Policy,
        *,
        config: ControlConfig | None = None,
        log: Callable[[str], None] = lambda line: None,
        keep_steps: bool = True,
    ) -> SimulatedEngine:
        """Return an engine on which a policy runs."""
        loop = ControlLoop(
            policy,
            self.capabilities,
            config or ControlConfig(seed=self.seed),
            clock_ns=self.clock,
            log=log,
        )
        return SimulatedEngine(
            loop,
            self.workload,
            self.drafts,
            self.step_time,
            self.clock,
            limits=self.limits,
            concurrency=self.concurrency,
            changes=self.changes,
            keep_steps=keep_steps,
        )


def run_scenario(
    scenario: Scenario,
    arm: str,
    *,
    seed: int | None = None,
    config: ControlConfig | None = None,
    keep_steps: bool = True,
) -> Run:
    """Run one arm through a scenario.

    A closed loop ends when its last request was sent: what is left would run at ever lower
    concurrency.

    Parameters
    ----------
    arm
        As in `acclimate.experiments.arms`.

    Raises
    ------
    ValueError
        There is no such arm.
    RuntimeError
        The policy failed.

    Examples
    --------
    >>> run_scenario(Scenario.read("stable"), "k0").totals.verified
    0
    """
    stage = Stage.of(scenario, seed=seed)
    config = config or ControlConfig(seed=stage.seed)
    policy = arm_policy(arm, config, stage.capabilities, stage.truth)
    lines: list[str] = []
    engine = stage.engine(policy, config=config, log=lines.append, keep_steps=keep_steps)
    run = engine.run(until_s=scenario.until_s, drain=stage.concurrency is None)
    if lines:
        raise RuntimeError(f"policy {arm!r} must not fail in a simulation, got: {lines[0]}")
    return run


def step_time_of(section: StepTimeSection, folder: Path) -> StepTime:
    """Return the step times that a section describes; paths begin at ``folder``.

    Raises
    ------
    ValueError
        The table or the GPU cannot be used; the message says why.
    """
    if section.roofline is not None:
        return _roofline(section)
    options: dict[str, Any] = {
        "draft_share": section.draft_share,
        "prefill_ms_per_token": section.prefill_ms_per_token,
    }
    if section.table is not None:
        return TableTime.read(folder / section.table, **options)
    batch, depth, ms = zip(*section.rows or (), strict=True)
    return TableTime(batch, depth, ms, **options)


def _roofline(section: StepTimeSection) -> RooflineTime:
    gpu = section.roofline or ""
    models = (section.model, *((section.draft,) if section.draft else ()))
    named: list[tuple[str, str, Mapping[str, object]]] = [("roofline", gpu, GPUS)]
    named += [("model", model, MODELS) for model in models]
    for what, name, known in named:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}, got {name!r}")
    overheads = {"overhead_ms": section.overhead_ms, "draft_overhead_ms": section.draft_overhead_ms}
    return RooflineTime(
        GPUS[gpu].times(section.gpus),
        MODELS[section.model],
        draft=MODELS[section.draft] if section.draft else None,
        **{name: ms for name, ms in overheads.items() if ms is not None},
    )


def _changes(shifts: tuple[ShiftSection, ...]) -> tuple[tuple[float, Change], ...]:
    declared = [
        (shift.at_s, Change(kind=shift.declare, detail="scenario"))
        for shift in shifts
        if shift.declare is not None
    ]
    return tuple(sorted(declared, key=lambda item: item[0]))
