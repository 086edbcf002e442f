"""Begins a policy with what an earlier life learned, and keeps what this one learns."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable

from acclimate.controller.events import Event, EventQueue, SnapshotEvent
from acclimate.controller.policy import Policy
from acclimate.controller.warm_start import begin_with, kept_of, parts_of
from acclimate.integrations.memory_store import MemoryStore


def begin(build: Callable[[], Policy], store: MemoryStore, log: Callable[[str], None]) -> Policy:
    """Build a policy that begins with whatever of the store it can use, and say so in one line.

    A part that is missing, or whose file is not right, starts cold, and no other with it.

    Parameters
    ----------
    build
        Returns a fresh policy each time.
    store
        Where parts may be.
    log
        Gets the line.
    """
    policy = build()
    warm: dict[str, dict[str, object]] = {}
    told = []
    for part in parts_of(policy):
        try:
            state = store.read(part)
            if state is None:
                told.append(f"{part} cold (none of this engine)")
                continue
            begin_with(policy, part, state)
        except Exception as error:  # whoever wrote it; the engine must not feel it
            told.append(f"{part} cold ({type(error).__name__}: {error})")
            policy = build()  # this one may have taken half of it
            for earlier, known in warm.items():
                begin_with(policy, earlier, known)
            continue
        warm[part] = state
        told.append(f"{part} warm")
    log(f"memory {store.folder}: {'; '.join(told) or f'{policy.name} learns nothing to keep'}")
    return policy


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


class MemoryKeeper:
    """Saves what a policy learned now and then, and at the end, from a thread of its own.

    The step's thread takes the snapshot, between two steps, which copies arrays: all parts are of
    one moment. Packing and writing happen here. A file system that refuses is logged once, and
    tried again at the next save.

    Parameters
    ----------
    store
        Where parts go.
    policy
        Name of the policy whose snapshots are kept; those of another are passed over.
    log
        Gets a line for the first of several faults.
    interval_s
        Between two saves.
    """

    def __init__(
        self, store: MemoryStore, policy: str, log: Callable[[str], None], *, interval_s: float
    ) -> None:
        self.queue = SnapshotQueue()
        self.saved = 0
        self._store, self._policy, self._log = store, policy, log
        self._interval_s = interval_s
        self._failed: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acclimate-memory", daemon=True)

    def start(self) -> None:
        """Begin; the queue is attached to the loop already."""
        self.queue.take()  # of the start: it says what is on disk already
        self._thread.start()

    def close(self) -> None:
        """Save the last snapshot that the queue holds, and end; a second call does nothing."""
        self._stop.set()
        with contextlib.suppress(RuntimeError):  # never started
            self._thread.join(timeout=10.0)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._save()
            self.queue.snapshot_wanted = True
        self._save()

    def _save(self) -> None:
        for event in self.queue.take():
            if isinstance(event, SnapshotEvent) and event.policy == self._policy:
                for part, state in kept_of(event.state).items():
                    self._write(part, state)

    def _write(self, part: str, state: dict[str, object]) -> None:
        try:
            self._store.write(part, state)
            self.saved += 1
            self._failed.discard(part)
        except Exception as error:  # mostly the file system; the engine must not feel it
            if part not in self._failed:
                self._log(f"memory: {part} is not saved: {type(error).__name__}: {error}")
            self._failed.add(part)
