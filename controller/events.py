"""The event log of a control loop: inputs, from which every output can be recomputed.

Inputs are ``add, observe, free, preempt, declare, config, guard, gap, snapshot`` and the context
inside a ``plan`` event; outputs are the decision inside a ``plan`` event, ``alarm`` and ``report``. Each event
has a sequence number; a segment starts with a snapshot.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from acclimate.controller.records import (
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report


class AddEvent(msgspec.Struct, frozen=True, tag="add", tag_field="kind"):
    """A request arrived."""

    seq: int
    request: RequestInfo


class PlanEvent(msgspec.Struct, frozen=True, tag="plan", tag_field="kind"):
    """A policy was asked (the context, an input) and answered (the decision, an output)."""

    seq: int
    context: StepContext
    decision: StepPlan


class ObserveEvent(msgspec.Struct, frozen=True, tag="observe", tag_field="kind"):
    """An outcome was learned from."""

    seq: int
    outcome: StepOutcome


class FreeEvent(msgspec.Struct, frozen=True, tag="free", tag_field="kind"):
    """A request ended: finished or aborted."""

    seq: int
    request: int


class PreemptEvent(msgspec.Struct, frozen=True, tag="preempt", tag_field="kind"):
    """A request lost its place and its drafts."""

    seq: int
    request: int


class DeclareEvent(msgspec.Struct, frozen=True, tag="declare", tag_field="kind"):
    """A change-point was declared."""

    seq: int
    change: Change


class ConfigEvent(msgspec.Struct, frozen=True, tag="config", tag_field="kind"):
    """A configuration came into force, as plain data; ``version`` counts from 1."""

    seq: int
    version: int
    config: dict[str, Any]


class GuardEvent(msgspec.Struct, frozen=True, tag="guard", tag_field="kind"):
    """The guard tripped (``stock`` is a word of `reasons.Stock`) or released (``stock`` is None)."""

    seq: int
    now_ns: int
    stock: str | None
    detail: str = ""


class GapEvent(msgspec.Struct, frozen=True, tag="gap", tag_field="kind"):
    """Events were lost between here and the next snapshot."""

    seq: int
    lost: int


class SnapshotEvent(msgspec.Struct, frozen=True, tag="snapshot", tag_field="kind"):
    """The whole state of the policy, as plain data (`Policy.state`)."""

    seq: int
    policy: str
    state: dict[str, Any]


class AlarmEvent(msgspec.Struct, frozen=True, tag="alarm", tag_field="kind"):
    """A policy noticed a change."""

    seq: int
    alarm: Alarm


class ReportEvent(msgspec.Struct, frozen=True, tag="report", tag_field="kind"):
    """A policy's account of itself, about once a second."""

    seq: int
    now_ns: int
    report: Report


Event = (
    AddEvent
    | PlanEvent
    | ObserveEvent
    | FreeEvent
    | PreemptEvent
    | DeclareEvent
    | ConfigEvent
    | GuardEvent
    | GapEvent
    | SnapshotEvent
    | AlarmEvent
    | ReportEvent
)


class EventQueue:
    """A bounded hand-over from the step to one sink's thread, without a lock and without waiting.

    When it is full, new events are refused and counted until the consumer has taken everything;
    the producer then learns from `overflowed` that a gap and a snapshot are due.

    Parameters
    ----------
    capacity
        Events held at most.
    snapshots
        Whether the consumer needs the policy's state at the start and after a gap.

    Examples
    --------
    >>> queue = EventQueue(capacity=1)
    >>> queue.put(FreeEvent(seq=1, request=7)), queue.put(FreeEvent(seq=2, request=8))
    (True, False)
    >>> len(queue.take()), queue.lost
    (1, 1)
    """

    def __init__(self, capacity: int = 20_000, *, snapshots: bool = True) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1, got {capacity}")
        self.capacity = capacity
        self.snapshots = snapshots
        self.snapshot_wanted = False
        self.lost = 0
        self._reported = 0
        self._events: deque[Event] = deque()
        self._refusing = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> bool:
        """Append and return True, or count the event as lost and return False."""
        if self._refusing or len(self._events) >= self.capacity:
            self._refusing = True
            self.lost += 1
            return False
        self._events.append(event)
        return True

    @property
    def overflowed(self) -> bool:
        """Whether events were lost since the last `resume`, with room again for more."""
        return self._refusing and len(self._events) < self.capacity // 2

    def resume(self, *, dropped: int = 0) -> int:
        """Accept events again; return how many were lost since the last time, ``dropped`` included."""
        self._refusing = False
        self.lost += dropped
        lost, self._reported = self.lost - self._reported, self.lost
        return lost

    def take(self, at_most: int | None = None) -> list[Event]:
        """Remove and return events in order; called by the consumer only."""
        count = len(self._events) if at_most is None else min(at_most, len(self._events))
        return [self._events.popleft() for _ in range(count)]
