"""Tracks an experiment of the laboratory: a parent run, and a nested run for each group of cells."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import track

from acclimate.controller.config import MlflowConfig
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.cell_store import RESULTS_FILE, Header
from acclimate.integrations.metrics import MetricRow
from acclimate.integrations.spool import RunRecord
from acclimate.integrations.tracking import (
    LIFE_TAG,
    Tracker,
    flatten,
    redact,
    resolve_experiment,
    resolve_tracking_uri,
)

RUN_FILE = "mlflow.json"
_MAX_PARAM_CHARS = 500


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """One nested run.

    Parameters
    ----------
    name
        Of the run; unique in the experiment.
    params
        What sets the group apart.
    figures
        Its metrics; an interval becomes two more, ``…_low`` and ``…_high``.
    artifacts
        Files that belong to it.
    strip
        What names of figures begin with and metrics do not.
    series
        Metrics over time: values by name, at steps 0, 1, ….
    """

    name: str
    params: dict[str, str]
    figures: Sequence[Figure]
    artifacts: tuple[Path, ...] = ()
    strip: str = ""
    series: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)


class TrackedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Where an experiment is tracked; kept beside its results."""

    run_id: str
    tracking_uri: str


def track_lab(
    header: Header,
    folder: Path,
    figures: Sequence[Figure],
    groups: Sequence[Group],
    console: Console,
    *,
    artifacts: Sequence[Path] = (),
) -> str | None:
    """Send an experiment to MLflow, and say where it is; an experiment that went on keeps its run.

    Results are on disk whatever becomes of this: a server that refuses costs a line, not the run.

    Returns
    -------
    The parent run's id; None if the server did not take it.
    """
    config = MlflowConfig()
    uri = resolve_tracking_uri(config, os.environ, Path.cwd())
    for name in ("mlflow.store", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        tracker = Tracker(uri)
        experiment = resolve_experiment(config, os.environ)
        own = {"command": header.command, **_texts(header)}
        # Names of figures are too many for one run: the parent holds them as a file.
        parent = tracker.open(_record(header, uri, experiment, header.command, own))
        for path in (folder / "figures.json", folder / RESULTS_FILE, *artifacts):
            if path.is_file():
                tracker.send_file(parent, path)
        shown = Console(stderr=True)
        for group in track(
            groups, "MLflow", console=shown, transient=True, disable=not shown.is_terminal
        ):
            _send_group(tracker, header, uri, experiment, parent, group)
        tracker.end(parent, "FINISHED", _now_ms())
    except Exception as error:
        told = " ".join(str(error).split())[:200]
        console.print(
            f"• MLflow did not take the run: {type(error).__name__}: {told}", markup=False
        )
        return None
    run = TrackedRun(run_id=parent, tracking_uri=redact(uri))
    (folder / RUN_FILE).write_bytes(msgspec.json.encode(run))
    console.print(
        f"• MLflow: run {parent} in {redact(uri)}, {len(groups)} nested runs",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return parent


def _send_group(
    tracker: Tracker, header: Header, uri: str, experiment: str, parent: str, group: Group
) -> None:
    record = _record(header, uri, experiment, group.name, group.params, parent=parent)
    run_id = tracker.open(record)
    values: dict[str, float] = {}
    for figure in group.figures:
        name = figure.name.removeprefix(group.strip)
        for end, value in (("", figure.value), ("_low", figure.low), ("_high", figure.high)):
            if value is not None:
                values[f"{name}{end}"] = value
    if values:
        tracker.send(run_id, [MetricRow(timestamp_ms=_now_ms(), step=0, values=values)])
    steps = max((len(values) for values in group.series.values()), default=0)
    over_time = [
        MetricRow(
            timestamp_ms=_now_ms(),
            step=step,
            values={name: v[step] for name, v in group.series.items() if step < len(v)},
        )
        for step in range(steps)
    ]
    if over_time:
        tracker.send(run_id, over_time)
    for path in group.artifacts:
        tracker.send_file(run_id, path)
    tracker.end(run_id, "FINISHED", _now_ms())


def _record(
    header: Header,
    uri: str,
    experiment: str,
    name: str,
    params: dict[str, str],
    *,
    parent: str | None = None,
) -> RunRecord:
    life = header.lab if parent is None else f"{header.lab}/{name}"
    tags = {LIFE_TAG: life, "acclimate.version": header.version, "acclimate.lab": header.command}
    if parent is not None:
        tags["mlflow.parentRunId"] = parent
    return RunRecord(
        life=life,
        tracking_uri=redact(uri),
        experiment=experiment,
        run_name=name,
        start_time_ms=header.started_ms,
        params={key: value[:_MAX_PARAM_CHARS] for key, value in params.items()},
        tags=tags,
        config={},
    )


def _texts(header: Header) -> dict[str, str]:
    plain = {k: v for k, v in header.settings.items() if not isinstance(v, dict)}
    return flatten(plain)


def _now_ms() -> int:
    return round(1e3 * time.time())
