"""Writes the event log to disk from its own thread; the engine's step never waits for it."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import acclimate
from acclimate.controller.config import TraceConfig
from acclimate.controller.events import ConfigEvent, Event, EventQueue, GapEvent, SnapshotEvent
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.trace_format import SCHEMA, TokensRecord, TraceHeader, encode_line
from acclimate.integrations.trace_names import free_path, segment_path

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 0.05
_EVENTS_PER_WRITE = 16  # a write lets the engine's thread run in between
_PENDING_TOKEN_LISTS = 1_024
_HASH_BYTES = 6  # hashes stay below 2**53, which every JSON reader keeps exact


class TraceSink:
    """Appends a queue's events to a bounded set of segment files.

    Events are encoded and flushed every 50 ms, so that after ``kill -9`` all but the last moments
    are readable. A segment is closed at the first snapshot after ``rotate_mib``; the next begins
    with header, configuration and that snapshot, and can be read alone. At most ``keep_segments``
    files stay: the oldest is deleted, the first one too. A file that exists is never touched: the
    trace goes to ``name-2``, ``name-3``, … instead, also where several engines share a path.

    When the file system refuses, one line is logged, writing ends, and events are dropped and
    counted.

    Parameters
    ----------
    config
        ``path`` must be set.
    header
        The engine that the events come from.
    queue
        Attach it to the loop; whoever drains it, this sink must be its only consumer.
    seed
        Seed of the run, for the header.

    Raises
    ------
    ValueError
        ``config.path`` is not set.

    Examples
    --------
    >>> sink = TraceSink(TraceConfig(path=path), header, queue)  # doctest: +SKIP
    >>> sink.start(); loop.attach(queue); ...; sink.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        config: TraceConfig,
        header: EngineHeader,
        queue: EventQueue,
        *,
        seed: int = 0,
    ) -> None:
        if not config.path:
            raise ValueError(f"trace.path must be a file to write, got {config.path!r}")
        self.config = config
        self.queue = queue
        self.path = Path(config.path)
        self.error: str | None = None
        self.written_events = 0
        self.dropped_events = 0
        self.dropped_token_lists = 0
        self._header = header
        self._seed = seed
        self._started = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        self._name = secrets.token_hex(8)
        self._limit_bytes = int(config.rotate_mib * 2**20)
        self._tokens: deque[tuple[int, Sequence[int], Sequence[int]]] = deque()
        self._hash_of: dict[int, int] = {}
        self._salt = secrets.token_bytes(16)
        self._config_event: ConfigEvent | None = None
        self._file: BinaryIO | None = None
        self._segments: deque[Path] = deque()
        self._next_segment = 0
        self._segment_bytes = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the first segment and begin to drain; a file system that refuses is no error."""
        if self._thread is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while self._file is None:
                self.path = free_path(self.path)
                with contextlib.suppress(FileExistsError):  # another engine took the name
                    self._open_segment()
        except OSError as error:
            self._give_up(error)
        self._thread = threading.Thread(target=self._run, name="acclimate-trace", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is queued, flush and stop; a second call does nothing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)

    def add_tokens(
        self, request: int, prompt_ids: Sequence[int], output_ids: Sequence[int]
    ) -> None:
        """Hand over a finished request's tokens; nothing happens unless ``token_hashes`` is on.

        Never waits. The sequences are read later, by another thread: they must not change.
        """
        if not self.config.token_hashes or self.error is not None:
            return
        if len(self._tokens) >= _PENDING_TOKEN_LISTS:
            self.dropped_token_lists += 1
            return
        self._tokens.append((request, prompt_ids, output_ids))

    def status(self) -> dict[str, object]:
        """Return counters for people and metrics."""
        return {
            "path": str(self.path),
            "written_events": self.written_events,
            "dropped_events": self.dropped_events + self.queue.lost,
            "dropped_token_lists": self.dropped_token_lists,
            "segments": self._next_segment,
            "error": self.error,
        }

    # --- inside, on the thread -----------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            self._drain()
        self._drain()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _drain(self) -> None:
        try:
            while events := self.queue.take(_EVENTS_PER_WRITE):
                self._append(events)
            while self._tokens:
                request, prompt_ids, output_ids = self._tokens.popleft()
                self._write(encode_line(self._hashed(request, prompt_ids, output_ids)))
        except Exception as error:  # mostly the file system; the engine must not feel it
            self._give_up(error)

    def _append(self, events: list[Event]) -> None:
        if self.error is not None:
            self.dropped_events += len(events)
            return
        try:
            self._append_lines(events)
        except Exception:
            self.dropped_events += len(events)
            raise
        self.written_events += len(events)

    def _append_lines(self, events: list[Event]) -> None:
        lines: list[bytes] = []
        for event in events:
            if isinstance(event, ConfigEvent):
                self._config_event = event
            full = self._segment_bytes + sum(map(len, lines)) >= self._limit_bytes
            if full and isinstance(event, SnapshotEvent):
                self._write(b"".join(lines))
                lines.clear()
                self._open_segment()
            elif full:
                self.queue.snapshot_wanted = True
            lines.append(self._encode(event))
        self._write(b"".join(lines))

    def _encode(self, event: Event) -> bytes:
        """Return the event's line, or that of a gap, with a new snapshot asked for."""
        try:
            return encode_line(event)
        except ValueError as error:
            if not self.dropped_events:
                _LOG.warning("acclimate: trace %s: an event is left out: %s", self.path, error)
            self.dropped_events += 1
            # A state that cannot be written once will not be writable at the next event either.
            self.queue.snapshot_wanted = not isinstance(event, SnapshotEvent)
            return encode_line(GapEvent(event.seq, lost=1))

    def _open_segment(self) -> None:
        """Begin the next segment, and delete the oldest beyond the bound."""
        if self._file is not None:
            self._file.close()
        path = segment_path(self.path, self._next_segment)
        # Unbuffered: what was written has left the process, whatever happens to it.
        self._file = path.open("xb", buffering=0)
        self._segments.append(path)
        self._segment_bytes = 0
        header = TraceHeader(
            schema=SCHEMA,
            trace=self._name,
            segment=self._next_segment,
            acclimate_version=acclimate.__version__,
            started=self._started,
            engine=self._header,
            seed=self._seed,
            token_hashes=self.config.token_hashes,
        )
        self._next_segment += 1
        self._write(encode_line(header))
        if self._config_event is not None:
            self._write(encode_line(self._config_event))
        while len(self._segments) > self.config.keep_segments:
            self._segments.popleft().unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        if self._file is None or self.error is not None:
            return
        view = memoryview(data)
        while view:
            count = self._file.write(view)
            self._segment_bytes += count
            view = view[count:]

    def _hashed(
        self, request: int, prompt_ids: Sequence[int], output_ids: Sequence[int]
    ) -> TokensRecord:
        return TokensRecord(
            request=request,
            prompt=tuple(self._hash(token) for token in prompt_ids),
            output=tuple(self._hash(token) for token in output_ids),
        )

    def _hash(self, token: int) -> int:
        known = self._hash_of.get(token)
        if known is None:
            digest = hashlib.blake2b(
                str(int(token)).encode(), digest_size=_HASH_BYTES, key=self._salt
            ).digest()
            known = self._hash_of[int(token)] = int.from_bytes(digest)
        return known

    def _give_up(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {error}"
        self.dropped_events += len(self.queue.take())
        self._tokens.clear()
        _LOG.warning("acclimate: trace %s is no longer written: %s", self.path, self.error)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
