"""Lines, CSV rows and JSON records of dirty files, and the numbers in them."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from acclimate.experiments.readers.read import BadRecord

TRUNCATED = "last line truncated"
UNREADABLE = "line unreadable"
UNFINISHED = "last line without a line end"
_LARGEST_COUNT = 10**12
_MISSING = frozenset({"", "na", "n/a", "none", "null", "-"})


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank; ``finished`` says whether it had a line end."""

    text: str
    finished: bool


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not blank; bytes that are no UTF-8 become '\ufffd'."""
    with path.open("rb") as file:
        for number, data in enumerate(file):
            text = data.decode("utf-8" if number else "utf-8-sig", errors="replace").strip()
            if text:
                yield Line(text, data.endswith(b"\n"))


def split_csv(line: str) -> list[str]:
    """Return the cells of one line; a quoted cell ends with its line at the latest.

    >>> split_csv('5, ChatGPT,"a,b"')
    ['5', 'ChatGPT', 'a,b']
    """
    cells = next(csv.reader([line], skipinitialspace=True), []) if '"' in line else line.split(",")
    return [cell.strip() for cell in cells]


def csv_rows(
    path: Path,
    columns: Mapping[str, Sequence[str]],
    dropped: Counter[str],
    notes: Counter[str],
    *,
    optional: Sequence[str] = (),
) -> Iterator[dict[str, str]]:
    """Yield rows by column name, so that inserted and reordered columns do no harm.

    Parameters
    ----------
    columns
        Names to yield, each with the spellings it may have; case and blanks around do not matter.
    dropped, notes
        Rows with too few or too many cells are counted here.
    optional
        Names that may be missing from the file, and then from the rows.

    Raises
    ------
    ValueError
        A column is missing, or is there twice.
    """
    lines = read_lines(path)
    header = [name.lower() for name in split_csv(next(lines, Line("", True)).text)]
    places: dict[str, int] = {}
    for name, spellings in columns.items():
        found = [i for i, cell in enumerate(header) if cell in {s.lower() for s in spellings}]
        if len(found) > 1:
            raise ValueError(f"{path.name} must have one column {name!r}, got {len(found)}")
        if found:
            places[name] = found[0]
        elif name not in optional:
            raise ValueError(
                f"{path.name} must have the columns "
                f"{', '.join(repr(n) for n in columns if n not in optional)}, got "
                f"{', '.join(header)}"
            )
    for line in lines:
        cells = split_csv(line.text)
        if len(cells) < len(header):
            dropped["too few cells" if line.finished else TRUNCATED] += 1
        elif len(cells) > len(header):
            dropped["too many cells"] += 1
        else:
            if not line.finished:
                notes[UNFINISHED] += 1
            yield {name: cells[place] for name, place in places.items()}


def json_records(path: Path, dropped: Counter[str]) -> Iterator[Any]:
    """Yield the records of a file of JSON lines, or of one JSON document, a list's items apart."""
    whole = path.read_bytes()
    try:
        document = load_json(whole.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError):
        document = None
    if document is not None:
        # One list may be one record of numbers.
        is_record = isinstance(document, list) and all(
            isinstance(x, (int, float)) for x in document
        )
        yield from document if isinstance(document, list) and not is_record else [document]
        return
    for line in read_lines(path):
        try:
            yield load_json(line.text)
        except ValueError:
            dropped[UNREADABLE if line.finished else TRUNCATED] += 1


def load_json(text: str) -> Any:
    """Return a JSON value; NaN and infinity, which are no JSON, are read as NaN.

    Raises
    ------
    ValueError
        The text is no JSON.
    """
    try:
        return json.loads(text, parse_constant=lambda _: math.nan)
    except RecursionError as error:
        raise ValueError("JSON must not be nested that deeply") from error


def number(value: object, what: str) -> float:
    """Return a finite number, from JSON or from a cell.

    Raises
    ------
    BadRecord
        It is missing, no number, or not finite.

    Examples
    --------
    >>> number("2.5", "timestamp")
    2.5
    >>> number("", "timestamp")
    Traceback (most recent call last):
    acclimate.experiments.readers.read.BadRecord: timestamp missing
    """
    if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
        raise BadRecord(f"{what} missing")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadRecord(f"{what} is no number")
    try:
        result = float(value)
    except (ValueError, OverflowError):
        raise BadRecord(f"{what} is no number") from None
    if math.isnan(result):
        raise BadRecord(f"{what} is NaN")
    if math.isinf(result):
        raise BadRecord(f"{what} is infinite")
    return result


def count(value: object, what: str) -> int:
    """Return a whole number that is not negative.

    Raises
    ------
    BadRecord
        It is missing or none.
    """
    result = number(value, what)
    if result < 0:
        raise BadRecord(f"{what} negative")
    if result != int(result):
        raise BadRecord(f"{what} is not whole")
    if result > _LARGEST_COUNT:
        raise BadRecord(f"{what} beyond belief")
    return int(result)
