"""Benches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.experiments.cli.app import Json, Seed, bench, engine_environment
from acclimate.experiments.cli.lists import counts, names
from acclimate.experiments.cli.recording_options import (
    Concurrency,
    Depth,
    FirstTokens,
    Window,
    lookup_of,
)

Batches = Annotated[str, typer.Option("--batch", help="Requests, several by comma.")]
TimedSteps = Annotated[int, typer.Option("--steps", min=100, help="Timed steps per batch.")]
MaxDepth = Annotated[int, typer.Option("--depth", min=1, help="Engine's maximum depth.")]


@bench.command(
    epilog="Example: [bold]acclimate bench overhead --batch 1,16,64,256 --json out.json[/bold]"
)
def overhead(
    batch: Batches = "1,16,64,256",
    steps: TimedSteps = 2_000,
    depth: MaxDepth = 5,
    promises: Annotated[
        bool, typer.Option("--promises", help="With targets, tenants and every guarantee.")
    ] = False,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="A model's weights pass through the caches in every step."),
    ] = False,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Time per step from request objects to truncated drafts and what is learned from them."""
    from acclimate.experiments.bench.overhead import run_overhead

    run_overhead(
        counts(batch, "--batch"),
        steps=steps,
        max_depth=depth,
        promises=promises,
        cold=cold,
        json=json,
        seed=seed,
    )


@bench.command(
    "select",
    epilog="Example: [bold]acclimate bench select --batch 1,16,64,256 --json out.json[/bold]",
)
def bench_select(
    batch: Batches = "1,16,64,256",
    steps: TimedSteps = 1_000,
    depth: MaxDepth = 8,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Time to decide a step, with every promise kept and with none."""
    from acclimate.experiments.bench.select import run_select

    run_select(counts(batch, "--batch"), steps=steps, max_depth=depth, json=json, seed=seed)


@bench.command(epilog="Example: [bold]acclimate bench soak --json soak.json[/bold]")
def soak(
    steps: Annotated[int, typer.Option("--steps", min=1_000, help="Steps.")] = 100_000,
    graded_tokens: Annotated[
        int, typer.Option("--graded-tokens", min=1_000, help="Fed to the learners alone.")
    ] = 10_000_000,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Memory and sanity over many steps with ever new requests, hostile labels and rows."""
    from acclimate.experiments.bench.soak import run_soak

    run_soak(steps=steps, graded_tokens=graded_tokens, json=json, seed=seed)


@bench.command(
    "drift", epilog="Example: [bold]acclimate bench drift --seeds 300 --json drift.json[/bold]"
)
def bench_drift(
    seeds: Annotated[int, typer.Option("--seeds", min=5, help="Streams per figure.")] = 300,
    recording: Annotated[
        Path | None,
        typer.Option(
            "--recording", help="Count false alarms on these answers too: of 'lab record'."
        ),
    ] = None,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """False alarms and delays of the drift detector, beside River's and one that knows all."""
    from acclimate.experiments.bench.drift import run_drift

    run_drift(json=json, seed=seed, seeds=seeds, recording=recording)


@bench.command(
    "replay",
    epilog="Example: [bold]acclimate bench replay --arrivals azure_conv.csv --json out.json[/bold]",
)
def bench_replay(
    steps: Annotated[int, typer.Option("--steps", min=100, help="Timed steps per round.")] = 2_000,
    arrivals: Annotated[
        Path | None,
        typer.Option(
            "--arrivals", help="Serve this trace too: Azure, Mooncake or BurstGPT.", dir_okay=False
        ),
    ] = None,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Speed of simulation and replay with the adaptive policy deciding and learning."""
    from acclimate.experiments.bench_replay import run_bench_replay

    run_bench_replay(steps=steps, arrivals=arrivals, json=json, seed=seed)


@bench.command("mlflow", epilog="Example: [bold]acclimate bench mlflow --json mlflow.json[/bold]")
def bench_mlflow(json: Json = None, seed: Seed = 0) -> None:
    """Engine step with tracking on, and with a backlog spooled, against without."""
    engine_environment()
    from acclimate.experiments.bench.mlflow import run_bench_mlflow

    run_bench_mlflow(json=json, seed=seed)


@bench.command(
    "acceptance",
    epilog="Example: [bold]acclimate bench acceptance --recording acclimate-out/answers[/bold]",
)
def bench_acceptance(
    recording: Annotated[
        Path | None,
        typer.Option("--recording", help="Answers of 'acclimate lab record'.", exists=True),
    ] = None,
    depth: Depth = 8,
    window: Window = "2,4",
    concurrency: Concurrency = 16,
    first_tokens: FirstTokens = None,
    seeds: Annotated[int, typer.Option("--seeds", min=2, help="Censored streams.")] = 300,
    tokens: Annotated[int, typer.Option("--tokens", min=100, help="Tokens in each.")] = 20_000,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Log loss and calibration on a recording, ours beside peers; coverage when censored."""
    from acclimate.experiments.bench.acceptance import run_bench_acceptance

    run_bench_acceptance(
        recording=recording,
        lookup=lookup_of(window, depth),
        concurrency=concurrency,
        first_tokens=first_tokens,
        seeds=seeds,
        tokens=tokens,
        json=json,
        seed=seed,
    )


@bench.command(
    "recalibration",
    epilog="Example: [bold]acclimate bench recalibration --seeds 300 --json recalibration.json[/bold]",
)
def bench_recalibration(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Drawn shifts.")] = 100,
    scenarios: Annotated[
        str, typer.Option("--scenarios", help="Names or files by comma; default: all.")
    ] = "",
    scenario_seeds: Annotated[
        int, typer.Option("--scenario-seeds", min=0, help="Runs of each policy in each scenario.")
    ] = 3,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Tokens and engine time until right again after a shift; peers tuned in hindsight beside."""
    from acclimate.experiments.bench.recalibration import run_bench_recalibration

    run_bench_recalibration(
        seeds=seeds,
        scenarios=names(scenarios),
        scenario_seeds=scenario_seeds,
        json=json,
        seed=seed,
    )


@bench.command(
    "latency", epilog="Example: [bold]acclimate bench latency --json latency.json[/bold]"
)
def bench_latency(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each case.")] = 50,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Errors of learned step times, and of the depths they choose: cliffs, stalls, slowdowns."""
    from acclimate.experiments.bench.latency import run_bench_latency

    run_bench_latency(seeds=seeds, json=json, seed=seed)
