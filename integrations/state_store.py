"""Keeps what a policy learned on disk, so that the next start of the same engine is warm."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import logging
import os
import threading
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import acclimate
from acclimate.controller.events import Event, EventQueue, SnapshotEvent
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.trace_format import pack, unpack

SCHEMA = 1
"""Rises when the meaning of a field changes."""
_KIND = "acclimate-state"
_MOST_BYTES = 2**26
_LOG = logging.getLogger(__name__)


class StateFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the store: one JSON object, nothing in it that could run.

    ``state`` is the JSON text of what `pack` made of the state, ``checksum`` its CRC-32.
    """

    kind: str
    schema: int
    policy: str
    engine: dict[str, Any]
    saved: str
    acclimate_version: str
    checksum: int
    state: str


def engine_key(header: EngineHeader) -> dict[str, Any]:
    """Return what must be the same for a state to be worth anything to an engine."""
    return {
        "engine": header.engine,
        "model": header.model,
        "dtype": header.dtype,
        "method": header.method,
        "max_depth": header.capabilities.max_depth,
        "lookup": [header.lookup_min, header.lookup_max],
    }


class StateStore:
    """One engine's file in a folder of states.

    Parameters
    ----------
    folder
        Made when first written to.
    policy
        Name of the policy whose state it is.
    header
        The engine.

    Examples
    --------
    >>> store = StateStore("states", "adaptive", header)  # doctest: +SKIP
    >>> store.save({"q": np.zeros(3)}); store.read()  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str], policy: str, header: EngineHeader) -> None:
        self.policy = policy
        self.key = engine_key(header)
        identity = msgspec.json.encode([policy, self.key], order="sorted")
        name = f"{hashlib.sha256(identity).hexdigest()[:16]}-rank{header.rank}.json"
        self.path = Path(folder) / name

    def save(self, state: dict[str, Any]) -> None:
        """Replace the file as a whole: a reader, or a crash, never meets half of it.

        Raises
        ------
        OSError
            The file system refuses.
        TypeError
            The state holds what `pack` cannot write.
        """
        text = msgspec.json.encode(pack(state))
        content = StateFile(
            kind=_KIND,
            schema=SCHEMA,
            policy=self.policy,
            engine=self.key,
            saved=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            acclimate_version=acclimate.__version__,
            checksum=zlib.crc32(text),
            state=text.decode(),
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            draft.write_bytes(msgspec.json.encode(content))
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)

    def read(self) -> dict[str, Any] | None:
        """Return the state that was saved last, None if there is none.

        Raises
        ------
        ValueError
            The file is damaged, of a later release, or of something else; the message says which.
        OSError
            The file system refuses.
        """
        try:
            if self.path.stat().st_size > _MOST_BYTES:
                raise ValueError(f"a state must have at most {_MOST_BYTES} bytes, got {self.path}")
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            content = msgspec.json.decode(data, type=StateFile)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"{self.path} is damaged, or no state: {error}") from error
        if content.kind != _KIND:
            raise ValueError(f"{self.path} must be an {_KIND}, got {content.kind!r}")
        if content.schema != SCHEMA:
            raise ValueError(
                f"{self.path} must have schema {SCHEMA}, got {content.schema}, of acclimate "
                f"{content.acclimate_version}"
            )
        if (content.policy, content.engine) != (self.policy, self.key):
            raise ValueError(f"{self.path} must be of this engine and policy, got another's")
        text = content.state.encode()
        if zlib.crc32(text) != content.checksum:
            raise ValueError(f"{self.path} is damaged: its checksum does not match")
        try:
            state = unpack(msgspec.json.decode(text))
        except (TypeError, ValueError, OverflowError, RecursionError, zlib.error) as error:
            raise ValueError(f"{self.path} is damaged: {error}") from error
        if not isinstance(state, dict):
            raise ValueError(f"{self.path} must hold an object, got {type(state).__name__}")
        return state


class SnapshotQueue(EventQueue):
    """Takes a loop's snapshots, the latest only, and lets all other events pass."""

    def __init__(self) -> None:
        super().__init__()
        self._events = deque(maxlen=1)

    def put(self, event: Event) -> bool:
        """Keep the event if it is a snapshot."""
        if isinstance(event, SnapshotEvent):
            self._events.append(event)
        return True


class StateSink:
    """Saves a policy's state every few minutes, and at the end, from its own thread.

    The step's thread takes the snapshot, which copies arrays; packing and writing happen here. A
    file system that refuses is logged once and tried again at the next save.

    Parameters
    ----------
    store
        Where states go.
    queue
        Attach it to the loop.
    keep
        Returns what of a snapshot is kept, None for nothing.
    interval_s
        Between two saves.
    """

    def __init__(
        self,
        store: StateStore,
        queue: SnapshotQueue,
        keep: Callable[[dict[str, Any]], dict[str, Any] | None],
        *,
        interval_s: float,
    ) -> None:
        self.store = store
        self.queue = queue
        self.saved = 0
        self.error: str | None = None
        self._keep = keep
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acclimate-state", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Save the last snapshot that the queue holds, and end; a second call does nothing."""
        self._stop.set()
        with contextlib.suppress(RuntimeError):  # never started
            self._thread.join(timeout=10.0)

    def _run(self) -> None:
        self.queue.take()  # of the start: it says what is on disk already
        while not self._stop.wait(self._interval_s):
            self._save()
            self.queue.snapshot_wanted = True
        self._save()

    def _save(self) -> None:
        for event in self.queue.take():
            try:
                kept = self._keep(event.state) if isinstance(event, SnapshotEvent) else None
                if kept is not None:
                    self.store.save(kept)
                    self.saved += 1
                    self.error = None
            except Exception as error:  # mostly the file system; the engine must not feel it
                if self.error is None:
                    _LOG.warning("acclimate: state %s is not saved: %s", self.store.path, error)
                self.error = f"{type(error).__name__}: {error}"
