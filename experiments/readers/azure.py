"""Azure's LLM inference traces of 2023 and 2024: ``TIMESTAMP,ContextTokens,GeneratedTokens``."""

from __future__ import annotations

import datetime
import functools
import os
import re
from collections import Counter

from acclimate.experiments.readers.arrivals import NO_OUTPUT, NO_PROMPT, ArrivalList, Arrivals
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import count, csv_rows, number
from acclimate.experiments.readers.read import BadRecord, Read

_COLUMNS = {
    "time": ("TIMESTAMP",),
    "prompt": ("ContextTokens",),
    "output": ("GeneratedTokens",),
}
_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?", re.ASCII
)
_FULL_DIGITS = 7
_CUT_DIGITS = 2


def read_azure(path: str | os.PathLike[str]) -> Read[Arrivals]:
    """Read arrivals from one of Azure's inference traces.

    Times are read to the nanosecond, whatever their number of digits. Where a tool has cut the
    fractions, arrivals fall on the same hundredth of a second: that is noted.

    Raises
    ------
    ValueError
        The file is of another kind, lacks a column, or holds numbers where dates should be.
    """
    path = require(path, Kind.AZURE)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    found = ArrivalList()
    digits: Counter[int] = Counter()
    numeric = 0
    for row in csv_rows(path, _COLUMNS, dropped, notes):
        try:
            time_ns, fraction = parse_time(row["time"])
            prompt = count(row["prompt"], "prompt length")
            output = count(row["output"], "output length")
            if output == 0:
                raise BadRecord(NO_OUTPUT)
            if prompt == 0:
                raise BadRecord(NO_PROMPT)
        except BadRecord as bad:
            dropped[bad.reason] += 1
            numeric += bad.reason == "timestamp unreadable" and _is_number(row["time"])
            continue
        digits[fraction] += 1
        found.add(time_ns, prompt, output)
    if numeric and not len(found):
        raise ValueError(
            f"{path.name}: times must be dates such as '2023-11-16 18:15:46.6805900', got plain "
            "numbers (seconds, milliseconds or nanoseconds: the file does not say which)"
        )
    if len(found) > 1 and digits and max(digits) <= _CUT_DIGITS:
        notes[f"timestamp cut to {max(digits)} fractional digits"] += len(found)
    elif digits and max(digits) >= _FULL_DIGITS and (short := _shorter(digits)):
        notes["timestamp with fewer fractional digits than others"] += short
    return Read(found.arrivals(notes), len(found), dropped, notes)


def parse_time(text: str) -> tuple[int, int]:
    """Return nanoseconds since 1970 and the number of fractional digits; no zone means UTC.

    Raises
    ------
    BadRecord
        The text is no date with a time.

    Examples
    --------
    >>> parse_time("2023-11-16 18:15:46.6805900")
    (1700158546680590000, 7)
    >>> parse_time("2024-05-10 00:00:00.009930+00:00")
    (1715299200009930000, 6)
    """
    if not text:
        raise BadRecord("timestamp missing")
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise BadRecord("timestamp unreadable")
    second, fraction, zone = match.groups()
    try:
        seconds = _epoch_s(second) - _offset_s(zone)
    except ValueError:
        raise BadRecord("timestamp unreadable") from None
    fraction = fraction or ""
    return seconds * 1_000_000_000 + int(fraction.ljust(9, "0")), len(fraction)


@functools.lru_cache(maxsize=1024)
def _epoch_s(second: str) -> int:
    moment = datetime.datetime.fromisoformat(second).replace(tzinfo=datetime.UTC)
    return int(moment.timestamp())


def _offset_s(zone: str | None) -> int:
    if zone in (None, "Z", "UTC"):
        return 0
    digits = str(zone).replace(":", "")
    seconds = int(digits[1:3]) * 3600 + int(digits[3:5]) * 60
    return -seconds if digits[0] == "-" else seconds


def _shorter(digits: Counter[int]) -> int:
    return sum(rows for length, rows in digits.items() if length < max(digits))


def _is_number(text: str) -> bool:
    try:
        number(text, "timestamp")
    except BadRecord:
        return False
    return True
