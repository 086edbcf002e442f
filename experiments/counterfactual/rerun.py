"""Serves recorded traffic again with another policy, in times that were learned from the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.experiments.counterfactual.passes import Pass
from acclimate.experiments.counterfactual.speeds import Speeds
from acclimate.experiments.counterfactual.traffic import Traffic
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.curve_time import CurveTime
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.integrations.header import EngineHeader
from acclimate.predictors.latency import StepLatency

_STATIONARY_STEPS = 1e12  # nothing learned from a trace fades
_MEASURED_STEPS = 3
NGRAM = "ngram"


def learned_time(
    passes: Iterable[Pass], engine: EngineHeader
) -> tuple[CurveTime, Counter[tuple[int, int]]]:
    """Learn step times from all steps of some passes, none of them fading.

    Returns
    -------
    times, measured
        The curve, and how often each (decode requests, verified drafts) was seen.

    Raises
    ------
    ValueError
        No step has a duration.
    """
    seats = max(engine.max_num_seqs, 1)
    model = StepLatency(
        seats, seats * engine.capabilities.max_depth, window_steps=_STATIONARY_STEPS
    )
    measured: Counter[tuple[int, int]] = Counter()
    for one in passes:
        for outcome in one.outcomes:
            if outcome.latency_ns is None or outcome.latency_ns <= 0:
                continue
            model.learn(
                outcome.decode_requests,
                outcome.verified_tokens,
                latency_ms=outcome.latency_ns / 1e6,
                prefill_tokens=outcome.prefill_tokens,
                context_tokens=outcome.context_tokens,
                sampled_rows=outcome.sampled_rows,
                draft_depth=outcome.draft_depth,
            )
            measured[outcome.decode_requests, outcome.verified_tokens] += 1
    if not measured:
        raise ValueError("step times must be learned from a trace with outcomes, got none")
    return CurveTime(model), measured


def rerun(
    traffic: Traffic,
    policy: Policy,
    engine: EngineHeader,
    step_time: StepTime,
    config: ControlConfig | None = None,
) -> Run:
    """Serve recorded traffic again on a simulated engine, with another policy and its own batches.

    In a closed loop a request is sent when the number in the engine has fallen below what it was
    when the request was sent in the record; in an open loop at its recorded time.

    Raises
    ------
    RuntimeError
        The policy failed: its plans were not what was measured.
    """
    clock = SimulatedClock(traffic.begun_ns)
    lines: list[str] = []
    loop = ControlLoop(
        policy, engine.capabilities, config or ControlConfig(), clock_ns=clock, log=lines.append
    )
    limits = EngineLimits(max_num_seqs=max(engine.max_num_seqs, 1))
    simulated = SimulatedEngine(
        loop, traffic.workload, traffic.drafts, step_time, clock, limits=limits
    )
    if traffic.seats is None:
        run = simulated.run()
    else:
        sent, seats = 0, traffic.seats.tolist()
        while True:
            while sent < len(seats) and simulated.in_system < seats[sent]:
                simulated.submit(sent, clock.now_ns)
                sent += 1
            if not simulated.in_system:
                break
            clock.now_ns += simulated.begin()
            simulated.finish()
        run = simulated.result()
    if lines:
        raise RuntimeError(f"policy {policy.name!r} must not fail in a replay, got: {lines[0]}")
    return run


def speeds_of(run: Run) -> Speeds:
    """Return a run's speeds as those of a pass."""
    totals = run.totals
    return Speeds(
        totals.committed + totals.first_tokens,
        totals.duration_ms / 1e3,
        totals.plain_tokens,
        totals.plain_ms / 1e3,
        totals.steps,
    )


def measured_share(run: Run, measured: Counter[tuple[int, int]]) -> float:
    """Return the share of a run's steps at loads that were measured; the rest is interpolated."""
    steps = run.steps
    if steps is None or not len(steps):
        return float("nan")
    loads = zip(steps.decode_requests.tolist(), steps.verified.tolist(), strict=True)
    seen = np.array([measured[load] >= _MEASURED_STEPS for load in loads])
    return float(seen.mean())
