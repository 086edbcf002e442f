"""How every lab ends: figures and a report beside its results, and a tracked experiment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from acclimate.experiments.figures import Figure, Meta, write_figures
from acclimate.experiments.lab.cell_store import CellStore
from acclimate.experiments.lab.tracking import Group, track_lab

_HOME = Path("acclimate-out/lab")


def new_folder(command: str) -> Path:
    """Return where the results of a run go that is not told where, such as of ``lab load``."""
    return _HOME / f"{command.removeprefix('lab ')}-{time.strftime('%Y%m%d-%H%M%S')}"


def lab_console(width: int = 132) -> Console:
    """Return the terminal, or where there is none something of a fixed width."""
    return Console(width=None if sys.stdout.isatty() else width)


def conclude(
    store: CellStore[Any],
    figures: Sequence[Figure],
    groups: Callable[[], Sequence[Group]],
    console: Console,
    *,
    engine: str = "simulated",
    seed: int,
    json: Path | None,
    mlflow: bool,
) -> None:
    """Write figures and report into a lab's folder, say where they are, and track the experiment.

    Parameters
    ----------
    store
        Holds the results, and is still open.
    groups
        Returns the nested runs; asked only where the experiment is tracked.
    engine, seed
        What the figures are of.
    json
        A second place for the figures.
    mlflow
        Whether to track the experiment.
    """
    from acclimate.experiments.report.run import write_folder_report
    from acclimate.experiments.report.stored import FIGURES_FILE

    out = store.folder
    meta = Meta(store.header.command, engine=engine, seed=seed)
    for path in (out / FIGURES_FILE, json):
        if path is not None:
            write_figures(path, figures, meta)
    console.print(f"• results: {out}", highlight=False, soft_wrap=True)
    page = write_folder_report(out, console)
    if mlflow:
        artifacts = [] if page is None else [page]
        track_lab(store.header, out, figures, groups(), console, artifacts=artifacts)
