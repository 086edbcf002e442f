"""What ``acclimate mlflow upload`` shows of the runs that it brings in."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from acclimate.experiments.figures import Figure, Meta, write_figures
from acclimate.integrations.mlflow_upload import upload


def run_upload(
    directory: Path,
    *,
    tracking_uri: str | None = None,
    json: Path | None = None,
    console: Console | None = None,
) -> bool:
    """Upload what is spooled, and say what became of every run.

    Returns
    -------
    bool
        Whether every run is complete.

    Raises
    ------
    FileNotFoundError
        There is no such directory.
    ValueError
        It holds no spooled run.
    ImportError
        MLflow is not installed.
    """
    console = console or Console()
    result = upload(directory, tracking_uri)
    for run in result.runs:
        console.print(
            f"run {run.run_id}: {run.points_sent} points, {run.artifacts_sent} files to "
            f"{run.tracking_uri}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        left = [f"artifact must exist, got {path}" for path in run.missing_artifacts]
        if run.unreadable_lines:
            left.append(f"{run.unreadable_lines} unreadable lines left out")
        if run.error is not None:
            left.append(run.error)
        for sentence in left:
            console.print(f"  {sentence}", highlight=False, markup=False, soft_wrap=True)
    if json is not None:
        figures = [
            Figure("mlflow/upload/points", result.points_sent, unit="points"),
            Figure("mlflow/upload/incomplete_runs", len(result.errors), unit="runs"),
        ]
        write_figures(json, figures, Meta("mlflow upload"))
    return not result.errors
