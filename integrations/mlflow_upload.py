"""Brings spooled runs in later; as a program it is what an engine that ended leaves behind."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from acclimate.integrations.metrics import MAX_METRICS_PER_ROW, MetricRow
from acclimate.integrations.spool import RunRecord, Spool, spooled_lives
from acclimate.integrations.trace_names import segment_files
from acclimate.integrations.tracking import Tracker, is_redacted, redact

_logger = logging.getLogger("acclimate.mlflow")
_HTTP_TIMEOUT_S = 10
_HTTP_RETRIES = 2
_CLAIM_POLL_S = 0.2
_CHILD_WAIT_S = 300.0


class RunUpload(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one spooled run.

    Counts are of this upload only; ``error`` says why it stopped
    early, None if the run is complete.
    """

    directory: str
    tracking_uri: str = ""
    run_id: str | None = None
    points_sent: int = 0
    artifacts_sent: int = 0
    unreadable_lines: int = 0
    missing_artifacts: tuple[str, ...] = ()
    error: str | None = None


class UploadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of every spooled run of a directory.

    Examples
    --------
    >>> UploadResult(runs=(RunUpload(directory="a", points_sent=3),)).points_sent
    3
    """

    runs: tuple[RunUpload, ...]

    @property
    def points_sent(self) -> int:
        """Points sent by this upload."""
        return sum(run.points_sent for run in self.runs)

    @property
    def errors(self) -> tuple[str, ...]:
        """One line per run that is not complete."""
        return tuple(run.error for run in self.runs if run.error is not None)


def upload(
    directory: str | os.PathLike[str], tracking_uri: str | None = None, wait_s: float = 0.0
) -> UploadResult:
    """Send what is spooled: one run's directory, or a directory of such.

    What was sent is marked, so that a repeated or broken-off upload sends nothing twice. Run it in
    a process of its own: while it runs, MLflow's HTTP timeouts are short unless the environment
    sets them.

    Parameters
    ----------
    directory
        ``config.mlflow.spool_dir`` or one directory in it.
    tracking_uri
        Another server than the one that the run was meant for.
    wait_s
        How long to wait for a directory that is in use.

    Raises
    ------
    FileNotFoundError
        There is no such directory.
    ValueError
        It holds no spooled run.
    ImportError
        MLflow is not installed.
    """
    lives = spooled_lives(Path(directory))
    with _short_http_timeouts():
        return UploadResult(runs=tuple(_upload_life(life, tracking_uri, wait_s) for life in lives))


def _upload_life(directory: Path, tracking_uri: str | None, wait_s: float) -> RunUpload:
    spool = Spool(directory)
    uploading: _Upload | None = None
    error: str | None = None
    try:
        deadline_s = time.monotonic() + wait_s
        while not spool.claim():
            if time.monotonic() >= deadline_s:
                raise ValueError("it must be free, got one in use by an engine or another upload")
            time.sleep(_CLAIM_POLL_S)
        uploading = _Upload(spool, spool.read_run(), tracking_uri)
        uploading.run()
    except ImportError:
        raise
    except Exception as caught:
        text = " ".join(f"{type(caught).__name__}: {caught}".split())
        error = f"{directory}: {text}"
    finally:
        spool.release()
    if uploading is None:
        return RunUpload(directory=str(directory), error=error)
    return uploading.result(error)


class _Upload:
    """One run's way to the server, step by step, each marked when it is done."""

    def __init__(self, spool: Spool, record: RunRecord, tracking_uri: str | None) -> None:
        self.spool = spool
        self.record = record
        self.tracking_uri = tracking_uri
        self.before = self.progress = spool.read_progress()
        self.missing = tuple(path for path in record.artifacts if not _files(path))

    def run(self) -> None:
        if self._complete():
            return
        tracker = Tracker(self.tracking_uri or _stored_uri(self.record))
        run_id = self.record.run_id or self.progress.run_id or tracker.open(self.record)
        self._mark(run_id=run_id)
        self._send_points(tracker, run_id)
        self._send_files(tracker, run_id)
        if not self.progress.ended:
            killed = self.record.end_time_ms is None
            end_time_ms = self.record.end_time_ms or self._last_ms()
            tracker.end(run_id, "KILLED" if killed else "FINISHED", end_time_ms)
            self._mark(ended=True)

    def result(self, error: str | None) -> RunUpload:
        return RunUpload(
            directory=str(self.spool.directory),
            tracking_uri=redact(self.tracking_uri or self.record.tracking_uri),
            run_id=self.record.run_id or self.progress.run_id,
            points_sent=self.progress.points_sent - self.before.points_sent,
            artifacts_sent=len(self.progress.artifacts) - len(self.before.artifacts),
            unreadable_lines=self.progress.unreadable_lines - self.before.unreadable_lines,
            missing_artifacts=self.missing,
            error=error,
        )

    def _complete(self) -> bool:
        path = self.spool.points_path
        return (
            self.progress.ended
            and self.progress.offset_bytes == (path.stat().st_size if path.exists() else 0)
            and not any(self._unsent_files())
        )

    def _mark(self, **changes: object) -> None:
        self.progress = msgspec.structs.replace(self.progress, **changes)
        self.spool.write_progress(self.progress)

    def _send_points(self, tracker: Tracker, run_id: str) -> None:
        for rows, end_bytes, unreadable in _batches(self.spool, self.progress.offset_bytes):
            tracker.send(run_id, rows)
            self._mark(
                offset_bytes=end_bytes,
                points_sent=self.progress.points_sent + sum(len(row) for row in rows),
                unreadable_lines=self.progress.unreadable_lines + unreadable,
            )

    def _send_files(self, tracker: Tracker, run_id: str) -> None:
        if not (self.record.config_sent or self.progress.config_sent):
            tracker.send_config(run_id, self.record.config)
            self._mark(config_sent=True)
        for path in self._unsent_files():
            tracker.send_file(run_id, Path(path))
            self._mark(artifacts=(*self.progress.artifacts, path))

    def _unsent_files(self) -> Iterator[str]:
        for artifact in self.record.artifacts:
            yield from (path for path in _files(artifact) if path not in self.progress.artifacts)

    def _last_ms(self) -> int:
        last_ms = max(self.record.start_time_ms, self.spool.last_beat_ms)
        for row, _ in self.spool.rows():
            last_ms = last_ms if row is None else max(last_ms, row.timestamp_ms)
        return last_ms


def _batches(spool: Spool, offset_bytes: int) -> Iterator[tuple[list[MetricRow], int, int]]:
    """Yield rows that fit one call, the offset behind them, and how many lines were unreadable."""
    batch: list[MetricRow] = []
    size = unreadable = 0
    end_bytes = offset_bytes
    for row, row_end_bytes in spool.rows(offset_bytes):
        if row is not None and size + len(row) > MAX_METRICS_PER_ROW:
            yield batch, end_bytes, unreadable
            batch, size, unreadable = [], 0, 0
        if row is None:
            unreadable += 1
        else:
            batch.append(row)
            size += len(row)
        end_bytes = row_end_bytes
    if end_bytes > offset_bytes:
        yield batch, end_bytes, unreadable


def _files(artifact: str) -> list[str]:
    """Return what there is of an artifact: a directory, a file, a trace's segments, nothing."""
    path = Path(artifact)
    return [artifact] if path.is_dir() else [str(file) for file in segment_files(path)]


def _stored_uri(record: RunRecord) -> str:
    """Return the run's own server, with the credentials that only the environment knows."""
    if not is_redacted(record.tracking_uri):
        return record.tracking_uri
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None:
        raise ValueError(
            f"MLFLOW_TRACKING_URI must hold the address of {record.tracking_uri} with its "
            "credentials, got nothing"
        )
    return uri


@contextmanager
def _short_http_timeouts() -> Iterator[None]:
    wanted = {
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_HTTP_TIMEOUT_S),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(_HTTP_RETRIES),
    }
    unset = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in unset})
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


def main() -> int:
    """Upload the directory that the command line names, at low priority."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.nice(10)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    spool = Spool(Path(sys.argv[1]))
    record = None
    while record != (record := spool.read_run()):  # files may be attached meanwhile
        result = upload(spool.directory, wait_s=_CHILD_WAIT_S)
    for run in result.runs:
        _logger.info("run %s: %d points, %d files", run.run_id, run.points_sent, run.artifacts_sent)
    for error in result.errors:
        _logger.error("%s", error)
    for run in result.runs:
        for path in run.missing_artifacts:
            _logger.error("artifact must exist, got %s", path)
    return 1 if result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
