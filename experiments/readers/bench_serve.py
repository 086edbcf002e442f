"""Results of ``vllm bench serve``: one JSON object a run, appended runs on lines of their own."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import count, json_records, number
from acclimate.experiments.readers.read import BadRecord, Read

FAILED = "cancelled or failed"
_LISTS = ("input_lens", "output_lens", "ttfts", "itls")
_SUMMARIES = tuple(
    f"{which}_{what}_ms"
    for what in ("ttft", "tpot", "itl", "e2el")
    for which in ("mean", "median", "p99")
)


@dataclasses.dataclass(frozen=True, slots=True)
class BenchRequests:
    """Requests of a run that was saved in detail; every array has shape (n,).

    ``decode_s`` is the time from the first token to the last, so that TPOT is
    ``decode_s / (output_tokens - 1)``.
    """

    prompt_tokens: IntArray
    output_tokens: IntArray
    ttft_s: FloatArray
    decode_s: FloatArray


@dataclasses.dataclass(frozen=True, slots=True)
class BenchRun:
    """One run.

    Parameters
    ----------
    model, backend
        What was measured, as the file says.
    completed, failed
        Requests.
    duration_s, output_tokens_per_s
        Wall time and client-side throughput.
    latency_ms
        What the file says of ``mean_ttft_ms`` and the like.
    drafts, drafted_tokens, accepted_tokens
        None where the run had no speculation or the file does not say.
    survival
        Share of drafts accepted up to position 1, 2, …, shape (max_depth,).
    requests
        Per request, where the run was saved with ``--save-detailed``.
    """

    model: str
    backend: str
    completed: int
    failed: int
    duration_s: float
    output_tokens_per_s: float
    latency_ms: dict[str, float]
    drafts: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    survival: tuple[float, ...] = ()
    requests: Read[BenchRequests] | None = None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per draft, bonus token included; None without drafts."""
        if not self.drafts or self.accepted_tokens is None:
            return None
        return 1.0 + self.accepted_tokens / self.drafts

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted per drafted token in [0, 1]; None without drafts."""
        if not self.drafted_tokens or self.accepted_tokens is None:
            return None
        return self.accepted_tokens / self.drafted_tokens


def read_bench_serve(path: str | os.PathLike[str]) -> Read[tuple[BenchRun, ...]]:
    """Read the runs of a result file.

    Raises
    ------
    ValueError
        The file is of another kind.
    """
    path = require(path, Kind.BENCH_SERVE)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    runs: list[BenchRun] = []
    for record in json_records(path, dropped):
        try:
            runs.append(_run(record, notes))
        except BadRecord as bad:
            dropped[bad.reason] += 1
    return Read(tuple(runs), len(runs), dropped, notes)


def _run(record: Any, notes: Counter[str]) -> BenchRun:
    if not isinstance(record, dict):
        raise BadRecord("not an object")
    duration_s = number(record.get("duration"), "duration")
    completed = count(record.get("completed"), "completed")
    if duration_s <= 0:
        raise BadRecord("duration not above 0")
    if completed == 0:
        raise BadRecord("no completed request")
    tokens = count(record.get("total_output_tokens"), "output tokens")
    if tokens == 0:
        raise BadRecord("no output tokens")
    per_s = tokens / duration_s
    told = record.get("output_throughput")
    if told is not None and not math.isclose(number(told, "throughput"), per_s, rel_tol=0.02):
        notes["throughput differs from tokens per duration"] += 1
    latency_ms = {
        name: number(record[name], name) for name in _SUMMARIES if record.get(name) is not None
    }
    requests = _requests(record, notes)
    _check_units(latency_ms, duration_s, requests)
    drafts, drafted, accepted = _speculation(record, notes)
    survival = record.get("spec_decode_per_position_acceptance_rates")
    return BenchRun(
        model=str(record.get("model_id", "")),
        backend=str(record.get("backend", "")),
        completed=completed,
        failed=count(record.get("failed", 0), "failed"),
        duration_s=duration_s,
        output_tokens_per_s=per_s,
        latency_ms=latency_ms,
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        survival=tuple(number(share, "survival") for share in survival)
        if drafts and isinstance(survival, list)
        else (),
        requests=requests,
    )


def _speculation(
    record: dict[str, Any], notes: Counter[str]
) -> tuple[int | None, int | None, int | None]:
    """Return drafts, drafted and accepted tokens; what is not there is None."""
    names = ("num_drafts", "draft_tokens", "accepted_tokens")
    values = [record.get(f"spec_decode_{name}") for name in names]
    if any(value is None for value in values):
        return None, None, None
    drafts, drafted, accepted = (
        count(value, name) for value, name in zip(values, names, strict=True)
    )
    if accepted > drafted:
        raise BadRecord("accepted more than drafted")
    told = record.get("spec_decode_acceptance_rate")
    if drafts == 0 or drafted == 0:
        notes["nothing drafted"] += 1
    elif told is not None:
        # vLLM writes this rate, and none of the others, in percent.
        rate = number(told, "acceptance rate")
        if math.isclose(rate, accepted / drafted, rel_tol=0.01) and rate > 0:
            notes["rate is a fraction, not a percentage"] += 1
        elif not math.isclose(rate, 100.0 * accepted / drafted, rel_tol=0.01, abs_tol=0.01):
            notes["rate differs from the counts"] += 1
    return drafts, drafted, accepted


def _requests(record: dict[str, Any], notes: Counter[str]) -> Read[BenchRequests] | None:
    lists = [record.get(name) for name in _LISTS]
    if not all(isinstance(values, list) for values in lists):
        return None
    if len({len(values) for values in lists if values is not None}) != 1:
        notes["per-request lists differ in length"] += 1
        return None
    errors = record.get("errors")
    errors = errors if isinstance(errors, list) and len(errors) == len(lists[0] or ()) else None
    dropped: Counter[str] = Counter()
    rows: list[tuple[int, int, float, float]] = []
    for i, cells in enumerate(zip(*(values or () for values in lists), strict=True)):
        try:
            if errors is not None and errors[i]:
                raise BadRecord(FAILED)
            rows.append(_request(*cells))
        except BadRecord as bad:
            dropped[bad.reason] += 1
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    value = BenchRequests(
        np.array(columns[0], dtype=np.int64),
        np.array(columns[1], dtype=np.int64),
        np.array(columns[2], dtype=np.float64),
        np.array(columns[3], dtype=np.float64),
    )
    return Read(value, len(rows), dropped)


def _request(
    prompt: object, output: object, ttft: object, gaps: object
) -> tuple[int, int, float, float]:
    prompt_tokens = count(prompt, "prompt length")
    output_tokens = count(output, "output length")
    if output_tokens == 0:
        raise BadRecord("no output tokens")
    ttft_s = number(ttft, "ttft")
    if ttft_s <= 0:
        raise BadRecord("no latency")
    if not isinstance(gaps, list):
        raise BadRecord("gaps between tokens missing")
    gaps_s = [number(gap, "gap") for gap in gaps]
    if any(gap < 0 for gap in gaps_s):
        raise BadRecord("gap negative")
    return prompt_tokens, output_tokens, ttft_s, math.fsum(gaps_s)


def _check_units(
    latency_ms: dict[str, float], duration_s: float, requests: Read[BenchRequests] | None
) -> None:
    """Drop a run whose milliseconds are none."""
    if any(value < 0 for value in latency_ms.values()):
        raise BadRecord("latency negative")
    ttft_ms = latency_ms.get("mean_ttft_ms")
    if max(latency_ms.get("mean_e2el_ms", 0.0), ttft_ms or 0.0) > 1_000.0 * duration_s * 1.01:
        raise BadRecord("latency longer than the run, not in milliseconds")
    if requests is not None and requests.kept and ttft_ms:
        seen_ms = 1e3 * float(requests.value.ttft_s.mean())
        if not 0.1 < ttft_ms / seen_ms < 10.0:
            raise BadRecord("latency differs from the requests', not in milliseconds")
