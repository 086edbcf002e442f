"""What any engine, simulated or real, gave: per request, per step, and the gaps between outputs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray

CountArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]

GAP_LEAST_S = 1e-6
GAP_BINS_PER_E = 50.0  # a bin is 2 % wide
GAP_BINS = 1_200  # up to some 26,000 s
_BLOCK_STEPS = 4_096

STEP_COUNTS = (
    "decode_requests",
    "verified",
    "accepted",
    "committed",
    "first_tokens",
    "prefill_tokens",
    "depth",
    "draft_depth",
)
"""Columns of a step's counts, in the order in which `StepLog.add` takes them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """One entry per engine step; every array has shape (steps,).

    Parameters
    ----------
    begun_s, duration_ms
        When the step began, and how long it took.
    decode_requests
        Requests that decoded.
    verified, accepted
        Draft tokens that were verified, and of these accepted (before stop checks).
    committed
        Tokens that the decoding requests kept.
    first_tokens
        Requests whose prompt ended in this step, each with one token.
    prefill_tokens
        Prompt tokens of the step.
    depth
        The step's cap; the engine's ``max_depth`` where its own rule acted.
    draft_depth
        Tokens drafted for the next step.
    """

    begun_s: FloatArray
    duration_ms: FloatArray
    decode_requests: CountArray
    verified: CountArray
    accepted: CountArray
    committed: CountArray
    first_tokens: CountArray
    prefill_tokens: CountArray
    depth: CountArray
    draft_depth: CountArray

    def __len__(self) -> int:
        return int(self.begun_s.shape[0])


@dataclasses.dataclass(slots=True, kw_only=True)
class StepTotals:
    """Sums over steps.

    ``plain_ms`` and ``plain_tokens`` are of the steps without prefill: decode time apart.
    ``depth_steps`` counts, per cap, the steps with a request to decode; ``switches`` counts
    changes of the cap between two such steps.
    """

    steps: int = 0
    duration_ms: float = 0.0
    plain_ms: float = 0.0
    plain_tokens: int = 0
    verified: int = 0
    accepted: int = 0
    committed: int = 0
    first_tokens: int = 0
    prefill_tokens: int = 0
    switches: int = 0
    depth_steps: IntArray = dataclasses.field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    last_depth: int | None = None

    @classmethod
    def of(cls, steps: Steps, max_depth: int) -> StepTotals:
        """Return the sums over ``steps``."""
        totals = cls(depth_steps=np.zeros(max_depth + 1, dtype=np.int64))
        counts = np.column_stack([getattr(steps, name) for name in STEP_COUNTS])
        totals.add(steps.duration_ms, counts)
        return totals

    def add(self, duration_ms: FloatArray, counts: CountArray) -> None:
        """Add steps, their counts as columns in the order of `STEP_COUNTS`."""
        decode, verified, accepted, committed, first, prefill, depth, _ = counts.T
        plain = prefill == 0
        self.steps += int(duration_ms.shape[0])
        self.duration_ms += float(duration_ms.sum())
        self.plain_ms += float(duration_ms[plain].sum())
        self.plain_tokens += int(committed[plain].sum())
        self.verified += int(verified.sum())
        self.accepted += int(accepted.sum())
        self.committed += int(committed.sum())
        self.first_tokens += int(first.sum())
        self.prefill_tokens += int(prefill.sum())
        held = depth[decode > 0]
        if held.size:
            self.depth_steps += np.bincount(held, minlength=self.depth_steps.shape[0])
            self.switches += int(np.count_nonzero(np.diff(held)))
            self.switches += self.last_depth is not None and self.last_depth != held[0]
            self.last_depth = int(held[-1])


class StepLog:
    """Takes a run's steps, in blocks of arrays; without ``keep`` it holds their sums alone.

    Parameters
    ----------
    max_depth
        The engine's.
    keep
        Whether the steps themselves are wanted; otherwise memory stays flat.

    Examples
    --------
    >>> log = StepLog(max_depth=2)
    >>> log.add(0.0, 10.0, (1, 2, 1, 2, 0, 0, 2, 2))
    >>> log.add(0.01, 12.0, (1, 0, 0, 1, 0, 0, 0, 2))
    >>> totals, steps = log.result()
    >>> totals.committed, totals.switches, steps.begun_s.tolist()
    (3, 1, [0.0, 0.01])
    """

    def __init__(self, max_depth: int, *, keep: bool = True) -> None:
        self.keep = keep
        self._totals = StepTotals(depth_steps=np.zeros(max_depth + 1, dtype=np.int64))
        self._blocks: list[tuple[FloatArray, CountArray]] = []
        self._at = 0
        self._start()

    def add(self, begun_s: float, duration_ms: float, counts: tuple[int, ...]) -> None:
        """Take one step; ``counts`` in the order of `STEP_COUNTS`."""
        at = self._at
        times = self._times[at]
        times[0], times[1] = begun_s, duration_ms
        self._counts[at] = counts
        self._at = at + 1
        if self._at == _BLOCK_STEPS:
            self._fold()

    def result(self) -> tuple[StepTotals, Steps | None]:
        """Return the sums so far, and the steps if they were kept."""
        if self._at:
            self._fold()
        if not self.keep:
            return self._totals, None
        times = np.concatenate([times for times, _ in self._blocks] or [np.zeros((0, 2))])
        counts = np.concatenate(
            [counts for _, counts in self._blocks]
            or [np.zeros((0, len(STEP_COUNTS)), dtype=np.int32)]
        )
        columns = {name: counts[:, j].copy() for j, name in enumerate(STEP_COUNTS)}
        return self._totals, Steps(
            begun_s=times[:, 0].copy(), duration_ms=times[:, 1].copy(), **columns
        )

    def _start(self) -> None:
        self._times: FloatArray = np.zeros((_BLOCK_STEPS, 2))
        self._counts: CountArray = np.zeros((_BLOCK_STEPS, len(STEP_COUNTS)), dtype=np.int32)

    def _fold(self) -> None:
        times, counts = self._times[: self._at], self._counts[: self._at]
        self._at = 0
        self._totals.add(times[:, 1], counts)
        if self.keep:
            self._blocks.append((times, counts))
            self._start()


@dataclasses.dataclass(slots=True)
class Gaps:
    """Times between two outputs of one request (inter-token latency), as a fine histogram.

    An output is what a client gets at once: several tokens where drafts were accepted. The mean
    gap is therefore not the time per token.

    Examples
    --------
    >>> gaps = Gaps.of(np.array([0.010, 0.010, 0.012, 0.5]))
    >>> round(gaps.quantile_s(0.5), 3), round(gaps.mean_s, 3)
    (0.01, 0.133)
    >>> Gaps().quantile_s(0.5) is None
    True
    """

    counts: IntArray = dataclasses.field(default_factory=lambda: np.zeros(GAP_BINS, dtype=np.int64))
    sum_s: FloatArray = dataclasses.field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(cls, gaps_s: FloatArray) -> Gaps:
        """Return the histogram of gaps in seconds."""
        with np.errstate(divide="ignore"):
            bins = np.floor(GAP_BINS_PER_E * np.log(gaps_s / GAP_LEAST_S))
        counts = np.bincount(np.clip(bins, 0, GAP_BINS - 1).astype(np.int64), minlength=GAP_BINS)
        return cls(counts.astype(np.int64), np.array([float(gaps_s.sum())]))

    @property
    def count(self) -> int:
        """Gaps seen."""
        return int(self.counts.sum())

    @property
    def mean_s(self) -> float | None:
        """Mean gap; None without one."""
        return float(self.sum_s[0]) / self.count if self.count else None

    def quantile_s(self, share: float) -> float | None:
        """Return the gap that ``share`` of all gaps do not exceed, to 1 %; None without one."""
        if not self.count:
            return None
        cumulated = np.cumsum(self.counts)
        index = int(np.searchsorted(cumulated, share * cumulated[-1]))
        return GAP_LEAST_S * math.exp((min(index, GAP_BINS - 1) + 0.5) / GAP_BINS_PER_E)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a run gave; arrays over requests have shape (n,), in order of arrival.

    Parameters
    ----------
    policy
        Name of the arm.
    max_depth
        The engine's.
    begun_s, ended_s
        When the first request was sent, and when the last step ended.
    request
        Number of the request in the workload: two runs of one workload are paired by it.
    arrival_s, first_token_s, last_token_s
        NaN where there was no token yet.
    tokens
        Output tokens so far.
    finished
        Whether the request ended.
    domain, domain_of
        Names of the traffic classes, and where each request comes from.
    tpot_target_s, ttft_target_s, e2e_target_s
        Targets, NaN for none; None where no request has any.
    gaps
        Times between outputs.
    verify_lens
        How often a request verified 0, 1, … drafts in a step; None where nobody counted.
    totals, steps
        Sums over the engine's steps, and the steps where they were kept.
    status
        Counters of the control loop (`ControlLoop.status`).
    """

    policy: str
    max_depth: int
    begun_s: float
    ended_s: float
    request: IntArray
    arrival_s: FloatArray
    first_token_s: FloatArray
    last_token_s: FloatArray
    tokens: IntArray
    finished: BoolArray
    domain: tuple[str, ...]
    domain_of: IntArray
    tpot_target_s: FloatArray | None = None
    ttft_target_s: FloatArray | None = None
    e2e_target_s: FloatArray | None = None
    gaps: Gaps
    verify_lens: IntArray | None = None
    totals: StepTotals
    steps: Steps | None = None
    status: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def duration_s(self) -> float:
        """Seconds from the first request to the last step."""
        return self.ended_s - self.begun_s

    @property
    def tpot_s(self) -> FloatArray:
        """Time per output token after the first; NaN below two tokens, shape (n,)."""
        more = np.maximum(self.tokens - 1, 1)
        tpot_s = (self.last_token_s - self.first_token_s) / more
        return np.where(self.tokens > 1, tpot_s, np.nan)

    @property
    def ttft_s(self) -> FloatArray:
        """Time to first token; NaN before it, shape (n,)."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> FloatArray:
        """Time to the last token so far; NaN before the first, shape (n,)."""
        return self.last_token_s - self.arrival_s
