"""Keeps an experiment's cells in a folder, line by line, so that a killed one can go on."""

from __future__ import annotations

import datetime
import fcntl
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

import acclimate

RESULTS_FILE = "results.jsonl"
_FORMAT = 1


class Keyed(Protocol):
    """A row that knows which cell it is of."""

    @property
    def key(self) -> str:
        """Name of the cell, unique in its experiment."""


R = TypeVar("R", bound=Keyed)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a results file: which experiment, and with what settings.

    Parameters
    ----------
    command
        The command that wrote it, such as ``lab load``.
    settings
        Everything that decides what the cells hold.
    lab
        Unique name of this experiment, kept when it goes on after a kill.
    """

    command: str
    settings: dict[str, Any]
    lab: str
    version: str
    started: str
    format: int = _FORMAT

    @property
    def started_ms(self) -> int:
        """Wall clock of the start, in milliseconds."""
        return round(1e3 * datetime.datetime.fromisoformat(self.started).timestamp())


class CellStore(Generic[R]):
    """The results file of a folder: a header, then one line per finished cell.

    A line is written in one call and at once: a kill loses the cells that were running, and at most
    half a line, which is cut off when the experiment goes on.

    Parameters
    ----------
    folder
        New or empty; with ``resume`` one that holds an experiment of the same settings.
    command, settings
        What is going to be run; plain data.
    row
        Type of a cell's result.
    resume
        Whether to go on with what the folder holds.

    Raises
    ------
    ValueError
        The folder is not empty, holds nothing to go on with, or holds another experiment.

    Examples
    --------
    >>> import tempfile
    >>> class Row(msgspec.Struct):
    ...     key: str
    >>> folder = Path(tempfile.mkdtemp())
    >>> with CellStore(folder, "lab none", {"seeds": 1}, Row) as store:
    ...     store.add(Row("a"))
    >>> with CellStore(folder, "lab none", {"seeds": 1}, Row, resume=True) as store:
    ...     [row.key for row in store.rows]
    ['a']
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        command: str,
        settings: Mapping[str, Any],
        row: type[R],
        *,
        resume: bool = False,
    ) -> None:
        self.folder = Path(folder)
        self.path = self.folder / RESULTS_FILE
        plain = msgspec.json.decode(msgspec.json.encode(settings))
        if resume:
            self.header, self.rows, end = _read(self.path, row)
            _compare(self.header, command, plain, self.folder)
        else:
            if self.folder.exists() and any(self.folder.iterdir()):
                raise ValueError(
                    f"{self.folder} must be empty, got a folder with files; --resume goes on with "
                    "an experiment that was stopped"
                )
            self.rows, end = [], 0
            self.header = Header(
                command=command,
                settings=plain,
                lab=uuid.uuid4().hex,
                version=acclimate.__version__,
                started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            )
            self.folder.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ValueError(f"{self.folder} must be free, got one that is being written") from None
        if resume:
            self._file.truncate(end)
        else:
            self._file.write(msgspec.json.encode(self.header) + b"\n")

    def add(self, row: R) -> None:
        """Keep the result of a cell."""
        self._file.write(msgspec.json.encode(row) + b"\n")
        self.rows.append(row)

    def close(self) -> None:
        """Let others write to the folder."""
        self._file.close()

    def __enter__(self) -> CellStore[R]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_header(folder: str | os.PathLike[str]) -> Header:
    """Return what a folder's results are of.

    Raises
    ------
    ValueError
        It holds none, or of a version that is not known here.
    """
    path = Path(folder) / RESULTS_FILE
    if not path.is_file():
        raise ValueError(f"{folder} must hold {RESULTS_FILE} of 'acclimate lab', got none")
    with path.open("rb") as file:
        return _header(path, file.readline())


def read_cells(folder: str | os.PathLike[str], row: type[R]) -> tuple[Header, list[R]]:
    """Return a folder's header and rows; an unfinished last line is left out.

    Raises
    ------
    ValueError
        The folder holds no results, or a line is damaged.
    """
    header, rows, _ = _read(Path(folder) / RESULTS_FILE, row)
    return header, rows


def _read(path: Path, row: type[R]) -> tuple[Header, list[R], int]:
    """Return header, rows and the length in bytes of all whole lines."""
    if not path.is_file():
        raise ValueError(f"{path.parent} must hold {RESULTS_FILE} to go on with, got none")
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    lines = data[:end].splitlines()
    header = _header(path, lines[0] if lines else b"")
    try:
        return header, [msgspec.json.decode(line, type=row) for line in lines[1:]], end
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} must hold cells of {header.command!r}, got {error}") from error


def _header(path: Path, line: bytes) -> Header:
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} must begin with a lab's header, got {error}") from error
    if header.format != _FORMAT:
        raise ValueError(f"{path} must be of format {_FORMAT}, got {header.format}")
    return header


def _compare(header: Header, command: str, settings: dict[str, Any], folder: Path) -> None:
    """Refuse to mix two experiments in one folder."""
    if header.command != command:
        raise ValueError(f"{folder} must be of {command!r} to go on, got {header.command!r}")
    if header.version != acclimate.__version__:
        raise ValueError(
            f"{folder} must be of version {acclimate.__version__} to go on, got {header.version}"
        )
    differing = sorted(
        key
        for key in {*header.settings, *settings}
        if header.settings.get(key) != settings.get(key)
    )
    if differing:
        told = ", ".join(
            f"{key} {_short(header.settings.get(key))} there and {_short(settings.get(key))} here"
            for key in differing
        )
        raise ValueError(f"settings must be the same to go on in {folder}, got {told}")


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else f"{text[:57]}..."
