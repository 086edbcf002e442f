"""``acclimate bench replay``: how fast the laboratory is with the adaptive policy in the loop."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities
from acclimate.experiments.bench.soak import resident_mib
from acclimate.experiments.figures import (
    Figure,
    Meta,
    median_interval,
    print_figures,
    write_figures,
)
from acclimate.experiments.readers.arrival_files import read_arrivals
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.acceptance import DrawnDrafts
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.regimes import Regime
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.workload import Workload

_TABLE = Path(__file__).parent / "scenarios" / "f2.csv"
_DEPTH = 5
_SURVIVAL = {
    "code": (0.85, 0.72, 0.60, 0.50, 0.42),
    "chat": (0.681, 0.391, 0.204, 0.101, 0.051),
    "summary": (0.76, 0.54, 0.39, 0.28, 0.21),
}
_SPREAD = 0.7
_FEW, _MANY = 8, 64
_ROUNDS = 5
_WARM_UP_STEPS = 300
_SCALES = (4, 16)


def run_bench_replay(
    *,
    steps: int = 2_000,
    arrivals: Path | None = None,
    json: Path | None = None,
    seed: int = 0,
) -> list[Figure]:
    """Measure, show, and write if asked.

    Timed is all of a simulated step: engine, loop, and a policy that decides and learns. Nothing
    runs beside it, on one core.

    Parameters
    ----------
    steps
        Timed steps per round.
    arrivals
        A trace of arrivals to serve from beginning to end, such as Azure's.
    """
    rng = np.random.default_rng(seed)
    few = [1.0 / took_s for took_s in step_seconds(_FEW, steps=steps, seed=seed)]
    many = [_MANY / took_s for took_s in step_seconds(_MANY, steps=steps // 2, seed=seed)]
    figures = [
        median_interval("replay/steps_per_s", few, rng, unit="steps/s"),
        median_interval("replay/request_steps_per_s", many, rng, unit="request-steps/s"),
        *scaling_figures(requests=steps // 10, seed=seed),
    ]
    if arrivals is not None:
        figures.append(arrivals_figure(arrivals, seed=seed))
    print_figures(figures, title="speed of simulation and replay, adaptive policy, one core")
    if json is not None:
        write_figures(json, figures, Meta("bench replay", engine="simulated", seed=seed))
    return figures


def step_seconds(batch: int, *, steps: int, seed: int) -> list[float]:
    """Return the seconds per step of each round, in a closed loop of ``batch`` requests."""
    rng = np.random.default_rng(seed)
    # An answer takes at least as many steps as a sixth of its tokens.
    n = batch * (2 + (_WARM_UP_STEPS + _ROUNDS * steps) // 15)
    engine = build_engine(_closed_workload(n, rng), concurrency=batch, seed=seed)
    engine.run(max_steps=_WARM_UP_STEPS)
    rounds = []
    for _ in range(_ROUNDS):
        begun_s = time.perf_counter()
        engine.run(max_steps=steps)
        rounds.append((time.perf_counter() - begun_s) / steps)
    return rounds


def scaling_figures(*, requests: int, seed: int) -> list[Figure]:
    """Return time per request and memory of runs with 4 and 16 times as many requests."""
    _serve_closed(requests, seed)  # the first run of a process is the slowest
    first_s, _ = _serve_closed(requests, seed)
    figures = []
    for scale in _SCALES:
        per_request_s, grown_mib = _serve_closed(scale * requests, seed)
        figures += [
            Figure(
                f"replay/time_per_request_ratio/{scale}x",
                per_request_s / first_s,
                n=scale * requests,
            ),
            Figure(f"replay/memory_growth_mib/{scale}x", grown_mib, unit="MiB", n=scale * requests),
        ]
    return figures


def arrivals_figure(path: Path, *, seed: int) -> Figure:
    """Serve a trace of arrivals from beginning to end; return the seconds that it took."""
    trace = read_arrivals(path).value
    workload = Workload.open(
        trace.arrival_s,
        prompt_tokens=trace.prompt_tokens,
        output_tokens=trace.output_tokens,
        domain=tuple(_SURVIVAL),
    )
    begun_s = time.perf_counter()
    run = serve_arrivals(workload, seed=seed)
    took_s = time.perf_counter() - begun_s
    name = re.sub(r"\W+", "_", path.stem)
    return Figure(f"simulate/{name}/seconds", took_s, unit="s", n=int(run.finished.sum()))


def serve_arrivals(workload: Workload, *, seed: int) -> Run:
    """Serve a workload by its arrival times with the adaptive policy."""
    return build_engine(workload, concurrency=None, seed=seed).run()


def build_engine(workload: Workload, *, concurrency: int | None, seed: int) -> SimulatedEngine:
    """Return an engine with the published step times, three domains and the adaptive policy."""
    capabilities = Capabilities(
        max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), free_drafts=True, hindsight=True
    )
    config = ControlConfig(seed=seed)
    clock = SimulatedClock()
    loop = ControlLoop(build_policy(config, capabilities), capabilities, config, clock_ns=clock)
    regimes = [Regime.of_survival(_SURVIVAL[name], spread=_SPREAD) for name in workload.domain]
    drafts = DrawnDrafts(regimes, tuple(range(len(regimes))), workload.domain_of, seed=seed)
    return SimulatedEngine(
        loop,
        workload,
        drafts,
        TableTime.read(_TABLE),
        clock,
        concurrency=concurrency,
        keep_steps=False,
    )


def _serve_closed(requests: int, seed: int) -> tuple[float, float]:
    """Return the seconds per request of a closed loop, and the memory that it took meanwhile."""
    workload = _closed_workload(requests, np.random.default_rng(seed))
    engine = build_engine(workload, concurrency=_FEW, seed=seed)
    before_mib, begun_s = resident_mib(), time.perf_counter()
    engine.run()
    return (time.perf_counter() - begun_s) / requests, resident_mib() - before_mib


def _closed_workload(requests: int, rng: np.random.Generator) -> Workload:
    return Workload.closed(
        requests,
        prompt_tokens=rng.integers(20, 400, requests),
        output_tokens=rng.integers(90, 300, requests),
        domain=tuple(_SURVIVAL),
    )
