"""The command line: ``acclimate --help``; what a command needs is imported when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import acclimate

EXIT_OK, EXIT_NO, EXIT_USAGE = 0, 1, 2
_DEBUG = "ACCLIMATE_DEBUG"

app = typer.Typer(
    name="acclimate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Feedback control of speculative decoding in vLLM. Exit status: 0 done, 1 the answer is "
    "no or the work failed, 2 wrong usage or input. ACCLIMATE_DEBUG=1 shows where an error arose.",
    epilog="Example: [bold]acclimate demo --quick[/bold]",
)
bench = typer.Typer(
    no_args_is_help=True,
    help="Measure what control costs.",
    epilog="Example: [bold]acclimate bench overhead --json overhead.json[/bold]",
)
tracker = typer.Typer(
    no_args_is_help=True,
    help="Bring spooled records into MLflow.",
    epilog="Example: [bold]acclimate mlflow upload acclimate-out/spool[/bold]",
)
small_engine = typer.Typer(
    no_args_is_help=True,
    help="The small engine that demo and tests run on.",
    epilog="Example: [bold]acclimate testbed model[/bold]",
)
laboratory = typer.Typer(
    no_args_is_help=True,
    help="Experiments: what a policy can know, and how soon it is right again.",
    epilog="Example: [bold]acclimate lab domains acclimate-out/answers[/bold]",
)
app.add_typer(bench, name="bench")
app.add_typer(laboratory, name="lab")
app.add_typer(tracker, name="mlflow")
app.add_typer(small_engine, name="testbed")

Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="OUT", help="Write the figures here.", dir_okay=False),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything drawn.")]

Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Processes; default: one for each core.")
]
LabOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="New folder; default: below acclimate-out/lab."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what a killed run left in --out.")
]
Tracked = Annotated[bool, typer.Option(help="Track the experiment in MLflow.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"acclimate {acclimate.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show and exit.")
    ] = False,
) -> None:
    """Options of every command."""


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
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Run adaptive control on a real engine and compare it with fixed depths."""
    _engine_environment()
    from acclimate.experiments.demo.run import run_demo

    run_demo(quick=quick, out=out, json=json, seed=seed)


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
        str, typer.Option("--concurrency", help="Closed loop: requests at a time, by comma.")
    ] = "1,4,16",
    rate: Annotated[
        str, typer.Option("--rate", help="Open loop: shares of k0's capacity, by comma; or none.")
    ] = "0.3,0.6,0.9,1.05",
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
        concurrency=concurrency,
        rate=rate,
        arrivals=arrivals,
        depth=depth,
        dtype=dtype,
        by_domain=by_domain,
        max_minutes=max_minutes,
        seed=seed,
    )
    run_compare(options, out=out, json=json)


@app.command(
    epilog="Example: [bold]acclimate replay trace.jsonl --verify[/bold], or "
    "[bold]acclimate replay trace.jsonl --policy k0 --policy k3[/bold]"
)
def replay(
    trace: Annotated[Path, typer.Argument(help="A trace, or one segment of it.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Recompute every decision; status 1 if one differs.")
    ] = False,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="P",
            help="What would this policy have done: kN, adaptive, a peer's name, MODULE:FACTORY. "
            "With --verify, NAME=MODULE:FACTORY: code of a policy of your own, since what a trace "
            "names is never imported by itself.",
        ),
    ] = None,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", help="What would this configuration have done.", exists=True),
    ] = None,
    recorded: Annotated[
        str | None,
        typer.Option("--recorded", metavar="ARM", help="Whose traffic, if the trace has several."),
    ] = None,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Show what a trace holds; decide again and compare; or serve it with other policies."""
    if not verify and (policy or config):
        from acclimate.experiments.counterfactual_command import run_counterfactual

        run_counterfactual(
            trace, arms=policy or [], configs=config or [], recorded=recorded, json=json, seed=seed
        )
        return
    if config or recorded:
        raise typer.BadParameter("must come without --verify", param_hint="--config, --recorded")
    from acclimate.experiments.replay_command import run_replay

    holds = run_replay(trace, verify=verify, policies=policy or [], json=json)
    raise typer.Exit(EXIT_OK if holds else EXIT_NO)


@app.command(
    epilog="Examples: [bold]acclimate simulate abrupt_drop[/bold], "
    "[bold]acclimate simulate --latency mine.csv --survival .68,.39,.20 --batch 1,16,64[/bold]"
)
def simulate(
    scenario: Annotated[
        str | None, typer.Argument(help="A TOML file, or a name that --list shows.")
    ] = None,
    list_scenarios: Annotated[
        bool, typer.Option("--list", help="Show the scenarios and exit.")
    ] = False,
    latency: Annotated[
        Path | None,
        typer.Option(
            "--latency",
            metavar="FILE",
            help="Your own step times, CSV: batch, K, ms; optional context, prefill. Any set of "
            "batches and K; cliffs stay.",
        ),
    ] = None,
    survival: Annotated[
        list[str] | None,
        typer.Option(
            "--survival",
            metavar="P,P,…",
            help="P(the first i drafts are all accepted), i = 1, 2, …: as vLLM's counters and most "
            "tables have it. Its length is the engine's depth. Repeat as DOMAIN=P,P,… for more.",
        ),
    ] = None,
    conditional: Annotated[
        list[str] | None,
        typer.Option(
            "--conditional", metavar="P,P,…", help="Or P(draft i accepted, given those before it)."
        ),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", help="Requests at all times, several by comma.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="kN, adaptive, oracle, a peer's name or MODULE:FACTORY; several by comma or "
            "repeated. k0 always runs.",
        ),
    ] = None,
    drafter: Annotated[
        str,
        typer.Option("--drafter", help="model: drafts as asked; free: always at full depth."),
    ] = "model",
    uniform: Annotated[
        bool, typer.Option("--uniform", help="All requests of a step verify alike.")
    ] = False,
    draft_share: Annotated[
        float,
        typer.Option(
            "--draft-share", min=0, max=1, help="Share of T(K) - T(0) that pays for drafting."
        ),
    ] = 0.0,
    prompt_tokens: Annotated[
        int, typer.Option("--prompt-tokens", min=1, help="Prompt length, with --latency.")
    ] = 1,
    output_tokens: Annotated[
        int, typer.Option("--output-tokens", min=2, help="Mean answer length, with --latency.")
    ] = 200,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="Per batch and seed, with --latency.")
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", min=0, help="Relative noise of steps, with --latency.")
    ] = 0.0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs per policy.")] = 3,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="First seed; default: the scenario's.")
    ] = None,
    json: Json = None,
) -> None:
    """Run policies side by side on a simulated engine: a scenario, or your own tables."""
    from acclimate.experiments.simulate_command import (
        DEFAULT_BATCHES,
        OwnTables,
        run_simulate,
        show_scenarios,
    )

    if list_scenarios:
        show_scenarios()
        return
    batches = _counts(batch, "batch") if batch else []
    own = None
    if latency is not None:
        if drafter not in ("model", "free"):
            raise typer.BadParameter(
                f"must be model or free, got {drafter!r}", param_hint="--drafter"
            )
        own = OwnTables(
            latency=latency,
            survival=survival or (),
            conditional=conditional or (),
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            requests=requests,
            noise=noise,
            free_drafts=drafter == "free",
            uniform_only=uniform,
            draft_share=draft_share,
            batches=batches or DEFAULT_BATCHES,
        )
    elif survival or conditional:
        raise typer.BadParameter("must come with --latency FILE", param_hint="--survival")
    run_simulate(
        scenario,
        own,
        policies=[name.strip() for text in policy or () for name in text.split(",")],
        concurrency=batches,
        seeds=seeds,
        seed=seed,
        json=json,
    )


@app.command(epilog="Example: [bold]acclimate read azure_conv.csv --json read.json[/bold]")
def read(
    file: Annotated[
        Path, typer.Argument(help="Arrivals, metrics, results, prompts, latencies or a trace.")
    ],
    before: Annotated[
        Path | None,
        typer.Option("--before", help="An earlier Prometheus dump: show the counts since."),
    ] = None,
    json: Json = None,
) -> None:
    """Say what kind a file is, what of it can be used, and what was dropped and why."""
    from acclimate.experiments.read_command import run_read

    run_read(file, before=before, json=json)


@bench.command(
    epilog="Example: [bold]acclimate bench overhead --batch 1,16,64,256 --json out.json[/bold]"
)
def overhead(
    batch: Annotated[str, typer.Option("--batch", help="Requests, several by comma.")] = (
        "1,16,64,256"
    ),
    steps: Annotated[int, typer.Option("--steps", min=100, help="Timed steps per batch.")] = 2_000,
    depth: Annotated[int, typer.Option("--depth", min=1, help="Engine's maximum depth.")] = 5,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Time per step from request objects to truncated drafts and what is learned from them."""
    from acclimate.experiments.bench.overhead import run_overhead

    run_overhead(_counts(batch, "batch"), steps=steps, max_depth=depth, json=json, seed=seed)


@bench.command(epilog="Example: [bold]acclimate bench soak --json soak.json[/bold]")
def soak(
    steps: Annotated[int, typer.Option("--steps", min=1_000, help="Steps.")] = 100_000,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Growth of memory over many steps with ever new requests and hostile labels."""
    from acclimate.experiments.bench.soak import run_soak

    run_soak(steps=steps, json=json, seed=seed)


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
    _engine_environment()
    from acclimate.experiments.bench.mlflow import run_bench_mlflow

    run_bench_mlflow(json=json, seed=seed)


@laboratory.command(
    epilog="Example: [bold]acclimate lab record prompts.jsonl --out acclimate-out/answers[/bold]"
)
def record(
    prompts: Annotated[
        Path, typer.Argument(help="JSON lines with question_id, category, turns.", exists=True)
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the recording.")] = Path(
        "acclimate-out/answers"
    ),
    tokens: Annotated[int, typer.Option("--tokens", min=2, help="Tokens per answer.")] = 384,
    minutes: Annotated[float, typer.Option("--minutes", help="Stop after; run again.")] = 30.0,
    dtype: Annotated[str, typer.Option("--dtype", help="float32 repeats exactly.")] = "float32",
) -> None:
    """Record the small engine's greedy answers; goes on where it stopped; status 1 if some lack."""
    _engine_environment()
    from acclimate.experiments.lab.record import run_record

    complete = run_record(
        prompts, out=out, tokens=tokens, max_model_len=4_096, minutes=minutes, dtype=dtype
    )
    raise typer.Exit(EXIT_OK if complete else EXIT_NO)


@laboratory.command(
    epilog="Example: [bold]acclimate lab domains acclimate-out/answers --json out.json[/bold]"
)
def domains(
    recording: Annotated[
        Path, typer.Argument(help="Answers of 'acclimate lab record'.", exists=True)
    ],
    depth: Annotated[int, typer.Option("--depth", min=1, help="Tokens per draft.")] = 8,
    window: Annotated[str, typer.Option("--window", help="n-gram lookup, MIN,MAX.")] = "2,4",
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="In service.")] = 16,
    first_tokens: Annotated[
        int | None, typer.Option("--first-tokens", min=2, help="Cut answers to so many.")
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option("--merge", metavar="NAME,NAME=GROUP", help="Domains to take as one."),
    ] = None,
    additive: Annotated[
        bool, typer.Option("--additive", help="The label means the same at every age.")
    ] = False,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """What a domain label is worth to a predictor, beside history, match and the last draft."""
    from acclimate.experiments.lab.domains import run_domains
    from acclimate.experiments.offsets import Lookup

    sizes = _counts(window, "window")
    if len(sizes) != 2:
        raise typer.BadParameter(f"must be MIN,MAX, got {window!r}", param_hint="--window")
    run_domains(
        recording,
        lookup=Lookup(sizes[0], sizes[1], max_depth=depth),
        concurrency=concurrency,
        first_tokens=first_tokens,
        merge=merge or [],
        additive=additive,
        json=json,
        seed=seed,
    )


@laboratory.command(epilog="Example: [bold]acclimate lab load --seeds 5 --json load.json[/bold]")
def load(
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help="Whom to examine.")] = (
        "adaptive"
    ),
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each cell.")] = 5,
    jobs: Jobs = None,
    out: LabOut = None,
    resume: Resume = False,
    mlflow: Tracked = True,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Does a policy find the best depth of a published table, at every load and at a cliff?"""
    from acclimate.experiments.lab.load import run_load

    run_load(
        arm=policy,
        seeds=seeds,
        jobs=jobs,
        out=out,
        resume=resume,
        mlflow=mlflow,
        json=json,
        seed=seed,
    )


@tracker.command(epilog="Example: [bold]acclimate mlflow upload acclimate-out/spool[/bold]")
def upload(
    spool: Annotated[Path, typer.Argument(metavar="DIR", help="A spool folder, or one run in it.")],
    tracking_uri: Annotated[
        str | None,
        typer.Option("--tracking-uri", help="Another server than the one the run was meant for."),
    ] = None,
) -> None:
    """Bring records that a missing server left on disk into MLflow; status 1 if some stay."""
    from acclimate.experiments.upload_command import run_upload

    complete = run_upload(spool, tracking_uri=tracking_uri)
    raise typer.Exit(EXIT_OK if complete else EXIT_NO)


@small_engine.command(epilog="Example: [bold]acclimate testbed model[/bold]")
def model() -> None:
    """Find or build the small model, and show where it is."""
    from acclimate.experiments.testbed import model_path

    typer.echo(model_path(lambda line: typer.echo(line, err=True)))


def _engine_environment() -> None:
    """Run on with the engine's libraries preloaded; this may start the process anew."""
    from acclimate.experiments.testbed import ensure_environment

    ensure_environment()


def _counts(text: str, option: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(
            f"must be whole numbers above 0 such as 1,16,64, got {text!r}",
            param_hint=f"--{option}",
        )
    return [int(part) for part in parts]


def main() -> None:
    """Run the command line; what a user can put right is one line, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        if os.environ.get(_DEBUG):
            raise
        typer.echo(f"acclimate: error: {_sentence(error)}", err=True)
        sys.exit(EXIT_NO if isinstance(error, RuntimeError) else EXIT_USAGE)


def _sentence(error: Exception) -> str:
    """Return an error as one line."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the module {error.name!r} must be installed for this command"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
