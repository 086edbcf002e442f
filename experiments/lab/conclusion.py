"""How every lab ends: figures and a report beside its results, and a tracked experiment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from acclimate.experiments.figures import Figure, Meta, write_figures
from acclimate.experiments.lab.cell_store import CellStore
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.tracking import Group, track_lab


def lab_console(width: int = 132) -> Console:
    """Return the terminal, or where there is none something of a fixed width."""
    return Console(width=None if sys.stdout.isatty() else width)


def conclude(
    store: CellStore[Any],
    figures: Sequence[Figure],
    groups: Callable[[], Sequence[Group]],
    console: Console,
    run: LabRun,
    *,
    engine: str = "simulated",
) -> None:
    """Write figures and report into a lab's folder, say where they are, and track the experiment.

    Parameters
    ----------
    store
        Holds the results, and is still open.
    groups
        Returns the nested runs; asked only where the experiment is tracked.
    run
        Tells the seed, a second place for the figures, and whether to track the experiment.
    engine
        What the figures are of.
    """
    from acclimate.experiments.report.run import write_folder_report
    from acclimate.experiments.report.stored import FIGURES_FILE

    out = store.folder
    meta = Meta(store.header.command, engine=engine, seed=run.seed)
    for path in (out / FIGURES_FILE, run.json):
        if path is not None:
            write_figures(path, figures, meta)
    console.print(f"• results: {out}", highlight=False, soft_wrap=True)
    page = write_folder_report(out, console)
    if run.mlflow:
        artifacts = [] if page is None else [page]
        track_lab(store.header, out, figures, groups(), console, artifacts=artifacts)
