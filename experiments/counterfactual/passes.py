"""A trace cut into passes: the traffic that one policy met, and what became of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from acclimate.controller.events import (
    AddEvent,
    ConfigEvent,
    Event,
    FreeEvent,
    GapEvent,
    ObserveEvent,
    PlanEvent,
    SnapshotEvent,
)
from acclimate.controller.records import FloatArray, RequestInfo, StepContext, StepOutcome
from acclimate.experiments.counterfactual.speeds import Speeds
from acclimate.integrations.trace_format import TokensRecord

_CLOSED_SHARE = 0.95
_STALL_RATIO = 5.0


@dataclasses.dataclass(slots=True)
class TracedRequest:
    """One request as the trace tells of it.

    Parameters
    ----------
    info
        What was known when it came.
    added_ns
        When it came, on the loop's clock.
    seats
        In a closed loop, the concurrency under which it was sent: requests in the engine once it,
        and all that came with it, were in.
    tokens
        Output tokens that were seen.
    first_token_ns, last_token_ns
        When its first and its last token came; None where unknown.
    finished
        Whether it ended within the trace.
    hashes
        Salted hashes of its tokens, where the trace holds them.
    """

    info: RequestInfo
    added_ns: int
    seats: int = 0
    tokens: int = 0
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    finished: bool = False
    hashes: TokensRecord | None = None

    @property
    def kind(self) -> tuple[int, int, str]:
        """Return what the same request has in common in every pass."""
        return self.info.prompt_tokens, self.info.max_tokens, self.info.domain

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None where unknown."""
        if self.first_token_ns is None or self.last_token_ns is None or self.tokens < 2:
            return None
        return (self.last_token_ns - self.first_token_ns) / 1e9 / (self.tokens - 1)


@dataclasses.dataclass(slots=True)
class Pass:
    """Everything between two changes of policy, or between two snapshots of an idle engine.

    Parameters
    ----------
    policy
        Name of the policy that acted.
    config, state
        The configuration in force, and the policy's state when the pass began.
    requests
        In order of arrival.
    outcomes
        Of its steps, in order.
    whole
        Whether no request was under way when it began or ended, and no event was lost in it.
    replacing
        Requests that came behind another's end, and ``later`` all but those of the first moment.
    """

    policy: str
    config: dict[str, Any]
    state: dict[str, Any]
    requests: list[TracedRequest] = dataclasses.field(default_factory=list)
    outcomes: list[StepOutcome] = dataclasses.field(default_factory=list)
    whole: bool = True
    replacing: int = 0
    later: int = 0

    @property
    def closed(self) -> bool:
        """Whether requests came because others had ended (closed loop)."""
        return self.replacing >= _CLOSED_SHARE * self.later

    @property
    def traffic(self) -> tuple[tuple[int, int, str], ...]:
        """Return what was sent, to tell whether two passes met the same."""
        return tuple(request.kind for request in self.requests)

    @property
    def served(self) -> list[TracedRequest]:
        """Return the requests that ended and wrote something."""
        return [request for request in self.requests if request.finished and request.tokens]

    def speeds(self) -> Speeds:
        """Return measured speeds, without stalls of the machine."""
        return Speeds.of(_without_stalls(self.outcomes))


def read_passes(events: Iterable[Event | TokensRecord]) -> list[Pass]:
    """Cut a trace into passes; those without a request are left out."""
    reader = _Reader()
    for event in events:
        reader.feed(event)
    return [one for one in reader.close() if one.requests]


class _Reader:
    """Follows a trace event by event."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []
        self._config: dict[str, Any] = {}
        self._alive: dict[int, TracedRequest] = {}
        self._known: dict[int, TracedRequest] = {}
        self._together: list[TracedRequest] = []
        self._contexts: dict[int, StepContext] = {}
        self._seats = 0  # held since requests last came; 0: nothing came since an idle moment
        self._freed = False
        self._now_ns = 0

    def feed(self, event: Event | TokensRecord) -> None:
        """Take in one event."""
        match event:
            case ConfigEvent():
                self._config = event.config
            case SnapshotEvent():
                self._snapshot(event)
            case AddEvent():
                self._add(event.request)
            case PlanEvent():
                self._plan(event.context)
            case ObserveEvent():
                self._observe(event.outcome)
            case FreeEvent():
                self._freed = True
                request = self._alive.pop(event.request, None)
                if request is not None:
                    request.finished = True
            case GapEvent():
                self._lost()
            case TokensRecord():
                request = self._known.get(event.request)
                if request is not None:
                    request.hashes = event
                    request.tokens = len(event.output)
            case _:
                pass

    def close(self) -> list[Pass]:
        """Return the passes; requests that never ended leave the last one incomplete."""
        if self._passes and self._alive:
            self._passes[-1].whole = False
        return self._passes

    def _snapshot(self, event: SnapshotEvent) -> None:
        last = self._passes[-1] if self._passes else None
        if last is not None and last.policy == event.policy and self._alive:
            return  # one after a gap, or at the start of a segment
        self._settle_arrivals()
        fresh = Pass(event.policy, self._config, event.state)
        if self._alive:
            fresh.whole = False
            if last is not None:
                last.whole = False
        self._passes.append(fresh)
        self._seats = 0
        self._freed = False

    def _add(self, info: RequestInfo) -> None:
        added_ns = self._now_ns if info.arrival_ns is None else info.arrival_ns
        request = TracedRequest(info, added_ns)
        self._alive[info.request] = self._known[info.request] = request
        self._together.append(request)
        if not self._passes:
            return
        current = self._passes[-1]
        if current.outcomes:
            current.later += 1
            current.replacing += self._freed
        current.requests.append(request)

    def _plan(self, context: StepContext) -> None:
        self._settle_arrivals()
        self._freed = False
        self._contexts[context.step] = context
        for number in context.requests.tolist():
            request = self._alive.get(number)
            if request is not None and request.first_token_ns is None:
                request.first_token_ns = self._now_ns
        self._now_ns = context.now_ns

    def _observe(self, outcome: StepOutcome) -> None:
        self._now_ns = outcome.now_ns
        context = self._contexts.pop(outcome.step, None)
        before = (
            {} if context is None
            else dict(zip(context.requests.tolist(), context.committed.tolist(), strict=True))
        )  # fmt: skip
        for number, tokens in zip(
            outcome.requests.tolist(), outcome.committed.tolist(), strict=True
        ):
            request = self._known.get(number)
            if request is not None and number in before:
                request.tokens = before[number] + tokens
                request.last_token_ns = outcome.now_ns
        if self._passes:
            self._passes[-1].outcomes.append(outcome)

    def _settle_arrivals(self) -> None:
        """Say of the requests that came together how many were then in the engine.

        The first of them came because one had ended, under the concurrency held before: where it
        rises, only the others need the new one.
        """
        seats = len(self._alive)
        for number, request in enumerate(self._together):
            held = self._seats if number == 0 and self._seats else seats
            request.seats = min(held, seats)
        if self._together:
            self._seats = seats
            self._together.clear()

    def _lost(self) -> None:
        self._alive.clear()
        self._contexts.clear()
        if self._passes:
            self._passes[-1].whole = False


def _without_stalls(outcomes: list[StepOutcome]) -> Iterator[StepOutcome]:
    """Drop steps that took several times the median of their kind: the machine was elsewhere."""
    kinds: dict[tuple[int, bool], list[StepOutcome]] = {}
    for outcome in outcomes:
        if outcome.latency_ns is not None:
            kind = outcome.decode_requests, outcome.prefill_tokens > 0
            kinds.setdefault(kind, []).append(outcome)
    for alike in kinds.values():
        times: FloatArray = np.array([float(one.latency_ns or 0) for one in alike])
        limit = _STALL_RATIO * float(np.median(times))
        yield from (one for one, time in zip(alike, times, strict=True) if time <= limit)
