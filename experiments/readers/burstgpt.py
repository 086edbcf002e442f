"""BurstGPT's traces: ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``."""

from __future__ import annotations

import os
from collections import Counter

from acclimate.experiments.readers.arrivals import (
    NO_PROMPT,
    ArrivalList,
    Arrivals,
    check_unit,
    to_ns,
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
    rows: list[tuple[float, int, int]] = []
    for row in csv_rows(path, _COLUMNS, dropped, notes, optional=_OPTIONAL):
        try:
            if model is not None and row.get("model") != model:
                raise BadRecord("another model")
            rows.append(_row(row, notes))
        except BadRecord as bad:
            dropped[bad.reason] += 1
    check_unit(path.name, [time for time, _, _ in rows], unit)
    found = ArrivalList()
    for time, prompt, output in rows:
        found.add(to_ns(time, unit), prompt, output)
    return Read(found.arrivals(notes), len(found), dropped, notes)


def _row(row: dict[str, str], notes: Counter[str]) -> tuple[float, int, int]:
    time = number(row["time"], "timestamp")
    if time < 0:
        raise BadRecord("timestamp negative")
    if time > 1e19:
        raise BadRecord("timestamp beyond belief")
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
