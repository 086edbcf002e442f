"""Experiments of the laboratory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.experiments.cli.app import (
    EXIT_NO,
    EXIT_OK,
    Json,
    Seed,
    engine_environment,
    laboratory,
)
from acclimate.experiments.cli.lab_options import with_lab_run
from acclimate.experiments.cli.lists import names, numbers
from acclimate.experiments.cli.recording_options import (
    Concurrency,
    Depth,
    FirstTokens,
    Window,
    lookup_of,
)
from acclimate.experiments.lab.lab_run import LabRun

Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Runs of each cell.")]


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
    engine_environment()
    from acclimate.experiments.lab.record import run_record

    complete = run_record(
        prompts, out=out, tokens=tokens, max_model_len=4_096, minutes=minutes, dtype=dtype
    )
    raise typer.Exit(EXIT_OK if complete else EXIT_NO)


@laboratory.command(
    epilog="Example: [bold]acclimate lab domains acclimate-out/answers --json out.json[/bold]"
)
@with_lab_run()
def domains(
    recording: Annotated[
        Path, typer.Argument(help="Answers of 'acclimate lab record'.", exists=True)
    ],
    depth: Depth = 8,
    window: Window = "2,4",
    concurrency: Concurrency = 16,
    first_tokens: FirstTokens = None,
    merge: Annotated[
        list[str] | None,
        typer.Option("--merge", metavar="NAME,NAME=GROUP", help="Domains to take as one."),
    ] = None,
    additive: Annotated[
        bool, typer.Option("--additive", help="The label means the same at every age.")
    ] = False,
    inferred: Annotated[
        bool, typer.Option("--inferred", help="Guess labels from prompts, as if none was declared.")
    ] = False,
    run: LabRun = LabRun(),
) -> None:
    """What a domain label is worth to a predictor, beside history, match and the last draft."""
    from acclimate.experiments.lab.domains import run_domains

    run_domains(
        recording,
        lookup=lookup_of(window, depth),
        concurrency=concurrency,
        first_tokens=first_tokens,
        merge=merge or [],
        additive=additive,
        inferred=inferred,
        run=run,
    )


@laboratory.command(
    epilog="Example: [bold]acclimate lab recalibration --scenarios abrupt_drop,gradual "
    "--policies adaptive,turbospec --seeds 5[/bold]"
)
@with_lab_run()
def recalibration(
    scenarios: Annotated[
        str | None,
        typer.Option("--scenarios", help="TOML files or names, by comma; default: all names."),
    ] = None,
    policies: Annotated[
        str | None, typer.Option("--policies", help="By comma; default: ours and all peers.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each pair.")] = 20,
    run: LabRun = LabRun(),
) -> None:
    """How soon beliefs are right again after a shift, and what it costs; all policies."""
    from acclimate.experiments.lab.recalibration import run_recalibration

    run_recalibration(names(scenarios), names(policies), seeds=seeds, run=run)


@laboratory.command(epilog="Example: [bold]acclimate lab swap --rounds 5 --json swap.json[/bold]")
def swap(
    drafter: Annotated[str, typer.Option("--drafter", help="One with variants.")] = "backoff",
    to: Annotated[str, typer.Option("--to", help="The variant that takes over.")] = "code",
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Swaps.")] = 5,
    prompts: Annotated[
        int, typer.Option("--prompts", min=1, help="Before each swap, and as many behind it.")
    ] = 32,
    json: Json = None,
    seed: Seed = 0,
) -> None:
    """Swap a live engine's drafter: how soon is what was learned of it right again?"""
    engine_environment()
    from acclimate.experiments.lab.swap import run_swap

    run_swap(drafter_name=drafter, variant=to, rounds=rounds, jobs=prompts, json=json, seed=seed)


@laboratory.command(epilog="Example: [bold]acclimate lab load --seeds 5 --json load.json[/bold]")
@with_lab_run()
def load(
    policy: Annotated[str, typer.Option("--policy", metavar="NAME", help="Whom to examine.")] = (
        "adaptive"
    ),
    seeds: Seeds = 5,
    run: LabRun = LabRun(),
) -> None:
    """Does a policy find the best depth of a published table, at every load and at a cliff?"""
    from acclimate.experiments.lab.load import run_load

    run_load(arm=policy, seeds=seeds, run=run)


@laboratory.command(
    epilog="Example: [bold]acclimate lab adaserve --settings stationary,swap --rates 2.6,4.8[/bold]"
)
@with_lab_run()
def adaserve(
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            help="By comma: stationary, covariate, calibration, "
            "calibration_x<size>, swap; default: all.",
        ),
    ] = None,
    arms: Annotated[str | None, typer.Option("--arms", help="By comma; default: all.")] = None,
    rates: Annotated[
        str, typer.Option("--rates", help="Requests per second, by comma.")
    ] = "2.6,3.3,4.1,4.8",
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Tokens that AdaServe may verify a step.")
    ] = None,
    spec_overhead_ms: Annotated[
        float | None,
        typer.Option("--spec-overhead-ms", min=0.0, help="Of a step of the published vLLM-Spec."),
    ] = None,
    seeds: Seeds = 3,
    run: LabRun = LabRun(),
) -> None:
    """Whose requests keep their pace when acceptance shifts: AdaServe's published setting."""
    from acclimate.experiments.lab.adaserve import run_adaserve
    from acclimate.experiments.lab.adaserve_cell import BUDGET_TOKENS, SPEC_OVERHEAD_MS

    run_adaserve(
        settings=names(settings),
        arms=names(arms),
        rates_per_s=numbers(rates, "--rates"),
        budget_tokens=BUDGET_TOKENS if budget is None else budget,
        spec_overhead_ms=SPEC_OVERHEAD_MS if spec_overhead_ms is None else spec_overhead_ms,
        seeds=seeds,
        run=run,
    )


@laboratory.command(
    epilog="Example: [bold]acclimate lab sovereign --seeds 2 --json sovereign.json[/bold]"
)
@with_lab_run()
def sovereign(
    seeds: Seeds = 2,
    length: Annotated[
        float, typer.Option("--length", min=0.01, help="Factor on the time that is simulated.")
    ] = 1.0,
    run: LabRun = LabRun(),
) -> None:
    """What speculation is worth from idle to saturated, and which neighbours it harms."""
    from acclimate.experiments.lab.sovereign import run_sovereign

    run_sovereign(seeds=seeds, length=length, run=run)


@laboratory.command(epilog="Example: [bold]acclimate lab twin --seeds 5 --json twin.json[/bold]")
@with_lab_run()
def twin(
    seeds: Seeds = 5,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Answers per place in the batch.")
    ] = 4,
    run: LabRun = LabRun(),
) -> None:
    """What it costs that no request falls behind the engine without speculation."""
    from acclimate.experiments.lab.twin import run_twin

    run_twin(seeds=seeds, rounds=rounds, run=run)


@laboratory.command(epilog="Example: [bold]acclimate lab trees --json trees.json[/bold]")
@with_lab_run(jobs="Processes, for all but speeds.")
def trees(
    prompts: Annotated[
        int, typer.Option("--prompts", min=0, help="Per domain, answered with every shape.")
    ] = 20,
    tokens: Annotated[int, typer.Option("--tokens", min=2, help="Per answer.")] = 48,
    draws: Annotated[
        int, typer.Option("--draws", min=0, help="Of each test of the sampled law.")
    ] = 200_000,
    answers: Annotated[
        Path | None,
        typer.Option(
            "--answers", help="Of 'acclimate testbed train-draft'; default: its own.", exists=True
        ),
    ] = None,
    swaps: Annotated[int, typer.Option("--swaps", min=0, help="Seeds of swaps of a drafter.")] = 5,
    rounds: Annotated[
        int, typer.Option("--rounds", min=0, help="Of the comparison of speeds.")
    ] = 2,
    minutes: Annotated[
        float | None, typer.Option("--minutes", help="Stop after; --resume goes on.")
    ] = None,
    run: LabRun = LabRun(jobs=1),
) -> None:
    """Speculate with trees: same text and law as without, what shapes are worth, and their control."""
    from acclimate.experiments.lab.trees import TreeOptions, run_trees

    options = TreeOptions(
        prompts=prompts,
        tokens=tokens,
        draws=draws,
        answers=answers,
        swaps=swaps,
        rounds=rounds,
    )
    run_trees(options, minutes=minutes, run=run)
