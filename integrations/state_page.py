"""A page of memory by which an engine core shows its state to other processes of the same user.

The engine core writes, anybody may read, and neither waits for the other: a page has a number that
is odd while it is written, and a reader who finds it odd or changed looks again. What changes every
step (requests that run and wait) lies beside the rest, which is written about once a second.

Pages are files in memory, named after the engine, in a folder that only the user can enter. A lock
that the writer holds for its life tells a living page from one that was left behind; the next writer
takes those away.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from acclimate.controller.engine_state import EngineState

_HEAD = struct.Struct("<8sQQqqq")  # magic, number, length, written, running, waiting
_MAGIC = b"acclst01"
_NUMBER = struct.Struct("<Q")
_LOAD = struct.Struct("<qq")
_NUMBER_AT, _LENGTH_AT, _LOAD_AT = 8, 16, 32
_SIZE = 256 * 1024
_TRIES = 50
_PATTERN = "{}.state"


class Seen(msgspec.Struct, frozen=True):
    """An engine's state as it was read, and how old what changes slowly is."""

    state: EngineState
    age_s: float


def state_folder(root: Path | None = None) -> Path:
    """Return this user's folder of pages, made if it is missing.

    Parameters
    ----------
    root
        Where it is; by default in memory.

    Raises
    ------
    PermissionError
        The folder belongs to somebody else, or others can enter it.
    """
    if root is None:
        memory = Path("/dev/shm")
        root = memory if memory.is_dir() else Path(tempfile.gettempdir())
    folder = root / f"acclimate-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not own or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} must be this user's own folder, got one that is not")
    return folder


class StatePage:
    """The writer's end, in the engine core.

    Parameters
    ----------
    name
        Of the engine; see `read_states`.
    folder
        For pages; by default `state_folder`.
    clock_ns
        A monotonic clock that all processes of the machine share.

    Raises
    ------
    OSError
        The page cannot be made, or another writer has that name.
    ValueError
        The name is no plain file name.

    Examples
    --------
    >>> from acclimate.controller.engine_state import Load, Place
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = StatePage("demo-0", Path(folder))
    ...     page.write(EngineState(place=Place(engine="demo"), load=Load(running=1)))
    ...     page.load(3, 2)
    ...     seen = read_states("demo", Path(folder))
    ...     page.close()
    >>> seen[0].state.load.running, seen[0].state.load.waiting
    (3, 2)
    """

    def __init__(
        self,
        name: str,
        folder: Path | None = None,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"name must be a plain file name, got {name!r}")
        folder = state_folder() if folder is None else folder
        _sweep(folder)
        self.path = folder / _PATTERN.format(name)
        self.lost = 0  # states that were too large
        self._clock_ns = clock_ns
        self._number = 0
        self._encoder = msgspec.json.Encoder()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._file = os.open(self.path, flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._file, _SIZE)
            self._map = mmap.mmap(self._file, _SIZE)
        except OSError:
            os.close(self._file)
            raise
        _HEAD.pack_into(self._map, 0, _MAGIC, 0, 0, 0, 0, 0)

    def write(self, state: EngineState) -> None:
        """Show a state; one that does not fit is counted and left out."""
        body = self._encoder.encode(state)
        if len(body) > _SIZE - _HEAD.size:
            self.lost += 1
            return
        self._begin()
        self._map[_HEAD.size : _HEAD.size + len(body)] = body
        struct.pack_into("<Qq", self._map, _LENGTH_AT, len(body), self._clock_ns())
        _LOAD.pack_into(self._map, _LOAD_AT, state.load.running, state.load.waiting)
        self._end()

    def load(self, running: int, waiting: int) -> None:
        """Show how many requests run and wait."""
        self._begin()
        _LOAD.pack_into(self._map, _LOAD_AT, running, waiting)
        self._end()

    def close(self) -> None:
        """Take the page away; a second call does nothing."""
        if self._file < 0:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        self._map.close()
        os.close(self._file)
        self._file = -1

    def _begin(self) -> None:
        self._number += 1
        _NUMBER.pack_into(self._map, _NUMBER_AT, self._number)

    def _end(self) -> None:
        self._number += 1
        _NUMBER.pack_into(self._map, _NUMBER_AT, self._number)


def read_states(
    engine: str,
    folder: Path | None = None,
    *,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> list[Seen]:
    """Return the states of all living cores of an engine, by name; it changes nothing.

    Parameters
    ----------
    engine
        What the names of its pages begin with.
    folder
        For pages; by default this user's.
    clock_ns
        The writers'.

    Raises
    ------
    PermissionError
        The folder is not this user's own.
    """
    folder = state_folder() if folder is None else folder
    ends = _PATTERN.format("")
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(engine) and path.name.endswith(ends):
            seen = _read(path, clock_ns)
            if seen is not None:
                found.append(seen)
    return found


def _read(path: Path, clock_ns: Callable[[], int]) -> Seen | None:
    """Return what a page shows; None if nobody writes it any more, or nothing was written."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return None
    try:
        if not _alive(file) or os.fstat(file).st_size != _SIZE:
            return None
        with mmap.mmap(file, _SIZE, access=mmap.ACCESS_READ) as page:
            whole = _whole(page)
    finally:
        os.close(file)
    if whole is None:
        return None
    body, written_ns, running, waiting = whole
    try:
        state = msgspec.json.decode(body, type=EngineState)
    except msgspec.MsgspecError:
        return None
    load = msgspec.structs.replace(state.load, running=running, waiting=waiting)
    age_s = max(clock_ns() - written_ns, 0) / 1e9
    return Seen(msgspec.structs.replace(state, load=load), age_s)


def _whole(page: mmap.mmap) -> tuple[bytes, int, int, int] | None:
    """Return body, time and load that belong together."""
    for _ in range(_TRIES):
        magic, number, length, written_ns, running, waiting = _HEAD.unpack_from(page)
        if magic != _MAGIC or not length:
            return None
        if number % 2 == 0 and length <= _SIZE - _HEAD.size:
            body = page[_HEAD.size : _HEAD.size + length]
            if _NUMBER.unpack_from(page, _NUMBER_AT)[0] == number:
                return body, written_ns, running, waiting
        time.sleep(0)
    return None


def _sweep(folder: Path) -> None:
    """Take away what writers that were killed have left."""
    for path in folder.glob(_PATTERN.format("*")):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
            try:
                if not _alive(file):
                    path.unlink()
            finally:
                os.close(file)


def _alive(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
