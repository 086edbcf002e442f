"""The command line: ``acclimate --help``; what a command needs is imported when it runs."""

from __future__ import annotations

import os
import sys

import typer

from acclimate.experiments.cli import bench, engine, lab, simulation, traces
from acclimate.experiments.cli.app import EXIT_NO, EXIT_USAGE, app

__all__ = ["app", "bench", "engine", "lab", "main", "simulation", "traces"]

_DEBUG = "ACCLIMATE_DEBUG"


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
