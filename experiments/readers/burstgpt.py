"""BurstGPT's traces: ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``."""

from __future__ import annotations

import os
from collections import Counter

from acclimate.experiments.readers.arrivals import (
    NO_PROMPT,
    Arrivals,
    TimedRows,
    collect,
)
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import count, csv_rows, number
from acclimate.experiments.readers.read import BadRecord, Read

FAILED = "cancelled or failed, no response tokens"
_COLUMNS = {
    "time": ("Timestamp",),
    "model": ("Model",),
    "prompt": ("Request tokens",),
    "output": ("Response tokens",),
    "total": ("Total tokens",),
    "elapsed": ("Elapsed time",),
}
_OPTIONAL = ("model", "total", "elapsed")


def read_burstgpt(
    path: str | os.PathLike[str], *, model: str | None = None, unit: str = "s"
) -> Read[Arrivals]:
    """Read arrivals from a BurstGPT trace.

    Parameters
    ----------
    model
        Take only requests to this model, such as ``GPT-4``; None: all.
    unit
        Of the timestamps, ``s``, ``ms``, ``us`` or ``ns``; the format says seconds.

    Raises
    ------
    ValueError
        The file is of another kind, lacks a column, or its times are plainly in another unit.
    """
    path = require(path, Kind.BURSTGPT)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    rows = TimedRows()
    for row in csv_rows(path, _COLUMNS, dropped, notes, optional=_OPTIONAL):
        try:
            if model is not None and row.get("model") != model:
                raise BadRecord("another model")
            rows.add(*_row(row, notes))
        except BadRecord as bad:
            dropped[bad.reason] += 1
    return collect(path.name, rows, unit, dropped, notes)


def _row(row: dict[str, str], notes: Counter[str]) -> tuple[float, int, int]:
    time = number(row["time"], "timestamp")
    if time < 0:
        raise BadRecord("timestamp negative")
    prompt = count(row["prompt"], "prompt length")
    output = count(row["output"], "output length")
    if output == 0:
        raise BadRecord(FAILED)
    if prompt == 0:
        raise BadRecord(NO_PROMPT)
    if row.get("total") not in (None, "", str(prompt + output)):
        notes["total differs from request plus response"] += 1
    if row.get("elapsed") == "":
        notes["no elapsed time"] += 1
    return time, prompt, output
