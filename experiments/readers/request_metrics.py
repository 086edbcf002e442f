"""vLLM's per-request acceptance, as responses carry it with ``--per-request-spec-decode-metrics``.

Taken are whole responses, their ``metrics.speculative_decoding`` objects, and bare lists of tokens
accepted per step, one a line or in one JSON list.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import count, json_records
from acclimate.experiments.readers.read import BadRecord, Read

NO_METRICS = "no speculative decoding metrics"
NO_STEPS = "no speculative steps"
TOO_MANY_ACCEPTED = "accepted more than drafted"
_HISTOGRAM = "acceptance_histogram"


@dataclasses.dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """Acceptance of whole requests; arrays have shape (n,) where not said otherwise.

    Parameters
    ----------
    steps, accepted
        Verification steps, and draft tokens accepted in them.
    drafted
        Draft tokens proposed; -1 where a bare list does not say.
    histogram
        Shape (n, max_depth + 1): steps that accepted exactly j draft tokens.
    """

    steps: IntArray
    drafted: IntArray
    accepted: IntArray
    histogram: IntArray

    @property
    def acceptance_lengths(self) -> FloatArray:
        """Tokens per step of each request, bonus token included."""
        return 1.0 + self.accepted / self.steps

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per step over all requests; None without a step."""
        steps = int(self.steps.sum())
        return 1.0 + int(self.accepted.sum()) / steps if steps else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted per drafted token where both are known; None where nothing was drafted."""
        known = self.drafted > 0
        drafted = int(self.drafted[known].sum())
        return int(self.accepted[known].sum()) / drafted if drafted else None

    @property
    def survival(self) -> FloatArray:
        """Shape (max_depth,): share of steps that accepted at least 1, 2, … draft tokens."""
        totals = self.histogram.sum(axis=0)
        steps = max(int(totals.sum()), 1)
        return np.cumsum(totals[::-1])[::-1][1:] / steps


def read_request_metrics(path: str | os.PathLike[str]) -> Read[RequestAcceptance]:
    """Read per-request metrics.

    Counts are believed and rates computed from them; a rate in the file that says otherwise, or
    that is a percentage, is noted.

    Raises
    ------
    ValueError
        The file is of another kind.
    """
    path = require(path, Kind.REQUEST_METRICS)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    rows: list[tuple[list[int], int]] = []
    for record in json_records(path, dropped):
        try:
            rows.append(_row(record, notes))
        except BadRecord as bad:
            dropped[bad.reason] += 1
    width = max((len(histogram) for histogram, _ in rows), default=1)
    histogram = np.zeros((len(rows), width), dtype=np.int64)
    for i, (counts, _) in enumerate(rows):
        histogram[i, : len(counts)] = counts
    value = RequestAcceptance(
        steps=histogram.sum(axis=1),
        drafted=np.array([drafted for _, drafted in rows], dtype=np.int64),
        accepted=histogram @ np.arange(width),
        histogram=histogram,
    )
    return Read(value, len(rows), dropped, notes)


def _row(record: Any, notes: Counter[str]) -> tuple[list[int], int]:
    """Return the histogram of one request, and how many tokens were drafted for it."""
    if isinstance(record, list):
        record = {"per_step_accepted": record}
    metrics = _metrics(record)
    if metrics is None:
        raise BadRecord(NO_METRICS)
    usage = record.get("usage")
    if isinstance(usage, dict) and usage.get("completion_tokens") == 0:
        raise BadRecord("no output tokens")
    per_step = _counts(metrics.get("per_step_accepted"), "per-step accepted")
    per_step_drafted = _counts(metrics.get("per_step_drafted"), "per-step drafted")
    histogram = _counts(metrics.get(_HISTOGRAM), "histogram")
    if per_step is not None:
        _check_steps(per_step, per_step_drafted)
        seen = np.bincount(per_step, minlength=len(histogram or ())).tolist() if per_step else []
        if histogram is not None and seen != histogram:
            raise BadRecord("histogram differs from per-step list")
        histogram = seen
    if histogram is None:
        raise BadRecord("histogram missing")
    steps = sum(histogram)
    accepted = sum(j * steps_of for j, steps_of in enumerate(histogram))
    if steps != _told(metrics, "num_spec_steps", steps):
        raise BadRecord("histogram sum differs from steps")
    if accepted != _told(metrics, "num_accepted_draft_tokens", accepted):
        raise BadRecord("histogram differs from accepted")
    drafted = sum(per_step_drafted) if per_step_drafted is not None else -1
    told_drafted = _told(metrics, "num_draft_tokens", drafted)
    if per_step_drafted is not None and drafted != told_drafted:
        raise BadRecord("drafted differs from per-step list")
    if steps == 0:
        raise BadRecord(NO_STEPS)
    if told_drafted != -1 and accepted > told_drafted:
        raise BadRecord(TOO_MANY_ACCEPTED)
    if told_drafted > 0:
        _note_rate(metrics.get("draft_acceptance_rate"), accepted / told_drafted, notes)
    return histogram, told_drafted


def _metrics(record: Any, levels: int = 4) -> dict[str, Any] | None:
    """Return the object that holds the counts, wherever in the response it is."""
    if not isinstance(record, dict):
        raise BadRecord("not an object")
    if _HISTOGRAM in record or "per_step_accepted" in record:
        return record
    for key in ("speculative_decoding", "metrics", "data", "response", "body"):
        inner = record.get(key)
        if isinstance(inner, dict) and levels:
            found = _metrics(inner, levels - 1)
            if found is not None:
                return found
    return None


def _counts(values: object, what: str) -> list[int] | None:
    if values is None:
        return None
    if not isinstance(values, list):
        raise BadRecord(f"{what} is no list")
    counts = [count(value, what) for value in values]
    if len(counts) > 0 and max(counts) > 1_000 and what == "per-step accepted":
        raise BadRecord(f"{what} beyond belief")
    return counts


def _check_steps(accepted: list[int], drafted: list[int] | None) -> None:
    if drafted is None:
        return
    if len(accepted) != len(drafted):
        raise BadRecord("per-step lists differ in length")
    if any(a > d for a, d in zip(accepted, drafted, strict=True)):
        raise BadRecord(TOO_MANY_ACCEPTED)


def _told(metrics: dict[str, Any], key: str, otherwise: int) -> int:
    value = metrics.get(key)
    return otherwise if value is None else count(value, key)


def _note_rate(told: object, rate: float, notes: Counter[str]) -> None:
    if isinstance(told, bool) or not isinstance(told, (int, float)):
        return
    if math.isclose(told, rate, rel_tol=0.01, abs_tol=1e-3):
        return
    percent = math.isclose(told, 100.0 * rate, rel_tol=0.01, abs_tol=0.1)
    notes["rate is a percentage" if percent else "rate differs from the counts"] += 1
