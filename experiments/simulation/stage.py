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
from acclimate.controller.records import Capabilities, Change, FloatArray, IntArray
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.arrivals import burst_arrivals, poisson_arrivals, staggered_arrivals
from acclimate.experiments.readers.arrival_files import read_arrivals
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.acceptance import ConfidentDrafts, DrawnDrafts, Shift
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.disturbance import NoisyTime, ThrottledTime
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.regimes import Regime, spread_of, to_survival
from acclimate.experiments.simulation.roofline import GPUS, MODELS, RooflineTime
from acclimate.experiments.simulation.scenario import DomainSection, Scenario, ShiftSection
from acclimate.experiments.simulation.scenario_sections import (
    ClosedArrivals,
    FileArrivals,
    Length,
    LengthsSection,
    StepTimeSection,
)
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
        workload = _workload(scenario, np.random.default_rng(seed))
        drafts = _drafts(scenario, workload, seed)
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


def _workload(scenario: Scenario, rng: np.random.Generator) -> Workload:
    arrivals, domains = scenario.arrivals, scenario.domains
    shares = np.array([domain.share for domain in domains])
    shares = shares / shares.sum()
    staggered: IntArray | None = None
    if isinstance(arrivals, FileArrivals):
        trace = read_arrivals(scenario.folder / arrivals.path).value
        arrival_s = trace.arrival_s[: arrivals.requests] / arrivals.speed
        prompt = trace.prompt_tokens[: arrivals.requests]
        output = trace.output_tokens[: arrivals.requests]
    elif arrivals.kind == "staggered":
        arrival_s, staggered = staggered_arrivals(
            arrivals.duration_s,
            arrivals.rate_per_s * shares,
            rng,
            every_s=arrivals.every_s,
            peak_factor=arrivals.peak_factor,
        )
    else:
        n = arrivals.requests
        if arrivals.kind == "closed":
            arrival_s = np.zeros(n)
        elif arrivals.kind == "poisson":
            arrival_s = poisson_arrivals(n, arrivals.rate_per_s, rng)
        else:
            arrival_s = burst_arrivals(
                n,
                arrivals.rate_per_s,
                rng,
                burst_factor=arrivals.burst_factor,
                every_s=arrivals.every_s,
                burst_s=arrivals.burst_s,
            )
    n = arrival_s.shape[0]
    if not isinstance(arrivals, FileArrivals):
        lengths = scenario.lengths or LengthsSection()
        prompt = _lengths(lengths.prompt_tokens, n, rng)
        output = _lengths(lengths.output_tokens, n, rng)
    if staggered is None:
        staggered = np.asarray(rng.choice(len(domains), size=n, p=shares), dtype=np.int64)
    domain_of = staggered
    for index, domain in enumerate(domains):
        inside = domain_of == index
        if domain.prompt_tokens is not None:
            prompt[inside] = _lengths(domain.prompt_tokens, int(inside.sum()), rng)
        if domain.output_tokens is not None:
            output[inside] = _lengths(domain.output_tokens, int(inside.sum()), rng)
    declared = np.array([i if d.declared else -1 for i, d in enumerate(domains)], dtype=np.int64)
    return Workload(
        arrival_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=output,
        domain=tuple(domain.name for domain in domains),
        domain_of=domain_of,
        label_of=declared[domain_of],
        tpot_s=_targets([domain.tpot_slo_ms for domain in domains], domain_of),
        ttft_s=_targets([domain.ttft_slo_ms for domain in domains], domain_of),
        e2e_s=_targets([domain.e2e_slo_ms for domain in domains], domain_of),
        slo_class=tuple(domain.slo_class for domain in domains),
        tenant=tuple(domain.tenant for domain in domains),
        tenant_of=domain_of,
        trust_domain=tuple(domain.trust_domain for domain in domains),
        trust_of=domain_of,
    )


def _lengths(length: int | Length, n: int, rng: np.random.Generator) -> IntArray:
    if isinstance(length, int):
        return np.full(n, length, dtype=np.int64)
    variance = np.log1p(length.variation**2)
    drawn = rng.lognormal(np.log(length.mean) - 0.5 * variance, np.sqrt(variance), size=n)
    whole: IntArray = np.maximum(np.rint(drawn), 1.0).astype(np.int64)
    return whole


def _targets(of_domain: list[float | None], domain_of: IntArray) -> FloatArray | None:
    if all(target is None for target in of_domain):
        return None
    seconds = np.array([np.nan if target is None else target / 1e3 for target in of_domain])
    return seconds[domain_of]


def _drafts(scenario: Scenario, workload: Workload, seed: int) -> DrawnDrafts:
    domains, shifts = scenario.domains, []
    regimes = [_regime(domain, domain) for domain in domains]
    for section in scenario.shifts:
        targets = []
        for index, domain in enumerate(domains):
            if section.domains is not None and domain.name not in section.domains:
                targets.append(-1)
                continue
            targets.append(len(regimes))
            regimes.append(_shifted(regimes[index], domain, section))
        shifts.append(
            Shift(
                at_s=section.at_s,
                regime_of=tuple(targets),
                over_s=section.over_s,
                for_s=section.for_s,
                every_s=section.every_s,
            )
        )
    tells = any(domain.confidence is not None for domain in domains)
    source = ConfidentDrafts if tells else DrawnDrafts
    return source(regimes, tuple(range(len(domains))), workload.domain_of, shifts=shifts, seed=seed)


def _regime(domain: DomainSection, law: DomainSection | ShiftSection) -> Regime:
    """Return the law whose acceptance ``law`` states, for the requests of a domain."""
    survival = law.survival or to_survival(law.conditional or ())
    spread = domain.request_spread
    if domain.request_concentration is not None:
        first = min(max(float(survival[0]), 0.01), 0.99)
        spread = spread_of(domain.request_concentration, first)
    meaning = domain.confidence
    return Regime.of_survival(
        survival,
        reach=law.reach if law.reach is not None else domain.reach,
        spread=spread,
        scatter=domain.token_scatter,
        a=0.0 if meaning is None else meaning.a,
        b=1.0 if meaning is None else meaning.b,
    )


def _shifted(base: Regime, domain: DomainSection, section: ShiftSection) -> Regime:
    if section.move_logits is not None or section.confidence is not None:
        moved = base.moved(section.move_logits or 0.0)
        meaning = section.confidence
        return moved if meaning is None else moved.recalibrated(meaning.a, meaning.b)
    return _regime(domain, section)


def _changes(shifts: tuple[ShiftSection, ...]) -> tuple[tuple[float, Change], ...]:
    declared = [
        (shift.at_s, Change(kind=shift.declare, detail="scenario"))
        for shift in shifts
        if shift.declare is not None
    ]
    return tuple(sorted(declared, key=lambda item: item[0]))
