"""Commands on what was recorded: traces, other files, folders of results, and spooled records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from acclimate.experiments.cli.app import (
    EXIT_NO,
    EXIT_OK,
    Json,
    Seed,
    app,
    tracker,
)


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
        from acclimate.experiments.counterfactual.command import run_counterfactual

        run_counterfactual(
            trace, arms=policy or [], configs=config or [], recorded=recorded, json=json, seed=seed
        )
        return
    if config or recorded:
        raise typer.BadParameter("must come without --verify", param_hint="--config, --recorded")
    from acclimate.experiments.replay.command import run_replay

    holds = run_replay(trace, verify=verify, policies=policy or [], json=json)
    raise typer.Exit(EXIT_OK if holds else EXIT_NO)


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


@app.command(
    epilog="Examples: [bold]acclimate report acclimate-out/demo[/bold], "
    "[bold]acclimate report 0a1b2c3d4e5f[/bold]"
)
def report(
    target: Annotated[
        str,
        typer.Argument(metavar="RUN|DIR", help="A folder of lab, compare or demo; or a run's id."),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", dir_okay=False, help="The HTML file; default: report.html in DIR."),
    ] = None,
    mlflow: Annotated[
        bool, typer.Option(help="Store the report with the MLflow run that DIR belongs to.")
    ] = True,
) -> None:
    """Write one HTML file with tables and figures, for readers who never saw the project."""
    from acclimate.experiments.report.run import run_report

    run_report(target, out=out, mlflow=mlflow)


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
