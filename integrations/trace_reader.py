"""Reads a trace back: typed events across its segments, or a sentence on what the file is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from acclimate.controller.events import Event
from acclimate.integrations.file_kind import describe_start
from acclimate.integrations.trace_format import (
    SCHEMA,
    TokensRecord,
    TraceHeader,
    decode_line,
)
from acclimate.integrations.trace_names import segment_files


@dataclasses.dataclass(slots=True)
class Trace:
    """A trace on disk; iterating reads its events, in order, as often as you like.

    Parameters
    ----------
    header
        Header of the first segment at hand.
    files
        The segments at hand, in order.
    truncated_lines
        Unfinished last lines met by the latest iteration: what a killed writer leaves.

    Raises
    ------
    ValueError
        While iterating: a line inside a segment is damaged, or a segment belongs to another trace.
    """

    header: TraceHeader
    files: tuple[Path, ...]
    truncated_lines: int = 0

    @property
    def deleted_segments(self) -> int:
        """Segments that the writer has deleted to stay within its bound."""
        return self.header.segment

    def __iter__(self) -> Iterator[Event | TokensRecord]:
        self.truncated_lines = 0
        for number, path in enumerate(self.files):
            if number:
                if path == self.files[-1] and not _begun(path):
                    self.truncated_lines += 1
                    return
                header = _read_header(path)
                if header.trace != self.header.trace:
                    raise ValueError(
                        f"segments must belong to trace {self.header.trace}, got "
                        f"{header.trace} in {path.name}"
                    )
            yield from self._lines(path)

    def _lines(self, path: Path) -> Iterator[Event | TokensRecord]:
        with path.open("rb") as file:
            file.readline()
            for number, data in enumerate(file, start=2):
                try:
                    line = decode_line(data)
                except ValueError as error:
                    if not data.endswith(b"\n"):
                        self.truncated_lines += 1
                        return
                    raise ValueError(
                        f"{path.name}, line {number}: must be a record of schema "
                        f"{self.header.schema}, got {error}"
                    ) from error
                if isinstance(line, TraceHeader):
                    raise ValueError(f"{path.name}, line {number}: must be an event, got a header")
                yield line


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Open the trace written to ``path``, or one later segment of it alone.

    Fields that this release does not know are ignored, since a schema may gain fields with a
    default; a schema with other meanings has a higher number and is refused.

    Raises
    ------
    FileNotFoundError
        There is neither the file nor a later segment of it.
    ValueError
        The file is something else (the message says what it looks like), or its schema is newer.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"trace must be a file, got the folder {path}")
    files = segment_files(path)
    if not files:
        raise FileNotFoundError(f"trace must be an existing file, got {path}")
    return Trace(_read_header(files[0]), tuple(files))


def _begun(path: Path) -> bool:
    """Whether a segment's header was written to its end before the writer was killed."""
    with path.open("rb") as file:
        return file.readline(1 << 20).endswith(b"\n")


def _read_header(path: Path) -> TraceHeader:
    with path.open("rb") as file:
        first = file.readline(1 << 20)
    try:
        raw = msgspec.json.decode(first)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ValueError(_not_a_trace(path, describe_start(first))) from None
    if not isinstance(raw, dict) or raw.get("kind") != "header" or "schema" not in raw:
        keys = f"with the keys {', '.join(list(raw)[:6])}" if isinstance(raw, dict) else ""
        what = f"JSON of another kind {keys}".strip()
        raise ValueError(_not_a_trace(path, what))
    schema = raw["schema"]
    if not isinstance(schema, int) or schema > SCHEMA or schema < 1:
        raise ValueError(
            f"{path.name}: trace schema must be at most {SCHEMA}, the newest that this acclimate "
            f"reads, got {schema!r} (written by acclimate {raw.get('acclimate_version')})"
        )
    try:
        header = decode_line(first)
    except ValueError as error:
        raise ValueError(f"{path.name}: trace header must be complete, got {error}") from error
    assert isinstance(header, TraceHeader)
    return header


def _not_a_trace(path: Path, what: str) -> str:
    return f"{path.name} must be an acclimate trace, got {what}"
