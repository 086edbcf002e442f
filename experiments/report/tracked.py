"""The report of an MLflow run: an experiment of the laboratory, or the life of a controller."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import acclimate
from acclimate.controller.config import MlflowConfig
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.cell_store import RESULTS_FILE
from acclimate.experiments.lab.tracking import RUN_FILE, TrackedRun
from acclimate.experiments.report.drawing import BLUE, axes, picture
from acclimate.experiments.report.page import Block, Page, Section, Table, Text
from acclimate.experiments.report.stored import FIGURES_FILE, figure_tables, read_stored_figures
from acclimate.experiments.report.words import introduction
from acclimate.integrations.spool import RunRecord
from acclimate.integrations.tracking import (
    Tracker,
    redact,
    resolve_experiment,
    resolve_tracking_uri,
)

REPORT_FILE = "report.html"
_MOST_CHARTS = 24
_COLUMNS = 3


def tracking_uri() -> str:
    """Return the server's address: from the environment, or the database of this folder."""
    return resolve_tracking_uri(MlflowConfig(), os.environ, Path.cwd())


def client(uri: str) -> Any:
    """Return MLflow's client; the user's own active run stays as it is."""
    import mlflow.tracking

    return mlflow.tracking.MlflowClient(tracking_uri=uri)


def attach_report(run_id: str, uri: str, path: Path) -> None:
    """Store a report with a run."""
    client(uri).log_artifact(run_id, str(path))


def track_folder(folder: Path) -> TrackedRun:
    """Open a run for a folder that belongs to none, with its figures; the folder keeps its id."""
    now_ms = round(1e3 * time.time())
    uri = tracking_uri()
    tracker = Tracker(uri)
    run_id = tracker.open(
        RunRecord(
            life=uuid.uuid4().hex,
            tracking_uri=redact(uri),
            experiment=resolve_experiment(MlflowConfig(), os.environ),
            run_name=folder.resolve().name,
            start_time_ms=now_ms,
            params={},
            tags={"acclimate.version": acclimate.__version__},
            config={},
        )
    )
    if (folder / FIGURES_FILE).is_file():
        tracker.send_file(run_id, folder / FIGURES_FILE)
    tracker.end(run_id, "FINISHED", now_ms)
    run = TrackedRun(run_id=run_id, tracking_uri=redact(uri))
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
    return run


def download_lab(run_id: str, uri: str, into: Path) -> bool:
    """Fetch a laboratory experiment's results; return whether the run has any."""
    own = client(uri)
    names = {artifact.path for artifact in own.list_artifacts(run_id)}
    for name in names & {RESULTS_FILE, FIGURES_FILE}:
        own.download_artifacts(run_id, name, str(into))
    return RESULTS_FILE in names


def tracked_page(run_id: str, uri: str) -> Page:
    """Return the report of a run's parameters, metrics and pictures.

    Raises
    ------
    ValueError
        There is no such run.
    """
    own = client(uri)
    try:
        run = own.get_run(run_id)
    except Exception as error:
        told = " ".join(str(error).split())
        raise ValueError(f"RUN must be a folder or a run of {redact(uri)}, got {told}") from error
    data, info = run.data, run.info
    nested = own.search_runs([info.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
    histories = _histories(own, run_id, sorted(data.metrics))
    sections = [
        introduction(
            "This run is what MLflow holds of it: metrics that were sent about once a second while "
            "the engine served, and the configuration in force."
        )
    ]
    if histories:
        sections.append(Section("Metrics over time", _charts(histories)))
    figures = _stored(own, run_id)
    if figures:
        sections.append(Section("Figures", figure_tables(figures)))
    last = [[name, f"{value:.6g}"] for name, value in sorted(data.metrics.items())]
    blocks: list[Block] = [
        Table("Last value of every metric", ("metric", "value"), last, folded=len(last) > 30),
        Table("Parameters", ("parameter", "value"), sorted(data.params.items()), folded=True),
    ]
    if nested:
        rows = [
            [child.info.run_name or child.info.run_id, *_lead_metrics(child.data.metrics)]
            for child in nested
        ]
        blocks.insert(0, Table("Nested runs", ("run", "metrics"), rows))
    sections.append(Section("Values", blocks))
    return Page(
        title=f"Run {info.run_name or run_id}",
        lead="One run as it was tracked.",
        facts=[
            ("run", run_id),
            ("tracked in", redact(uri)),
            ("status", info.status),
            *((key, data.tags[key]) for key in sorted(data.tags) if key.startswith(_SHOWN_TAGS)),
        ],
        sections=sections,
    )


_SHOWN_TAGS = ("acclimate.version", "acclimate.lab", "engine.", "vllm.", "python.")


def _lead_metrics(metrics: dict[str, float]) -> list[str]:
    shown = [f"{name} {value:.4g}" for name, value in sorted(metrics.items())
             if not name.endswith(("_low", "_high"))]  # fmt: skip
    return [", ".join(shown[:6])]


def _histories(own: Any, run_id: str, names: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """Return time in seconds since the first point, and value, of metrics with several points."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        points = own.get_metric_history(run_id, name)
        if len(points) > 1:
            found[name] = [(point.timestamp / 1e3, point.value) for point in points]
    if not found:
        return {}
    first_s = min(points[0][0] for points in found.values())
    return {name: [(at - first_s, v) for at, v in points] for name, points in found.items()}


def _charts(histories: dict[str, list[tuple[float, float]]]) -> list[Block]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name in histories:
        groups[name.partition("/")[0]].append(name)
    names = [name for group in groups.values() for name in group][:_MOST_CHARTS]
    rows = -(-len(names) // _COLUMNS)
    figure, all_axes = axes(rows, _COLUMNS, 10.6, 0.4 + 1.75 * rows)
    for axis, name in zip(all_axes, names, strict=False):
        times, values = zip(*histories[name], strict=True)
        axis.plot(times, values, color=BLUE, lw=1.2)
        axis.set_title(name, loc="left", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in all_axes[len(names) :]:
        axis.set_axis_off()
    for axis in all_axes[max(len(names) - _COLUMNS, 0) : len(names)]:
        axis.set_xlabel("seconds", fontsize=8)
    blocks: list[Block] = [
        picture(
            figure,
            f"{len(names)} metrics over time",
            "Each panel is one metric against seconds since the first point. Beside predicted and "
            "seen acceptance stand the depth in force and tokens per second; an alarm is a counter "
            "that rises.",
        )
    ]
    if len(histories) > len(names):
        blocks.append(Text([f"{len(histories) - len(names)} more metrics are in the table below."]))
    return blocks


def _stored(own: Any, run_id: str) -> list[Figure]:
    if FIGURES_FILE not in {artifact.path for artifact in own.list_artifacts(run_id)}:
        return []
    with tempfile.TemporaryDirectory() as folder:
        return read_stored_figures(Path(own.download_artifacts(run_id, FIGURES_FILE, folder)))[1]
