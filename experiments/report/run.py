"""``acclimate report``: finds out what a folder or a run holds, and writes its page."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from acclimate.experiments.compare.rows import ROWS_FILE
from acclimate.experiments.lab.cell_store import RESULTS_FILE, read_header
from acclimate.experiments.lab.tracking import RUN_FILE, TrackedRun
from acclimate.experiments.report.adaserve import adaserve_page
from acclimate.experiments.report.compare import compare_page
from acclimate.experiments.report.load import load_page
from acclimate.experiments.report.page import Page, render
from acclimate.experiments.report.recalibration import recalibration_page
from acclimate.experiments.report.sovereign import sovereign_page
from acclimate.experiments.report.stored import FIGURES_FILE, stored_page
from acclimate.experiments.report.tracked import (
    REPORT_FILE,
    attach_report,
    download_lab,
    track_folder,
    tracked_page,
    tracking_uri,
)
from acclimate.experiments.report.trees import trees_page

_LABS = {
    "lab adaserve": adaserve_page,
    "lab domains": stored_page,
    "lab load": load_page,
    "lab recalibration": recalibration_page,
    "lab sovereign": sovereign_page,
    "lab twin": stored_page,
    "lab trees": trees_page,
}


def run_report(target: str, *, out: Path | None = None, mlflow: bool = True) -> Path:
    """Write a folder's or a run's report, and store it with the run where there is one.

    Parameters
    ----------
    target
        A folder of ``lab``, ``compare`` or ``demo``, or the id of an MLflow run.
    out
        The HTML file; by default ``report.html`` in the folder, or here for a run.
    mlflow
        Whether to store the report with the run that the folder belongs to.

    Returns
    -------
    The file.

    Raises
    ------
    ValueError
        The target is neither, or holds nothing to report.
    """
    folder = Path(target)
    if folder.is_dir():
        page, run = folder_page(folder), _run_of(folder)
        path = out or folder / REPORT_FILE
    else:
        uri = tracking_uri()
        page, run = _run_page(target, uri), TrackedRun(run_id=target, tracking_uri=uri)
        path = out or Path(f"report-{target[:8]}.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page), encoding="utf-8")
    console = Console()
    console.print(f"• report: {path} ({page.pictures} pictures)", highlight=False, soft_wrap=True)
    if mlflow:
        _store(run, folder, path, console)
    return path


def write_folder_report(folder: Path, console: Console) -> Path | None:
    """Write a folder's report beside its results; None, and a line, where it cannot be drawn."""
    try:
        text = render(folder_page(folder))
    except ModuleNotFoundError as error:
        console.print(f"• no report: the module {error.name!r} is not installed", markup=False)
        return None
    path = folder / REPORT_FILE
    path.write_text(text, encoding="utf-8")
    console.print(f"• report: {path}", highlight=False, soft_wrap=True)
    return path


def folder_page(folder: Path) -> Page:
    """Return the page of a folder, by what it holds.

    Raises
    ------
    ValueError
        It holds nothing that can be reported.
    """
    if (folder / RESULTS_FILE).is_file():
        command = read_header(folder).command
        if command not in _LABS:
            raise ValueError(f"{folder} must be of {' or '.join(_LABS)}, got {command!r}")
        return _LABS[command](folder)
    if (folder / ROWS_FILE).is_file():
        return compare_page(folder)
    if (folder / FIGURES_FILE).is_file():
        return stored_page(folder)
    raise ValueError(
        f"{folder} must hold {RESULTS_FILE} of a lab, {ROWS_FILE} of compare or {FIGURES_FILE}, "
        "got none of them"
    )


def _run_page(run_id: str, uri: str) -> Page:
    page = tracked_page(run_id, uri)
    with tempfile.TemporaryDirectory() as name:
        if download_lab(run_id, uri, Path(name)):
            return folder_page(Path(name))
    return page


def _run_of(folder: Path) -> TrackedRun | None:
    """Return the run that a folder belongs to: as a lab or a demo left it there."""
    path = folder / RUN_FILE
    if path.is_file():
        return msgspec.json.decode(path.read_bytes(), type=TrackedRun)
    lives = sorted(folder.glob("spool/*/run.json"))
    if not lives:
        return None
    record = msgspec.json.decode(lives[-1].read_bytes(), type=dict)
    progress = lives[-1].with_name("progress.json")
    run_id = record.get("run_id")
    if run_id is None and progress.is_file():
        run_id = msgspec.json.decode(progress.read_bytes(), type=dict).get("run_id")
    return (
        None if run_id is None else TrackedRun(run_id=run_id, tracking_uri=record["tracking_uri"])
    )


def _store(run: TrackedRun | None, folder: Path, path: Path, console: Console) -> None:
    """Store the report with its run; a folder without one gets a run of its own."""
    try:
        if run is None:
            run = track_folder(folder)
        attach_report(run.run_id, run.tracking_uri, path)
    except Exception as error:
        told = " ".join(str(error).split())[:200]
        console.print(f"• not stored in MLflow: {type(error).__name__}: {told}", markup=False)
        return
    console.print(f"• stored with MLflow run {run.run_id}", highlight=False, soft_wrap=True)
