"""Mooncake's arrival traces: JSON lines of timestamp, input_length, output_length, hash_ids."""

from __future__ import annotations

import os
from collections import Counter

from acclimate.experiments.readers.arrivals import (
    NO_OUTPUT,
    NO_PROMPT,
    Arrivals,
    TimedRows,
    collect,
)
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import count, json_records, number
from acclimate.experiments.readers.read import BadRecord, Read


def read_mooncake(path: str | os.PathLike[str], *, unit: str = "ms") -> Read[Arrivals]:
    """Read arrivals from a trace in Mooncake's format.

    The hashes of shared prompt blocks are not read: prefix caching is off in all comparisons.

    Parameters
    ----------
    unit
        Of the timestamps, ``s``, ``ms``, ``us`` or ``ns``; the format says milliseconds.

    Raises
    ------
    ValueError
        The file is of another kind, or its times are plainly in another unit.
    """
    path = require(path, Kind.MOONCAKE)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    rows = TimedRows()
    for record in json_records(path, dropped):
        try:
            rows.add(*_row(record))
        except BadRecord as bad:
            dropped[bad.reason] += 1
    return collect(path.name, rows, unit, dropped, notes)


def _row(record: object) -> tuple[float, int, int]:
    if not isinstance(record, dict):
        raise BadRecord("not an object")
    time = number(record.get("timestamp"), "timestamp")
    if time < 0:
        raise BadRecord("timestamp negative")
    prompt = count(record.get("input_length"), "prompt length")
    output = count(record.get("output_length"), "output length")
    if output == 0:
        raise BadRecord(NO_OUTPUT)
    if prompt == 0:
        raise BadRecord(NO_PROMPT)
    return time, prompt, output
