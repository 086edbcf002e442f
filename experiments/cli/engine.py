"""Commands that run the engine: doctor, demo, compare, and the testbed's model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.experiments.cli.app import (
    EXIT_NO,
    Json,
    Seed,
    app,
    engine_environment,
    small_engine,
)

Drafting = Annotated[
    str,
    typer.Option(
        "--drafter",
        help="ngram, backoff, eagle, or one of the last two with -DOMAIN; in comparisons also "
        "known or known-Q, which is right with a known chance.",
    ),
]


@app.command(epilog="Example: [bold]acclimate doctor[/bold]")
def doctor(json: Json = None) -> None:
    """Show what is on, limited or off on this installation, and why."""
    from acclimate.experiments.doctor import doctor as run_doctor

    raise typer.Exit(run_doctor(json=json))


@app.command(epilog="Example: [bold]acclimate demo --quick --out acclimate-out/demo[/bold]")
def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Under two minutes.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for trace, picture and MLflow store.")
    ] = Path("acclimate-out/demo"),
    drafter: Drafting = "ngram",
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Run adaptive control on a real engine and compare it with fixed depths."""
    engine_environment()
    from acclimate.experiments.demo.run import run_demo

    run_demo(quick=quick, out=out, json=json, seed=seed, drafter_name=drafter)


@app.command(
    epilog="Example: [bold]acclimate compare --arms none,k0,k1,k3,adaptive --prompts "
    "specbench.jsonl --limit 3 --rounds 6 --tokens 64[/bold]"
)
def compare(
    arms: Annotated[
        str,
        typer.Option(
            "--arms",
            help="By comma: none, stock-kN, k0 to kN, adaptive, a peer, or package.module:factory. "
            "k0 and a second k0 always run.",
        ),
    ],
    prompts: Annotated[Path, typer.Option("--prompts", help="JSON lines, Spec-Bench's format.")],
    limit: Annotated[int, typer.Option("--limit", help="Prompts per category.")] = 3,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds at most.")] = 6,
    tokens: Annotated[int, typer.Option("--tokens", help="Output tokens per prompt.")] = 64,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency",
            help="Closed loop: requests at a time, by comma. Default: 1,4,16; with --slo 8.",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            help="Open loop: shares of k0's capacity, by comma; or none. "
            "Default: 0.3,0.6,0.9,1.05; with --slo none.",
        ),
    ] = None,
    slo: Annotated[
        bool,
        typer.Option(
            "--slo",
            help="Clients ask for three classes of service: attainment and goodput by arm.",
        ),
    ] = False,
    slo_scale: Annotated[
        str,
        typer.Option(
            "--slo-scale", help="The tight class's time per token, as multiples of k0's, by comma."
        ),
    ] = "0.75,0.9,1.1",
    arrivals: Annotated[
        str, typer.Option("--arrivals", help="poisson, bursts, or a trace of arrivals.")
    ] = "poisson",
    depth: Annotated[int, typer.Option("--depth", help="The engine's maximum depth.")] = 8,
    dtype: Annotated[
        str, typer.Option("--dtype", help="In float32 all arms write the same tokens.")
    ] = "float32",
    by_domain: Annotated[
        bool, typer.Option("--by-domain", help="Add cells with one domain alone.")
    ] = False,
    max_minutes: Annotated[
        float,
        typer.Option("--max-minutes", help="Thin what is dear, and stop after a whole round."),
    ] = 75.0,
    own_weights: Annotated[
        bool,
        typer.Option(
            "--own-weights",
            help="Let engine processes have their weights in memory of their own, which makes "
            "equal ones differ in speed, instead of all in the same.",
        ),
    ] = False,
    drafter: Drafting = "ngram",
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            help="Trace of all arms that alternate, for acclimate replay --policy.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="New folder for raw rows; default below acclimate-out/compare."),
    ] = None,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Compare policies, fixed depths and no speculation at all, on real engines."""
    from acclimate.experiments.compare.options import CompareOptions
    from acclimate.experiments.compare.run import run_compare

    options = CompareOptions(
        arms=arms,
        prompts=prompts,
        limit=limit,
        rounds=rounds,
        tokens=tokens,
        concurrency=concurrency or ("8" if slo else "1,4,16"),
        rate=rate or ("none" if slo else "0.3,0.6,0.9,1.05"),
        slo=slo,
        slo_scale=slo_scale,
        arrivals=arrivals,
        depth=depth,
        dtype=dtype,
        by_domain=by_domain,
        max_minutes=max_minutes,
        own_weights=own_weights,
        drafter=drafter,
        trace=trace,
        seed=seed,
    )
    run_compare(options, out=out, json=json)


@small_engine.command(epilog="Example: [bold]acclimate testbed model[/bold]")
def model() -> None:
    """Find or build the small model, and show where it is."""
    from acclimate.experiments.testbed import model_path

    typer.echo(model_path(lambda line: typer.echo(line, err=True)))


@small_engine.command(
    "train-draft",
    epilog="Example: [bold]acclimate testbed train-draft --held-out specbench.jsonl[/bold]",
)
def train_draft(
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            help="Further prompts to grade by: JSON lines in Spec-Bench's format, or answers of "
            "'acclimate lab record'.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Of those, prompts per category.")] = 20,
    per_domain: Annotated[
        int, typer.Option("--per-domain", min=20, help="Prompts of our own per domain.")
    ] = 230,
    free: Annotated[
        int, typer.Option("--free", min=0, help="Prompts that the model writes itself.")
    ] = 1_200,
    kinds: Annotated[
        str, typer.Option("--kinds", help="What to train, by comma: backoff, eagle.")
    ] = "backoff,eagle",
    domain: Annotated[
        str, typer.Option("--domain", help="What the second variant is trained on alone.")
    ] = "code",
    lessons: Annotated[
        int, typer.Option("--lessons", help="Answers that a head is trained on.")
    ] = 1_500,
    epochs: Annotated[int, typer.Option("--epochs", help="Passes of a head over its lessons.")] = 4,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for text and drafters; default: beside the model."),
    ] = None,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Train drafters on text that the small model writes; a killed run goes on where it was."""
    engine_environment()
    from acclimate.experiments.drafters.train import TrainOptions, run_train_draft

    options = TrainOptions(
        held_out=held_out,
        limit=limit,
        per_domain=per_domain,
        free=free,
        kinds=kinds,
        domain=domain,
        lessons=lessons,
        epochs=epochs,
        seed=seed,
    )
    run_train_draft(options, out=out, json=json)


@small_engine.command(
    "profile-gpu",
    epilog="Example: [bold]acclimate testbed profile-gpu --out acclimate-out/gpu[/bold]",
)
def profile_gpu(
    target: Annotated[str, typer.Option("--target", help="Shape of the target: 1B or 8B.")] = "8B",
    draft: Annotated[str, typer.Option("--draft", help="Shape of the drafter.")] = "1B",
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, help="Leave out what is not reached by then.")
    ] = 8.0,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the tables.")] = Path(
        "acclimate-out/gpu"
    ),
) -> None:
    """Measure verifying and drafting on a GPU, as tables for 'acclimate simulate --latency'."""
    from acclimate.experiments.gpu_profile.command import NO_GPU, gpu_missing, run_profile

    if gpu_missing():
        typer.echo(NO_GPU, err=True)
        raise typer.Exit(EXIT_NO)
    run_profile(out=out, target=target, draft=draft, minutes=minutes)
