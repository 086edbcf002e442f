"""Streams of graded tokens with a known rate, and what a detector makes of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from acclimate.predictors.compiled import compiled
from acclimate.predictors.drift import SlotDrift
from acclimate.predictors.numerics import FloatArray, IntArray
from acclimate.predictors.shift_kernels import N_ALARM, take_run, weigh_tokens

BoolArray = npt.NDArray[np.bool_]

BEFORE_TOKENS = 2_000
"""Tokens before a change."""

_FIRST_ORDER_ARL = 10_000.0
_REQUEST_TOKENS = (50, 150)
_CONCENTRATION = 10.0
_THRESHOLDS = (1.0, 14.0)
_BISECTIONS = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """Graded tokens in order: accepted or not, and of which request; shapes (n,).

    ``request`` is -1 where a token stands for itself.
    """

    accepted: BoolArray
    request: IntArray


Watch = Callable[[Stream, int], list[int]]
"""What a detector makes of a stream: where it alarms, up to the first alarm at or behind a place."""


def independent(
    rng: np.random.Generator, before: float, after: float, change: int, tokens: int
) -> Stream:
    """Draw independent tokens with rate ``before`` up to ``change`` and ``after`` from there."""
    draws = rng.random(tokens)
    accepted = draws < np.where(np.arange(tokens) < change, before, after)
    return Stream(accepted, np.full(tokens, -1, dtype=np.int64))


def live_like(
    rng: np.random.Generator,
    before: float,
    after: float,
    change: int,
    tokens: int,
    *,
    concurrency: int,
    at_once: bool = False,
) -> Stream:
    """Draw tokens of requests in service, each request with a rate of its own.

    A request's rate is Beta with the stream's rate as mean and concentration 10; it has 50 to 150
    graded tokens, and is replaced when it is done. The next token comes of any request in service.
    A change of the stream's rate holds for requests that begin afterwards, or with ``at_once`` for
    those in service too, which then draw their rates anew.
    """
    serving = rng.integers(concurrency, size=tokens)
    draws = rng.random(tokens)
    accepted = np.zeros(tokens, dtype=np.bool_)
    request = np.zeros(tokens, dtype=np.int64)
    requests = 0
    for seat in range(concurrency):
        places = np.flatnonzero(serving == seat)
        at, first = 0, True
        while at < places.shape[0]:
            # The first request of a seat is met somewhere in its life.
            length = int(rng.integers(1 if first else _REQUEST_TOKENS[0], _REQUEST_TOKENS[1] + 1))
            own, first = places[at : at + length], False
            rate = _rate(rng, before if own[0] < change else after)
            rates = np.full(own.shape[0], rate)
            if at_once and own[0] < change:
                rates[own >= change] = _rate(rng, after)
            accepted[own] = draws[own] < rates
            request[own] = requests
            requests += 1
            at += length
    return Stream(accepted, request)


def first_order_limit(before: float, after: float) -> float:
    """Return ln(10,000) / KL(after ‖ before) in tokens, the mean delay at that many between alarms.

    >>> round(first_order_limit(0.8, 0.5))
    41
    """
    divergence = after * math.log(after / before)
    divergence += (1.0 - after) * math.log((1.0 - after) / (1.0 - before))
    return math.log(_FIRST_ORDER_ARL) / divergence


def shift_pairs(rng: np.random.Generator, count: int) -> Iterator[tuple[float, float]]:
    """Draw rates before and after a change, both in [0.05, 0.95], at least 0.15 apart."""
    drawn: set[tuple[float, float]] = set()
    while len(drawn) < count:
        before, after = (round(float(q), 2) for q in rng.uniform(0.05, 0.95, size=2))
        if abs(before - after) >= 0.15 and (before, after) not in drawn:
            drawn.add((before, after))
            yield before, after


def watch_acclimate(stream: Stream, change: int) -> list[int]:
    """Watch as `AcceptanceShiftDetector` with its defaults does, token by token."""
    drift = SlotDrift(n_slots=1)
    drift.watch(0, np.array([0.5]))
    drift.reserve(max(int(stream.request.max(initial=-1)) + 1, 1))
    places = _watch(
        drift.sums[0],
        drift.pending[0],
        drift.book[0],
        *drift.constants,
        drift.histories,
        drift.reference[0],
        stream.accepted,
        stream.request,
        change,
    )
    return [int(place) for place in places]


def watch_known(before: float, after: float, threshold: float) -> Watch:
    """Watch by the CUSUM that knows both rates."""
    steps = _log_ratios(before, after)

    def watch(stream: Stream, change: int) -> list[int]:
        return [int(place) for place in _cusum(stream.accepted, *steps, threshold, change)]

    return watch


def known_threshold(
    rng: np.random.Generator, before: float, after: float, arl_tokens: float, tokens: int
) -> float:
    """Return the threshold at which that CUSUM has ``arl_tokens`` tokens between false alarms.

    Measured on one stream of ``tokens`` stable tokens, by bisection.
    """
    accepted = rng.random(tokens) < before
    steps = _log_ratios(before, after)
    low, high = _THRESHOLDS
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if tokens < arl_tokens * _count_alarms(accepted, *steps, middle):
            low = middle
        else:
            high = middle
    return high


def _rate(rng: np.random.Generator, mean: float) -> float:
    return float(rng.beta(_CONCENTRATION * mean, _CONCENTRATION * (1.0 - mean)))


def _log_ratios(before: float, after: float) -> tuple[float, float]:
    return math.log(after / before), math.log((1.0 - after) / (1.0 - before))


@compiled(
    "i8[::1](f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1],"
    "b1[::1], i8[::1], i8)"
)
def _watch(
    sums: FloatArray,
    pending: FloatArray,
    book: FloatArray,
    alternatives: FloatArray,
    settings: FloatArray,
    histories: FloatArray,
    reference: FloatArray,
    accepted: BoolArray,
    request: IntArray,
    change: int,
) -> IntArray:
    alarm = np.zeros(N_ALARM)
    found = np.zeros(accepted.shape[0], dtype=np.int64)
    n = 0
    for t in range(accepted.shape[0]):
        lone = request[t] < 0
        history = histories[0 if lone else request[t]]
        take_run(sums, pending, history, reference, 0, 0, 1, int(accepted[t]), lone)
        if weigh_tokens(sums, pending, book, alternatives, settings, alarm):
            found[n] = t
            n += 1
            if t >= change:
                break
    return found[:n]


@compiled("i8[::1](b1[::1], f8, f8, f8, i8)")
def _cusum(accepted: BoolArray, up: float, down: float, threshold: float, change: int) -> IntArray:
    found = np.zeros(accepted.shape[0], dtype=np.int64)
    n, evidence = 0, 0.0
    for t in range(accepted.shape[0]):
        evidence = max(evidence, 0.0) + (up if accepted[t] else down)
        if evidence > threshold:
            evidence = 0.0
            found[n] = t
            n += 1
            if t >= change:
                break
    return found[:n]


@compiled("i8(b1[::1], f8, f8, f8)")
def _count_alarms(accepted: BoolArray, up: float, down: float, threshold: float) -> int:
    alarms, evidence = 0, 0.0
    for t in range(accepted.shape[0]):
        evidence = max(evidence, 0.0) + (up if accepted[t] else down)
        if evidence > threshold:
            evidence = 0.0
            alarms += 1
    return alarms
