"""``acclimate bench mlflow``: what tracking costs an engine's step, server up and server down."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import EventQueue
from acclimate.experiments.demo.prompts import PROMPTS
from acclimate.experiments.figures import (
    Figure,
    Meta,
    median_interval,
    print_figures,
    write_figures,
)
from acclimate.experiments.testbed import model_path
from acclimate.integrations.metrics import MetricRow
from acclimate.integrations.mlflow import MlflowSink
from acclimate.integrations.mlflow_upload import upload
from acclimate.integrations.vllm.closed_loop import Job, run_closed_loop
from acclimate.integrations.vllm.handle import AdaptiveController
from acclimate.integrations.vllm.launch import Engine, start_engine

_CONCURRENCY = 8
_DEPTH = 3
_ROUNDS = 14
_JOBS = 16
_TOKENS = 48
_BACKLOG_POINTS = 100_000
_POINTS_PER_ROW = 40
_UPLOAD_S = 120.0
_ARMS = ("off", "on", "backlog")


def run_bench_mlflow(
    *, json: Path | None = None, seed: int = 0, rounds: int = _ROUNDS
) -> list[Figure]:
    """Time the same decode steps without a sink, with one, and with one whose server is down.

    The arms alternate in random order within one engine and do identical work at a held depth. A
    figure is the median over rounds of one arm's step time over the other's: times, so below 1 is
    faster. The third arm's sink has 100,000 points on disk already and keeps adding to them; they
    are brought in at the end, and counted.

    Parameters
    ----------
    json
        Where the figures go.
    seed
        Of the order of arms and of the bootstrap.
    rounds
        Blocks per arm.

    Raises
    ------
    RuntimeError
        The upload did not bring every point in.
    """
    rng = np.random.default_rng(seed)
    config = ControlConfig.read({"seed": seed, "switch": {"freeze_depth": _DEPTH}})
    engine = start_engine(
        model_path(), controller=AdaptiveController(config), max_num_seqs=_CONCURRENCY, seed=seed
    )
    try:
        with tempfile.TemporaryDirectory(prefix="acclimate-bench-") as folder:
            figures = _measure(engine, config, Path(folder), rounds, rng)
    finally:
        engine.shutdown()
    print_figures(figures, title=f"{_CONCURRENCY} requests, {rounds} rounds in alternation")
    if json is not None:
        write_figures(json, figures, Meta("bench mlflow", engine="vllm", seed=seed))
    return figures


def _measure(
    engine: Engine, config: ControlConfig, folder: Path, rounds: int, rng: np.random.Generator
) -> list[Figure]:
    store = f"sqlite:///{folder}/mlflow.db"
    sinks = {
        "on": _sink(engine, config, folder, store),
        "backlog": _sink(engine, config, folder, _dead_address()),
    }
    _fill(sinks["backlog"])
    jobs = _jobs(engine)
    _block(engine, jobs, None)  # warm-up
    steps_s: dict[str, list[list[float]]] = {arm: [] for arm in _ARMS}
    for _ in range(rounds):
        for arm in rng.permutation(_ARMS):
            sink = sinks.get(str(arm))
            steps_s[str(arm)].append(_block(engine, jobs, None if sink is None else sink.queue))
    figures = []
    for arm in ("on", "backlog"):
        for name, middle in (("step_ratio", np.median), ("mean_step_ratio", np.mean)):
            with_s = np.array([middle(block) for block in steps_s[arm]])
            without_s = np.array([middle(block) for block in steps_s["off"]])
            figures.append(
                median_interval(f"mlflow/{arm}/{name}", with_s / without_s, rng, unit="of time")
            )
    off_ms = [float(np.median(block)) * 1e3 for block in steps_s["off"]]
    figures.append(median_interval("mlflow/off/step_ms", off_ms, rng, unit="ms"))
    return [*figures, *_settle(sinks, store)]


def _settle(sinks: dict[str, MlflowSink], store: str) -> list[Figure]:
    """Close the sinks, bring the backlog in, and say where every point went."""
    for sink in sinks.values():
        sink.close()
        sink.wait_uploaded(_UPLOAD_S)
    backlog = sinks["backlog"]
    began_s = time.perf_counter()
    result = upload(backlog.spool_dir, tracking_uri=store)
    took_s = time.perf_counter() - began_s
    if result.errors or result.points_sent != backlog.spool.points:
        raise RuntimeError(
            f"the upload must bring in {backlog.spool.points} points, got {result.points_sent} "
            f"{' '.join(result.errors)}"
        )
    return [
        Figure("mlflow/on/points", sinks["on"].produced_points, unit="points"),
        Figure("mlflow/backlog/points", result.points_sent, unit="points"),
        Figure("mlflow/backlog/upload_s", took_s, unit="s"),
        Figure(
            "mlflow/dropped_events", sum(sink.queue.lost for sink in sinks.values()), unit="events"
        ),
    ]


def _block(engine: Engine, jobs: Sequence[Job], queue: EventQueue | None) -> list[float]:
    """Run all jobs once, and return the durations of steps in which a full batch decodes."""
    loop = engine.bridge.loop
    if queue is not None:
        loop.attach(queue)
    run = run_closed_loop(engine, jobs, _CONCURRENCY)
    if queue is not None:
        loop.detach(queue)
        while len(queue):
            time.sleep(0.05)
        time.sleep(0.2)  # the last row is on its way; the next arm must not pay for it
    return [s.duration_s for s in run.steps if s.running == _CONCURRENCY and not s.first_tokens]


def _sink(engine: Engine, config: ControlConfig, folder: Path, uri: str) -> MlflowSink:
    # The engine must start before anything compiled is loaded.
    from acclimate.integrations.vllm.factory import engine_header

    tracked: dict[str, Any] = config.model_dump()
    tracked["mlflow"] |= {"enabled": True, "tracking_uri": uri}
    header = engine_header(
        engine.llm.llm_engine.vllm_config, config, engine.bridge.loop.capabilities
    )
    sink = MlflowSink(ControlConfig.read(tracked), header, EventQueue(snapshots=False), folder)
    sink.start()
    return sink


def _dead_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def _fill(sink: MlflowSink) -> None:
    """Put a backlog on disk, at steps before the first."""
    rows = _BACKLOG_POINTS // _POINTS_PER_ROW
    for step in range(-rows, 0):
        values = {f"backlog/{i}": float(i) for i in range(_POINTS_PER_ROW)}
        sink.spool.append(MetricRow(time.time_ns() // 1_000_000, step, values))


def _jobs(engine: Engine) -> list[Job]:
    """Return prompts of every kind in turn, each under its own label."""
    kinds = sorted(PROMPTS)
    jobs = []
    for number in range(_JOBS):
        kind = kinds[number % len(kinds)]
        prompt = PROMPTS[kind][number // len(kinds)]
        jobs.append(
            Job(
                key=f"{kind}-{number}",
                prompt_token_ids=engine.tokens([{"role": "user", "content": prompt}]),
                max_tokens=_TOKENS,
                label=kind,
                ignore_eos=True,
            )
        )
    return jobs
