"""The options that every lab takes, declared once: the fields of `LabRun`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from acclimate.experiments.cli.app import Json, Seed
from acclimate.experiments.lab.lab_run import LabRun

_RUN = "run"
_OPTIONS: dict[str, Any] = {
    "out": Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="New folder; default: below acclimate-out/lab."),
    ],
    "resume": Annotated[
        bool, typer.Option("--resume", help="Go on with what a killed run left in --out.")
    ],
    "mlflow": Annotated[bool, typer.Option(help="Track the experiment in MLflow.")],
    "json": Json,
    "seed": Seed,
}


def with_lab_run(
    *, jobs: str = "Processes; default: one for each core."
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command have an option for each field of its parameter ``run``, behind its own ones.

    Parameters
    ----------
    jobs
        What the help says of ``--jobs``.

    Returns
    -------
    A decorator of commands whose parameter ``run`` is a `LabRun`, by default one with the options'
    defaults.
    """
    options = {
        "jobs": Annotated[int | None, typer.Option("--jobs", min=1, help=jobs)],
        **_OPTIONS,
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        defaults = own.pop(_RUN).default
        asked = inspect.Signature(
            [
                *own.values(),
                *(
                    inspect.Parameter(
                        name,
                        inspect.Parameter.POSITIONAL_OR_KEYWORD,
                        default=getattr(defaults, name),
                        annotation=option,
                    )
                    for name, option in options.items()
                ),
            ]
        )

        @functools.wraps(command)
        def call(**given: Any) -> None:
            run = LabRun(**{name: given.pop(name) for name in options})
            command(**given, run=run)

        # What typer reads a command's options from.
        call.__annotations__ = {name: each.annotation for name, each in asked.parameters.items()}
        vars(call)["__signature__"] = asked
        return call

    return decorate
