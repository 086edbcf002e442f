"""Tables of step times that people measure: CSV of batch, K, ms, and maybe context and prefill."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from pathlib import Path

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import count, csv_rows, number, read_lines, split_csv
from acclimate.experiments.readers.read import BadRecord, Read

_COLUMNS = {
    "batch": ("batch", "batch_size"),
    "K": ("K", "depth", "draft_depth", "num_speculative_tokens"),
    "ms": ("ms", "latency_ms", "step_ms", "time_ms"),
    "context": ("context", "context_tokens", "context_len"),
    "prefill": ("prefill", "prefill_tokens"),
}
_OTHER_UNITS = {
    "seconds": ("s", "seconds", "latency_s", "step_s", "time_s", "latency_seconds"),
    "microseconds": ("us", "microseconds", "latency_us", "step_us", "time_us"),
    "nanoseconds": ("ns", "nanoseconds", "latency_ns", "step_ns", "time_ns"),
}
_SHORTEST_MS, _LONGEST_MS = 0.05, 30_000.0


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyTable:
    """Measured cells; every array has shape (n,).

    Parameters
    ----------
    batch, depth, ms
        Decode requests, drafts that each of them verifies, and the step's milliseconds.
    context, prefill
        Context tokens per request, and prefill tokens in the step; 0 where the file has none.
    """

    batch: IntArray
    depth: IntArray
    ms: FloatArray
    context: IntArray
    prefill: IntArray


def read_latency_table(path: str | os.PathLike[str]) -> Read[LatencyTable]:
    """Read a latency table.

    Raises
    ------
    ValueError
        The file is of another kind, lacks a column, or its times are plainly no milliseconds.
    """
    path = require(path, Kind.LATENCY)
    _check_column(path)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    rows: list[tuple[int, int, float, int, int]] = []
    cells: set[tuple[int, int, int, int]] = set()
    for row in csv_rows(path, _COLUMNS, dropped, notes, optional=("context", "prefill")):
        try:
            batch, depth, ms, context, prefill = _row(row)
        except BadRecord as bad:
            dropped[bad.reason] += 1
            continue
        if (batch, depth, context, prefill) in cells:
            notes["same cell as another"] += 1
        cells.add((batch, depth, context, prefill))
        rows.append((batch, depth, ms, context, prefill))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    whole = [np.array(columns[i], dtype=np.int64) for i in (0, 1, 3, 4)]
    times = np.array(columns[2], dtype=np.float64)
    _check_size(path, times)
    table = LatencyTable(whole[0], whole[1], times, whole[2], whole[3])
    return Read(table, len(rows), dropped, notes)


def _row(row: dict[str, str]) -> tuple[int, int, float, int, int]:
    batch = count(row["batch"], "batch")
    if batch == 0:
        raise BadRecord("batch is 0")
    depth = count(row["K"], "K")
    ms = number(row["ms"], "ms")
    if ms <= 0:
        raise BadRecord("ms not above 0")
    context = count(row["context"], "context") if "context" in row else 0
    prefill = count(row["prefill"], "prefill") if "prefill" in row else 0
    return batch, depth, ms, context, prefill


def _check_column(path: Path) -> None:
    header = {cell.lower() for cell in split_csv(next(read_lines(path)).text)}
    if header & set(_COLUMNS["ms"]):
        return
    for unit, names in _OTHER_UNITS.items():
        if found := header & set(names):
            raise ValueError(
                f"{path.name}: times must be milliseconds in a column 'ms', got {unit} in "
                f"{min(found)!r}"
            )


def _check_size(path: Path, times_ms: FloatArray) -> None:
    if times_ms.size == 0:
        return
    typical = float(np.median(times_ms))
    if typical < _SHORTEST_MS:
        likely = "seconds"
    elif typical > _LONGEST_MS:
        likely = "nanoseconds" if typical > 1e3 * _LONGEST_MS else "micro- or nanoseconds"
    else:
        return
    raise ValueError(
        f"{path.name}: step times must be milliseconds, got {typical:g} in the middle, which "
        f"looks like {likely}"
    )
