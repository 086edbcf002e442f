"""What is said to an MLflow server: names of runs, parameters, tags, and the calls themselves.

Only `MlflowClient` with an explicit address is used: the user's own active run and MLflow's global
state stay as they are.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from acclimate.controller.config import ControlConfig, MlflowConfig
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.metrics import MAX_METRICS_PER_ROW, MetricRow
from acclimate.integrations.spool import RunRecord

LIFE_TAG = "acclimate.life"
_DEFAULT_URI = "sqlite:///mlflow.db"
_DEFAULT_EXPERIMENT = "acclimate"
_MAX_PARAM_CHARS = 500  # what the oldest supported servers take
_MAX_TAG_CHARS = 5000
_MAX_PARAMS_PER_BATCH = 100
_REDACTED = "***"
_UNFIT_KEY = re.compile(r"[^A-Za-z0-9_\-./ ]")


def resolve_tracking_uri(
    config: MlflowConfig, environment: Mapping[str, str], directory: Path
) -> str:
    """Return the server's address: from the configuration, the environment, or a local database.

    The path of an SQLite file is made absolute, so that a later upload from another directory
    finds the same file.

    Examples
    --------
    >>> resolve_tracking_uri(MlflowConfig(), {}, Path("/srv"))
    'sqlite:////srv/mlflow.db'
    >>> resolve_tracking_uri(MlflowConfig(), {"MLFLOW_TRACKING_URI": "http://a:5000"}, Path("/srv"))
    'http://a:5000'
    """
    uri = config.tracking_uri or environment.get("MLFLOW_TRACKING_URI") or _DEFAULT_URI
    prefix = "sqlite:///"
    if uri.startswith(prefix):
        path, question, query = uri.removeprefix(prefix).partition("?")
        if path and not path.startswith(("/", ":memory:", "file:")):
            uri = f"{prefix}{directory.resolve() / path}{question}{query}"
    return uri


def resolve_experiment(config: MlflowConfig, environment: Mapping[str, str]) -> str:
    """Return the experiment's name: from the configuration, the environment, or the default."""
    return config.experiment or environment.get("MLFLOW_EXPERIMENT_NAME") or _DEFAULT_EXPERIMENT


def redact(uri: str) -> str:
    """Return an address without the credentials it may carry.

    Examples
    --------
    >>> redact("postgresql://me:secret@db/mlflow"), redact("http://a:5000")
    ('postgresql://***@db/mlflow', 'http://a:5000')
    """
    parts = urlsplit(uri)
    if "@" not in parts.netloc:
        return uri
    return urlunsplit(parts._replace(netloc=f"{_REDACTED}@{parts.netloc.rpartition('@')[2]}"))


def is_redacted(uri: str) -> bool:
    """Whether credentials were taken out of an address."""
    return f"//{_REDACTED}@" in uri


def public_config(config: ControlConfig) -> dict[str, Any]:
    """Return a configuration as plain data, without credentials."""
    data = config.model_dump(mode="json")
    if config.mlflow.tracking_uri is not None:
        data["mlflow"]["tracking_uri"] = redact(config.mlflow.tracking_uri)
    return data


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested plain data as dotted names and texts.

    Examples
    --------
    >>> flatten({"seed": 3, "guard": {"late_ms": 50.0}})
    {'seed': '3', 'guard.late_ms': '50.0'}
    """
    flat: dict[str, str] = {}
    for key, value in data.items():
        name = f"{prefix}{_UNFIT_KEY.sub('_', str(key))}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{name}."))
        elif isinstance(value, (list, tuple)):
            flat[name] = ",".join(str(item) for item in value)
        else:
            flat[name] = "" if value is None else str(value)
    return flat


def run_record(
    config: ControlConfig,
    header: EngineHeader,
    *,
    life: str,
    environment: Mapping[str, str],
    directory: Path,
    start_time_ms: int,
) -> RunRecord:
    """Return what a new run says of itself: configuration as parameters, versions as tags."""
    data = public_config(config)
    tags = {
        LIFE_TAG: life,
        "acclimate.version": metadata.version("acclimate"),
        f"{header.engine}.version": header.engine_version,
        "python.version": platform.python_version(),
        **flatten(msgspec.to_builtins(header), "engine."),
    }
    if config.mlflow.parent_run_id is not None:
        tags["mlflow.parentRunId"] = config.mlflow.parent_run_id
    return RunRecord(
        life=life,
        tracking_uri=redact(resolve_tracking_uri(config.mlflow, environment, directory)),
        experiment=resolve_experiment(config.mlflow, environment),
        run_name=config.mlflow.run_name,
        start_time_ms=start_time_ms,
        params={k: v[:_MAX_PARAM_CHARS] for k, v in flatten(data).items()},
        tags={k: v[:_MAX_TAG_CHARS] for k, v in tags.items()},
        config=data,
    )


class Tracker:
    """The calls to one tracking server; each of them may wait for as long as MLflow waits.

    Points are identified by run, name, step, time and value: sending one twice leaves one.

    Parameters
    ----------
    uri
        The server's address.

    Raises
    ------
    ImportError
        MLflow is not installed.
    """

    def __init__(self, uri: str) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)

    def open(self, record: RunRecord) -> str:
        """Create the run, or find the one that an earlier attempt created, and return its id.

        Raises
        ------
        ValueError
            The experiment was deleted.
        """
        from mlflow.entities import Param
        from mlflow.tracking.context.registry import resolve_tags

        experiment_id = self._experiment_id(record.experiment)
        found = self._client.search_runs(
            [experiment_id], filter_string=f"tags.`{LIFE_TAG}` = '{record.life}'", max_results=1
        )
        if found:
            run_id = str(found[0].info.run_id)
        else:
            run = self._client.create_run(
                experiment_id,
                start_time=record.start_time_ms,
                tags={**resolve_tags(), **record.tags},
                run_name=record.run_name,
            )
            run_id = str(run.info.run_id)
        params = [Param(key, value) for key, value in record.params.items()]
        for start in range(0, len(params), _MAX_PARAMS_PER_BATCH):
            self._client.log_batch(run_id, params=params[start : start + _MAX_PARAMS_PER_BATCH])
        return run_id

    def send(self, run_id: str, rows: Iterable[MetricRow]) -> None:
        """Send rows, in batches as large as MLflow takes."""
        from mlflow.entities import Metric

        metrics = [
            Metric(key, value, row.timestamp_ms, row.step)
            for row in rows
            for key, value in row.values.items()
        ]
        for start in range(0, len(metrics), MAX_METRICS_PER_ROW):
            self._client.log_batch(run_id, metrics=metrics[start : start + MAX_METRICS_PER_ROW])

    def send_config(self, run_id: str, config: Mapping[str, Any]) -> None:
        """Store the configuration as ``controller_config.json``."""
        self._client.log_dict(run_id, dict(config), "controller_config.json")

    def send_file(self, run_id: str, path: Path) -> None:
        """Store a file, or a directory with what is in it."""
        self._client.log_artifact(run_id, str(path))

    def end(self, run_id: str, status: str, end_time_ms: int) -> None:
        """Say that the run is over: ``FINISHED`` or ``KILLED``."""
        self._client.set_terminated(run_id, status=status, end_time=end_time_ms)

    def _experiment_id(self, name: str) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name))
            except Exception:
                # Another engine may have created it meanwhile.
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        if experiment.lifecycle_stage != "active":
            raise ValueError(f"experiment {name!r} must be active, got a deleted one")
        return str(experiment.experiment_id)
