"""``acclimate bench select``: what deciding a step costs, with all promises kept and with none."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.records import FloatArray, StepContext, StepPlan
from acclimate.experiments.figures import (
    Figure,
    Meta,
    median_interval,
    print_figures,
    write_figures,
)
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.stage import Stage

_WARM_UP_STEPS = 100
_BLOCKS = 20
_TENANTS = ("assistant", "support", "night", "research")
_PROMISES = {"twin": "per_request", "eta": 0.05, "externality": True, "fairness": 1.0}


def run_select(
    batches: Sequence[int],
    *,
    steps: int = 1_000,
    max_depth: int = 8,
    json: Path | None = None,
    seed: int = 0,
) -> list[Figure]:
    """Measure, show, and write if asked.

    Timed is the adaptive policy's whole `plan`: what is believed of the drafts, ledger and weights,
    the curve of step times and its bounds, and the choice among all drafts. Every request has drafts
    of full depth; half have a target, all of them one of four tenants. ``median_ms`` is with weights,
    twin, neighbours and fairness on, ``without_ms`` the same engine with no promise at all.

    Parameters
    ----------
    batches
        Requests in the engine, one measurement each.
    steps
        Timed steps per batch, after a warm-up.
    """
    rng = np.random.default_rng(seed)
    figures: list[Figure] = []
    for batch in batches:
        for name, promised in (("median_ms", True), ("without_ms", False)):
            times_ms = plan_times_ms(
                batch, steps=steps, max_depth=max_depth, promised=promised, seed=seed
            )
            blocks = [float(np.median(block)) for block in np.array_split(times_ms, _BLOCKS)]
            interval = median_interval("", blocks, rng)
            figures.append(
                Figure(
                    f"select/{batch}/{name}",
                    float(np.median(times_ms)),
                    interval.low,
                    interval.high,
                    unit="ms",
                    n=steps,
                )
            )
    print_figures(figures, title=f"time to decide a step, depth {max_depth}")
    if json is not None:
        write_figures(json, figures, Meta("bench select", engine="simulated", seed=seed))
    return figures


def plan_times_ms(
    batch: int, *, steps: int, max_depth: int, promised: bool, seed: int
) -> FloatArray:
    """Return the milliseconds of each of ``steps`` plans, shape (steps,).

    Raises
    ------
    RuntimeError
        The policy failed: there was nothing to time.
    """
    stage = Stage.of(_scenario(batch, max_depth, promised), seed=seed)
    if promised:
        tenant_of = np.arange(len(stage.workload), dtype=np.int64) % len(_TENANTS)
        workload = dataclasses.replace(stage.workload, tenant=_TENANTS, tenant_of=tenant_of)
        stage = dataclasses.replace(stage, workload=workload)
    config = ControlConfig.read({"seed": seed, "slo": _PROMISES if promised else {}})
    policy = _TimedPolicy(config, stage.capabilities)
    lines: list[str] = []
    engine = stage.engine(policy, config=config, log=lines.append, keep_steps=False)
    engine.run(max_steps=_WARM_UP_STEPS + steps, drain=False)
    if lines:
        raise RuntimeError(f"the policy must not fail in a simulation, got: {lines[0]}")
    return np.array(policy.spent_ns[_WARM_UP_STEPS:], dtype=np.float64) / 1e6


class _TimedPolicy(AdaptivePolicy):
    """Notes how long each plan took."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.spent_ns: list[int] = []

    def plan(self, context: StepContext) -> StepPlan:
        begun_ns = time.perf_counter_ns()
        plan = super().plan(context)
        self.spent_ns.append(time.perf_counter_ns() - begun_ns)
        return plan


def _scenario(batch: int, max_depth: int, promised: bool) -> Scenario:
    """Return a busy engine that is never short of requests."""
    target: dict[str, Any] = {"tpot_slo_ms": 14.0, "ttft_slo_ms": 500.0} if promised else {}
    return Scenario.of(
        {
            "title": f"select {batch}",
            "engine": {
                "max_depth": max_depth,
                "max_num_seqs": batch,
                "free_drafts": True,
            },
            "arrivals": {"kind": "closed", "concurrency": batch, "requests": 60 * batch},
            "lengths": {"prompt_tokens": 1, "output_tokens": {"mean": 300, "variation": 0.5}},
            "step_time": {
                "rows": [
                    (1, 0, 10.0), (1, 8, 11.0), (256, 0, 14.0), (256, 8, 60.0),
                ],
                "noise": 0.03,
            },
            "domains": [
                {"name": "code", "conditional": [0.85] * max_depth, **target},
                {"name": "prose", "conditional": [0.5] * max_depth},
            ],
        }
    )  # fmt: skip
