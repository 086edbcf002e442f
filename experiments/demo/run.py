"""``acclimate demo``: adaptive control on a real engine, against fixed depths, in one process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.experiments.demo.analysis import ADAPTIVE, Speeds, headroom
from acclimate.experiments.demo.arms import differing_jobs, run_rounds
from acclimate.experiments.demo.learning import relive
from acclimate.experiments.demo.picture import draw
from acclimate.experiments.demo.report import Findings, figures, print_report
from acclimate.experiments.demo.stream import Stream, build_stream
from acclimate.experiments.drafters.choices import NGRAM, Drafter, drafter, start_drafting
from acclimate.experiments.figures import Meta, write_figures
from acclimate.experiments.testbed import model_path
from acclimate.integrations.vllm.closed_loop import StepRecord, run_closed_loop
from acclimate.integrations.vllm.launch import Engine

_MAX_DEPTH = 8
_DEPTHS, _QUICK_DEPTHS = (0, 1, 2, 3, 8), (0, 1, 3)
_MAX_ROUNDS, _QUICK_MAX_ROUNDS = 6, 2
# What the rounds may take, so that the command keeps to six minutes, or two; the first is always
# run.
_BUDGET_S, _QUICK_BUDGET_S = 320.0, 90.0
# A warm-up slower than this says that the machine is too busy for the long stream.
_SLOW_WARM_UP_S = 5.0


def run_demo(
    *, quick: bool, out: Path, json: Path | None, seed: int, drafter_name: str = NGRAM
) -> None:
    """Run the demo, show its tables, and leave picture, trace and tracked run in ``out``.

    Parameters
    ----------
    quick
        Fewer depths, a shorter stream and two rounds.
    out
        Folder for everything that is kept.
    json
        The figures file, if wanted.
    seed
        Draws the stream.
    drafter_name
        What drafts, see `acclimate.experiments.drafters.choices.drafter`.

    Raises
    ------
    ValueError
        There is no such drafter.
    """
    from rich.console import Console

    console, progress_console = Console(), Console(stderr=True)
    started_s = time.monotonic()
    choice = drafter(drafter_name)
    meta = Meta("demo --quick" if quick else "demo", engine="vllm", seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    config = _config(out, seed)
    with progress_console.status("finding the model") as status:
        model = model_path(lambda what: status.update(f"the model: {what}"))
        status.update("starting the engine")
        engine = _start(model, choice, config)
    capabilities = engine.bridge.loop.capabilities
    with progress_console.status("warming up"):
        engine.bridge.loop.replace_policy(_fixed(1, capabilities))
        warm_up = build_stream(engine.tokens, seed=seed, quick=True).phases[2].jobs[:8]
        warm_up_s = run_closed_loop(engine, warm_up, 8).wall_s
    short = quick or warm_up_s > _SLOW_WARM_UP_S
    if short and not quick:
        progress_console.print(
            f"this machine is busy or slow (warm-up {warm_up_s:.1f} s): fewer depths, shorter stream"
        )
    stream = build_stream(engine.tokens, seed=seed, quick=short)
    depths = _QUICK_DEPTHS if short else _DEPTHS
    arms: dict[str, Policy] = {f"k{depth}": _fixed(depth, capabilities) for depth in depths}
    arms[ADAPTIVE] = adaptive = build_policy(config, capabilities)
    with _progress(progress_console, stream) as on_step:
        most = _QUICK_MAX_ROUNDS if quick else _MAX_ROUNDS
        until_s = time.monotonic() + (_QUICK_BUDGET_S if quick else _BUDGET_S)

        def go_on(number: int, took_s: float) -> bool:
            return number == 0 or (number < most and time.monotonic() + took_s < until_s)

        runs = run_rounds(engine, stream, arms, go_on=go_on, sequel_of=ADAPTIVE, on_step=on_step)
    learning = relive(
        build_policy(config, capabilities), [run for run in runs if run.arm == ADAPTIVE], stream
    )
    found = Findings(
        speeds=Speeds.of(runs, stream),
        headroom=headroom(runs, stream),
        learning=learning,
        slots={slot.label: slot for slot in adaptive.report().slots},
        marginal_gain={load: _marginal_gain(adaptive, load) for load in stream.concurrencies},
        jobs=len(stream.jobs),
        differing=tuple(differing_jobs(runs)),
    )
    measured = figures(found, np.random.default_rng(seed))
    picture, figures_file = out / "demo.png", out / "figures.json"
    draw(learning, picture)
    write_figures(figures_file, measured, meta)
    if json is not None:
        write_figures(json, measured, meta)
    where = _hand_over(engine, picture, figures_file, config)
    print_report(found, measured, console)
    status_of_loop = engine.bridge.loop.status()
    engine.shutdown()
    console.print(f"• guard: {status_of_loop['faults']} faults, {status_of_loop['violations']} "
                  f"violations, {status_of_loop['late_calls']} late calls")  # fmt: skip
    for what, path in where.items():
        console.print(f"• {what}: {path}", highlight=False, soft_wrap=True)
    console.print(f"• took {time.monotonic() - started_s:.0f} s")


def _config(out: Path, seed: int) -> ControlConfig:
    """Return the controller's configuration: tracked and traced into ``out``."""
    uri = None if os.environ.get("MLFLOW_TRACKING_URI") else f"sqlite:///{out.resolve()}/mlflow.db"
    return ControlConfig.read(
        {
            "seed": seed,
            "mlflow": {
                "enabled": True,
                "tracking_uri": uri,
                "run_name": "demo",
                "spool_dir": str(out / "spool"),
            },
            "trace": {"path": str(out / "trace.jsonl"), "token_hashes": True},
        }
    )


def _start(model: Path, choice: Drafter, config: ControlConfig) -> Engine:
    from acclimate import AdaptiveController

    return start_drafting(
        model,
        choice,
        controller=AdaptiveController(config),
        max_depth=_MAX_DEPTH,
        max_num_seqs=16,
        max_model_len=512,
    )


def _fixed(depth: int, capabilities: Capabilities) -> Policy:
    return build_policy(ControlConfig(policy=f"static:{depth}"), capabilities)


@contextmanager
def _progress(console: Any, stream: Stream) -> Iterator[Any]:
    """Show which arm runs in which round, and how far it is."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        total = sum(job.max_tokens for job in stream.jobs)
        task = progress.add_task("", total=total, rate="")
        shown: dict[str, Any] = {"key": None, "tokens": 0, "seconds": 0.0}

        def on_step(arm: str, number: int, step: StepRecord) -> None:
            if shown["key"] != (arm, number):
                shown.update(key=(arm, number), tokens=0, seconds=0.0, drawn=0.0)
                progress.reset(task, description=f"round {number + 1}, {arm}", total=total)
            shown["tokens"] += step.tokens
            shown["seconds"] += step.duration_s
            if shown["seconds"] - shown["drawn"] > 0.5:
                shown["drawn"] = shown["seconds"]
                rate = shown["tokens"] / shown["seconds"]
                progress.update(
                    task,
                    completed=shown["tokens"],
                    rate=f"{rate:.0f} tok/s, {step.running} at a time",
                )

        yield on_step


def _marginal_gain(policy: Policy, concurrency: int) -> float | None:
    """Return what tokens at the margin earned beyond their price, where the policy keeps account."""
    audit = getattr(policy, "audit", None)
    return None if audit is None else audit.gain(concurrency)


def _hand_over(
    engine: Engine, picture: Path, figures_file: Path, config: ControlConfig
) -> dict[str, str]:
    """Attach what was made to the tracked run, and say where everything is."""
    from acclimate.integrations.mlflow import MlflowSink

    where = {"picture": str(picture), "figures": str(figures_file)}
    if config.trace.path is not None:
        where["trace"] = f"{config.trace.path} (acclimate replay {config.trace.path} --verify)"
    for sink in engine.runtime.sinks:
        if isinstance(sink, MlflowSink):
            for path in (picture, figures_file, config.trace.path):
                if path is not None:
                    sink.attach_artifact(path)
            run = (
                sink.run_id or f"not taken by the server; acclimate mlflow upload {sink.spool_dir}"
            )
            where["MLflow"] = f"run {run} in {sink.tracking_uri}"
    return where
