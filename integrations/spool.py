"""Keeps on disk what a tracking server has not got yet: one directory per controller life."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from acclimate.integrations.afterlife import LOCK_FILE
from acclimate.integrations.metrics import MetricRow

_RUN_FILE = "run.json"
_POINTS_FILE = "points.jsonl"
_PROGRESS_FILE = "progress.json"
_MAX_BYTES = 64 * 1024 * 1024


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything from which a run can be created, or found again, on a tracking server.

    Parameters
    ----------
    life
        Unique name of this controller life; the run carries it as a tag.
    tracking_uri
        Without credentials.
    start_time_ms, end_time_ms
        Wall clock; the end is None while the engine lives, and stays None if it was killed.
    artifacts
        Paths of files to be uploaded at the end.
    config_sent
        Whether the artifact ``controller_config.json`` is on the server.
    """

    life: str
    tracking_uri: str
    experiment: str
    run_name: str | None
    start_time_ms: int
    params: dict[str, str]
    tags: dict[str, str]
    config: dict[str, Any]
    run_id: str | None = None
    end_time_ms: int | None = None
    artifacts: tuple[str, ...] = ()
    config_sent: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far an upload has come; ``offset_bytes`` is into the points file."""

    run_id: str | None = None
    offset_bytes: int = 0
    points_sent: int = 0
    unreadable_lines: int = 0
    config_sent: bool = False
    artifacts: tuple[str, ...] = ()
    ended: bool = False


_Record = TypeVar("_Record", RunRecord, Progress)


class Spool:
    """One controller life's directory: its run record, and the points that were not sent.

    Appending is safe from several threads. Beyond ``max_bytes``, and when the disk refuses, points
    are dropped and counted.

    Parameters
    ----------
    directory
        Made when something is written.
    max_bytes
        Size that the points file may reach.

    Examples
    --------
    >>> import tempfile
    >>> spool = Spool(Path(tempfile.mkdtemp()) / "life")
    >>> spool.append(MetricRow(timestamp_ms=0, step=1, values={"controller/depth": 2.0}))
    True
    >>> [(row.step, end) for row, end in spool.rows()], spool.points
    ([(1, 62)], 1)
    """

    def __init__(self, directory: Path, max_bytes: int = _MAX_BYTES) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.points = 0
        self.dropped_points = 0
        self._encoder = msgspec.json.Encoder()
        self._torn = False
        self._lock = threading.Lock()
        self._claim: int | None = None

    @property
    def points_path(self) -> Path:
        """The file of unsent rows, one JSON line each."""
        return self.directory / _POINTS_FILE

    def append(self, row: MetricRow) -> bool:
        """Keep a row and return True, or count its points as dropped and return False."""
        with self._lock:
            # A line that was cut short by a full disk must not swallow the next one.
            line = b"\n" * self._torn + self._encoder.encode(row) + b"\n"
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                with self.points_path.open("ab", buffering=0) as file:
                    if file.tell() + len(line) > self.max_bytes:
                        raise OSError("the spool is full")
                    self._torn = file.write(line) != len(line)
                if self._torn:
                    raise OSError("the disk is full")
            except OSError:
                self.dropped_points += len(row)
                return False
            self.points += len(row)
            return True

    def rows(self, offset_bytes: int = 0) -> Iterator[tuple[MetricRow | None, int]]:
        """Yield kept rows with the offset behind each; None for a line that cannot be read."""
        decoder = msgspec.json.Decoder(MetricRow)
        if not self.points_path.exists():
            return
        with self.points_path.open("rb") as file:
            file.seek(offset_bytes)
            end = offset_bytes
            for line in file:
                end += len(line)
                if not line.strip():
                    continue
                try:
                    yield decoder.decode(line), end
                except msgspec.MsgspecError:
                    yield None, end

    def claim(self) -> bool:
        """Take the directory for this process, or return False if another one holds it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._claim = descriptor
        return True

    def beat(self) -> None:
        """Note that the engine lives now."""
        if self._claim is not None:
            os.utime(self._claim)

    @property
    def last_beat_ms(self) -> int:
        """When the engine was last known to live, milliseconds since 1970; 0 if never."""
        path = self.directory / LOCK_FILE
        return path.stat().st_mtime_ns // 1_000_000 if path.exists() else 0

    def release(self) -> None:
        """Let other processes claim the directory."""
        if self._claim is not None:
            # Explicitly, since a forked process may hold a copy of the descriptor.
            fcntl.flock(self._claim, fcntl.LOCK_UN)
            os.close(self._claim)
            self._claim = None

    def remove(self) -> None:
        """Delete the directory: nothing in it is needed any more."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.release()  # last: whoever waits for the lock must find nothing

    def write_run(self, record: RunRecord) -> None:
        """Write the run record."""
        self._write(_RUN_FILE, record)

    def read_run(self) -> RunRecord:
        """Read the run record.

        Raises
        ------
        ValueError
            It is missing or unreadable.
        """
        record = self._read(_RUN_FILE, RunRecord)
        if record is None:
            raise ValueError(f"spool must hold a {_RUN_FILE}, got none in {self.directory}")
        return record

    def write_progress(self, progress: Progress) -> None:
        """Write how far an upload has come."""
        self._write(_PROGRESS_FILE, progress)

    def read_progress(self) -> Progress:
        """Read how far an upload has come; at the start, nowhere."""
        return self._read(_PROGRESS_FILE, Progress) or Progress()

    def _write(self, name: str, record: RunRecord | Progress) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / name
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        fresh.replace(path)

    def _read(self, name: str, kind: type[_Record]) -> _Record | None:
        path = self.directory / name
        if not path.exists():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path} must be a {kind.__name__}, got {error}") from error


def spooled_lives(directory: Path) -> list[Path]:
    """Return the life directories at or directly under ``directory``, by name.

    Raises
    ------
    FileNotFoundError
        There is no such directory.
    ValueError
        It holds no spooled run.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"spool directory must exist, got {directory}")
    if (directory / _RUN_FILE).exists():
        return [directory]
    lives = sorted(path.parent for path in directory.glob(f"*/{_RUN_FILE}"))
    if not lives:
        raise ValueError(f"spool directory must hold a run, got none in {directory}")
    return lives
