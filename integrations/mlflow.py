"""Tracks one controller life as one MLflow run, and costs the engine next to nothing."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from contextlib import suppress
from multiprocessing import util
from pathlib import Path

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import EventQueue
from acclimate.integrations import afterlife
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.metrics import Aggregator, MetricRow
from acclimate.integrations.sender import Sender
from acclimate.integrations.spool import Spool
from acclimate.integrations.tracking import Tracker, resolve_tracking_uri, run_record

_logger = logging.getLogger("acclimate.mlflow")
_MAX_WORK_SHARE = 0.02
_DRAIN_INTERVAL_S = 0.25
_CLOSE_S = 2.0
_PATIENCE_ROWS = 3
# A local database may first have to be made; a server answers soon or is left to the thread.
_OPEN_LOCAL_S, _OPEN_REMOTE_S = 60.0, 5.0


class MlflowSink:
    """Consumes a loop's events in a thread of its own and sends interval metrics to MLflow.

    It works at most 2 % of the time. What the server does not take goes to
    ``config.mlflow.spool_dir/<life>``. A process apart, which sleeps until then, brings it in at
    the end, with the attached files, and ends the run: neither `close` nor the interpreter's exit
    waits for a server, and a killed engine's run ends too.

    Parameters
    ----------
    config
        The configuration in force; its section ``mlflow`` says where to.
    header
        The engine, for the run's tags.
    queue
        Attached to the loop by whoever owns both; made with ``snapshots=False``.
    directory
        Where relative paths start; default: the working directory.

    Examples
    --------
    >>> import tempfile
    >>> from acclimate.controller.records import Capabilities
    >>> header = EngineHeader(
    ...     engine="vllm", engine_version="0.32.0", runner="v1", model="m", dtype="float32",
    ...     method="ngram", device="cpu", max_model_len=2048, max_num_seqs=8,
    ...     capabilities=Capabilities(max_depth=2, depths=(0, 1, 2)))
    >>> sink = MlflowSink(
    ...     ControlConfig(), header, EventQueue(snapshots=False), Path(tempfile.mkdtemp()))
    >>> sink.tracking_uri.startswith("sqlite:////"), sink.run_id is None
    (True, True)
    """

    def __init__(
        self,
        config: ControlConfig,
        header: EngineHeader,
        queue: EventQueue,
        directory: Path | None = None,
    ) -> None:
        self.config = config
        self.queue = queue
        self.produced_points = 0
        directory = Path.cwd() if directory is None else directory
        life = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:12]}"
        self._uri = resolve_tracking_uri(config.mlflow, os.environ, directory)
        self.spool = Spool((directory / config.mlflow.spool_dir / life).resolve())
        record = run_record(
            config,
            header,
            life=life,
            environment=os.environ,
            directory=directory,
            start_time_ms=_wall_ms(),
        )
        self.sender = Sender(lambda: Tracker(self._uri), record, self.spool)
        self._aggregator = Aggregator(config.learn.max_slots)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="acclimate-metrics", daemon=True)
        self._pid = os.getpid()
        self._started = self._closed = False
        self._refused_rows = 0
        self._own_cpu_ns = 0
        self._sent_at_s = 0.0
        self._sent_cpu_ns = 0

    @property
    def run_id(self) -> str | None:
        """The MLflow run, None until the server has taken it."""
        return self.sender.record.run_id

    @property
    def tracking_uri(self) -> str:
        """The server's address, without credentials."""
        return self.sender.record.tracking_uri

    @property
    def spool_dir(self) -> Path:
        """Where this life's points go that the server does not take."""
        return self.spool.directory

    def start(self) -> None:
        """Load MLflow here, in the caller, open the run, and start working in threads.

        Waits for a local database to be made, and a few seconds at most for a server.
        """
        try:
            self.spool.claim()
            self.spool.write_run(self.sender.record)
            afterlife.start(self.spool.directory, self._uri)
        except OSError as error:
            _logger.warning("spool directory must be writable, got %s", error)
        with suppress(Exception):
            # A missing or broken MLflow is the sender's to report: it keeps everything on disk.
            import mlflow.tracking  # noqa: F401
        self.sender.start()
        self.sender.submit(None)
        local = self._uri.startswith("sqlite:")
        self.sender.wait_idle(_OPEN_LOCAL_S if local else _OPEN_REMOTE_S)
        # The engine does not run yet: opening is not charged to the share of time.
        self._sent_cpu_ns = self.sender.cpu_ns
        self._sent_at_s = time.monotonic()
        self._started = True
        self._thread.start()
        # Unlike atexit, this also runs at the end of a process that multiprocessing started.
        self._finalizer = util.Finalize(None, self.close, exitpriority=20)

    def attach_artifact(self, path: str | os.PathLike[str]) -> None:
        """Have a file, a directory or a trace uploaded at the end; after `close`, at once.

        The file need not exist yet. The path of a trace stands for all of its segments.
        """
        artifact = str(Path(path).resolve())
        try:
            self.sender.change_record(artifacts=(*self.sender.record.artifacts, artifact))
        except OSError as error:
            _logger.warning("spool directory must be writable, got %s", error)
        if self._closed:
            self._leave()

    def close(self) -> None:
        """Send or spool what is left, within two seconds, and leave the rest to a child process."""
        if self._closed or not self._started or os.getpid() != self._pid:
            return
        self._closed = True
        self._finalizer.cancel()
        deadline_s = time.monotonic() + _CLOSE_S
        self._stop.set()
        self._thread.join(_CLOSE_S / 2)
        row = None
        if not self._thread.is_alive():
            self._drain()
            row = self._flush()
        end_time_ms = _wall_ms()
        self.sender.wait_idle(deadline_s - time.monotonic() - _CLOSE_S / 4)
        if self.sender.ready:
            # With nothing left behind, the run can be ended right here.
            whole = not (self.spool.points or self.sender.record.artifacts)
            self.sender.submit(row, end_time_ms if whole else None)
            row = None
            self.sender.wait_idle(deadline_s - time.monotonic())
        for unsent in (self.sender.abandon(), row):
            if unsent is not None:
                self.spool.append(unsent)
        self.sender.stop()
        sent = self.sender.record
        if self.sender.ended and sent.config_sent and not (self.spool.points or sent.artifacts):
            self.spool.remove()
        else:
            self._leave(end_time_ms)

    def wait_uploaded(self, timeout_s: float) -> bool:
        """After `close`: wait until the upload is over, and return whether it is."""
        return afterlife.wait_gone(self.spool.directory, timeout_s)

    # --- in the thread -------------------------------------------------------------------------

    def _work(self) -> None:
        drain_s = min(_DRAIN_INTERVAL_S, self.config.mlflow.interval_s)
        while not self._stop.wait(drain_s):
            try:
                self._turn()
            except Exception:
                _logger.exception("metrics of one interval are lost")

    def _turn(self) -> None:
        self._drain()
        cpu_ns = self._own_cpu_ns + self.sender.cpu_ns
        rest_s = (cpu_ns - self._sent_cpu_ns) / 1e9 / _MAX_WORK_SHARE
        now_s = time.monotonic()
        if now_s - self._sent_at_s >= max(rest_s, self.config.mlflow.interval_s):
            self._sent_at_s, self._sent_cpu_ns = now_s, cpu_ns
            row = self._flush()
            if row is not None:
                self._dispatch(row)
        self._own_cpu_ns = time.thread_time_ns()

    def _dispatch(self, row: MetricRow) -> None:
        with suppress(OSError):
            self.spool.beat()
        if self.sender.ready:
            self._refused_rows = 0
            self.sender.submit(row)
            return
        self.spool.append(row)
        self._refused_rows += 1
        if self._refused_rows == _PATIENCE_ROWS:
            # MLflow itself goes on trying for minutes before it says so.
            self.sender.complain("no answer")

    def _drain(self) -> None:
        for event in self.queue.take():
            self._aggregator.add(event)

    def _flush(self) -> MetricRow | None:
        row = self._aggregator.flush(
            _wall_ms(),
            (
                ("sink/dropped_events", self.queue.lost),
                ("sink/spooled_points", self.spool.points),
                ("sink/dropped_points", self.spool.dropped_points),
            ),
        )
        self.produced_points += 0 if row is None else len(row)
        return row

    # --- at the end ----------------------------------------------------------------------------

    def _leave(self, end_time_ms: int | None = None) -> None:
        """Write down what is to be uploaded, and let go: the waiting process does it."""
        directory = self.spool.directory
        try:
            end_time_ms = end_time_ms or self.sender.record.end_time_ms or _wall_ms()
            self.sender.change_record(end_time_ms=end_time_ms)
            self.spool.release()
            afterlife.start(directory, self._uri)
        except OSError as error:
            _logger.warning("the MLflow upload could not start, got %s", error)
        if self.spool.points:
            _logger.warning(
                "MLflow: %d points are uploaded in the background; should that fail, "
                "'acclimate mlflow upload %s' brings them in",
                self.spool.points,
                directory,
            )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
