"""``acclimate bench overhead``: what one engine step pays for being controlled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.config import SloConfig
from acclimate.controller.records import FloatArray
from acclimate.experiments.figures import (
    Figure,
    Meta,
    median_interval,
    print_figures,
    write_figures,
)
from acclimate.experiments.scripted_scheduler import ScriptedScheduler

_WARM_UP_STEPS = 300
_BLOCKS = 20
_WEIGHTS_MIB = 512
GUARANTEES = SloConfig(twin="per_request", externality=True, fairness=1.0)
"""Every guarantee at once."""


def promised_labels(number: int) -> dict[str, Any]:
    """Return the extra arguments of a request: every other one has a target, all a tenant."""
    target = {"acclimate_slo_tpot_ms": 40.0, "acclimate_slo_ttft_ms": 500.0} if number % 2 else {}
    return {
        "acclimate_domain": f"domain-{number % 8}", "acclimate_tenant": f"t{number % 4}", **target,
    }  # fmt: skip


def run_overhead(
    batches: Sequence[int],
    *,
    steps: int = 2_000,
    max_depth: int = 5,
    promises: bool = False,
    cold: bool = False,
    json: Path | None = None,
    seed: int = 0,
) -> list[Figure]:
    """Measure, show, and write if asked.

    Timed is everything from request objects to truncated drafts, and from sampled tokens to what
    was learned: policy, guard, hindsight grading and the hand-over of events. The fabricated
    engine, and the draining of events, run outside.

    Parameters
    ----------
    batches
        Requests in the engine, one measurement each.
    steps
        Timed steps per batch, after a warm-up.
    promises
        Whether requests have targets and tenants, and every guarantee is on.
    cold
        Whether half a gigabyte passes through the processor's caches in every step, as a model's
        weights do on a CPU: our code and data then come from memory.
    """
    rng = np.random.default_rng(seed)
    figures: list[Figure] = []
    for batch in batches:
        times_ms = step_times_ms(
            batch, steps=steps, max_depth=max_depth, seed=seed, promises=promises, cold=cold
        )
        name = "/".join([f"overhead/{batch}", *["promises"] * promises, *["cold"] * cold])
        figures += overhead_figures(name, times_ms, rng)
    print_figures(figures, title=f"time per step in our code, depth {max_depth}")
    if json is not None:
        write_figures(json, figures, Meta("bench overhead", engine="scripted", seed=seed))
    return figures


def step_times_ms(
    batch: int,
    *,
    steps: int,
    max_depth: int,
    seed: int,
    promises: bool = False,
    cold: bool = False,
) -> FloatArray:
    """Return the milliseconds that each of ``steps`` steps spent in our code.

    Raises
    ------
    RuntimeError
        The controller did not act: there was nothing to time.
    """
    options: dict[str, Any] = {"labels": promised_labels, "slo": GUARANTEES} if promises else {}
    if cold:
        options["during"] = np.ones(_WEIGHTS_MIB << 17).sum
    engine = ScriptedScheduler(batch, max_depth=max_depth, seed=seed, **options)
    times_ns = np.zeros(steps)
    for step in range(-_WARM_UP_STEPS, steps):
        spent_ns = engine.step()
        if step >= 0:
            times_ns[step] = spent_ns
        engine.queue.take()
    engine.check()
    return times_ns / 1e6


def overhead_figures(name: str, times_ms: FloatArray, rng: np.random.Generator) -> list[Figure]:
    """Return median and 99th percentile; the interval comes from blocks, as steps are not alone."""
    blocks = [float(np.median(block)) for block in np.array_split(times_ms, _BLOCKS)]
    interval = median_interval("", blocks, rng)
    n = int(times_ms.size)
    return [
        Figure(
            f"{name}/median_ms",
            float(np.median(times_ms)),
            interval.low,
            interval.high,
            unit="ms",
            n=n,
        ),
        Figure(f"{name}/p99_ms", float(np.quantile(times_ms, 0.99)), unit="ms", n=n),
    ]
