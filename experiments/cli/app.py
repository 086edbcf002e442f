"""The command line's groups, and the options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import acclimate

EXIT_OK, EXIT_NO, EXIT_USAGE = 0, 1, 2

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


def engine_environment() -> None:
    """Run on with the engine's libraries preloaded; this may start the process anew."""
    from acclimate.experiments.testbed import ensure_environment

    ensure_environment()
