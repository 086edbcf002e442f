"""A daemon thread that talks to the tracking server, so that nobody else has to wait for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import msgspec

from acclimate.integrations.metrics import MetricRow
from acclimate.integrations.spool import RunRecord, Spool
from acclimate.integrations.tracking import Tracker

_logger = logging.getLogger("acclimate.mlflow")
_FIRST_BACKOFF_S = 5.0
_MAX_BACKOFF_S = 300.0


class Sender:
    """Opens the run and sends rows; a row that cannot be sent goes to the spool.

    A call may hang for many minutes (MLflow retries). Meanwhile `ready` is False and the caller
    spools; `abandon` takes the row of a hanging call back.

    Parameters
    ----------
    make_tracker
        Connects; called in this thread, again after each failure until it works.
    record
        The run to open.
    spool
        Where rows go after a failure.
    first_backoff_s
        Pause after the first failure; it doubles up to five minutes.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> def refused() -> Tracker:
    ...     raise OSError("refused")
    >>> record = RunRecord(
    ...     life="a", tracking_uri="http://a", experiment="e", run_name=None, start_time_ms=0,
    ...     params={}, tags={}, config={})
    >>> sender = Sender(refused, record, Spool(Path(tempfile.mkdtemp())))
    >>> sender.start()
    >>> sender.submit(MetricRow(timestamp_ms=0, step=1, values={"controller/depth": 2.0}))
    >>> sender.wait_idle(10.0), sender.spool.points, sender.ready
    (True, 1, False)
    >>> sender.stop()
    """

    def __init__(
        self,
        make_tracker: Callable[[], Tracker],
        record: RunRecord,
        spool: Spool,
        first_backoff_s: float = _FIRST_BACKOFF_S,
    ) -> None:
        self.record = record
        self.spool = spool
        self.sent_points = 0
        self.ended = False
        self.cpu_ns = 0
        self._make_tracker = make_tracker
        self._tracker: Tracker | None = None
        self._first_backoff_s = first_backoff_s
        self._backoff_s = first_backoff_s
        self._retry_at_s = 0.0
        self._complained = False
        self._jobs: SimpleQueue[tuple[MetricRow | None, int | None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._in_flight: MetricRow | None = None
        self._abandoned = False
        self._idle = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._work, name="acclimate-mlflow", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end after what it is doing; waits for nothing."""
        self._jobs.put(None)

    @property
    def ready(self) -> bool:
        """Whether `submit` may be called: the last call came back and no back-off is on."""
        return self._idle.is_set() and time.monotonic() >= self._retry_at_s

    def submit(self, row: MetricRow | None, end_time_ms: int | None = None) -> None:
        """Open the run if need be, send ``row``, and end the run if a time is given."""
        self._idle.clear()
        self._in_flight = row
        self._jobs.put((row, end_time_ms))

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until the last call came back, and return whether it did."""
        return self._idle.wait(max(0.0, timeout_s))

    def abandon(self) -> MetricRow | None:
        """Give up on the call under way: return its row, if it has one and it is not sent."""
        with self._lock:
            self._abandoned = True
            row, self._in_flight = self._in_flight, None
            return row

    def change_record(self, **changes: Any) -> None:
        """Change what the run says of itself, here and in the spool."""
        with self._lock:
            self.record = msgspec.structs.replace(self.record, **changes)
            self.spool.write_run(self.record)

    def _work(self) -> None:
        _quiet_retries()
        while (job := self._jobs.get()) is not None:
            try:
                self._do(*job)
                self._recovered()
            except BaseException as error:  # nothing may end the thread but `stop`
                self._failed(error)
            finally:
                self.cpu_ns = time.thread_time_ns()
                self._idle.set()

    def _do(self, row: MetricRow | None, end_time_ms: int | None) -> None:
        if self._tracker is None:
            self._tracker = self._make_tracker()
        run_id = self.record.run_id
        if run_id is None:
            run_id = self._open(self._tracker)
        if row is not None:
            self._tracker.send(run_id, [row])
            with self._lock:
                if self._in_flight is row:
                    self._in_flight = None
                    self.sent_points += len(row)
        if end_time_ms is not None and not self._abandoned:
            self._tracker.end(run_id, "FINISHED", end_time_ms)
            self.ended = True

    def _open(self, tracker: Tracker) -> str:
        run_id = tracker.open(self.record)
        config_sent = True
        try:
            tracker.send_config(run_id, self.record.config)
        except Exception as error:
            # An artifact store may be down or closed to us while metrics go through.
            _logger.warning("MLflow took no artifact for now: %s", _brief(error))
            config_sent = False
        # After `abandon` the spool may be in other hands, which find the run by its tag.
        if not self._abandoned:
            self.change_record(run_id=run_id, config_sent=config_sent)
        return run_id

    def _recovered(self) -> None:
        if self._complained and not self._abandoned:
            _logger.info("MLflow at %s answers again", self.record.tracking_uri)
        self._complained = False
        self._backoff_s = self._first_backoff_s

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            row, self._in_flight = self._in_flight, None
        if row is not None:
            self.spool.append(row)
        self._retry_at_s = time.monotonic() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, _MAX_BACKOFF_S)
        self.complain(_brief(error))

    def complain(self, what: str) -> None:
        """Log once, until the server answers again, why points go to the spool."""
        if not (self._complained or self._abandoned):
            self._complained = True
            _logger.warning(
                "MLflow at %s: %s; metrics are kept in %s, serving goes on",
                self.record.tracking_uri,
                what,
                self.spool.directory,
            )


def _brief(error: BaseException) -> str:
    """Return an error as one line of bounded length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def _quiet_retries() -> None:
    """Keep this thread's connection retries out of the log; the user's own stay in."""
    me = threading.get_ident()
    logging.getLogger("urllib3.connectionpool").addFilter(lambda record: record.thread != me)
