"""Feeds a trace's inputs to the policies it names, and compares what they decide with the log."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import (
    AddEvent,
    AlarmEvent,
    ConfigEvent,
    DeclareEvent,
    Event,
    FreeEvent,
    GapEvent,
    GuardEvent,
    ObserveEvent,
    PlanEvent,
    ReportEvent,
    SnapshotEvent,
)
from acclimate.controller.policy import Policy
from acclimate.controller.reasons import Stock
from acclimate.controller.records import Capabilities
from acclimate.controller.reports import Alarm
from acclimate.experiments.replay.difference import equal, plan_difference
from acclimate.experiments.replay.verify_result import VerifyResult
from acclimate.integrations.trace_format import TokensRecord
from acclimate.integrations.trace_reader import read_trace

PolicyFactory = Callable[[ControlConfig, Capabilities], Policy]


def verify(
    path: str | os.PathLike[str], *, policies: Mapping[str, PolicyFactory] | None = None
) -> VerifyResult:
    """Recompute every decision of a trace and compare.

    Parameters
    ----------
    path
        The trace, or one segment of it.
    policies
        Factories of policies other than ``adaptive`` and ``static:K``, by the name in the trace. A
        trace is data: what it names is never imported.

    Raises
    ------
    FileNotFoundError
        There is no such trace.
    ValueError
        The file is no trace, of a newer schema, or damaged inside.
    """
    trace = read_trace(path)
    result = verify_events(trace, trace.header.engine.capabilities, policies=policies)
    result.truncated_lines = trace.truncated_lines
    return result


def verify_events(
    events: Iterable[Event | TokensRecord],
    capabilities: Capabilities,
    *,
    policies: Mapping[str, PolicyFactory] | None = None,
) -> VerifyResult:
    """Recompute every decision of an event log that is at hand, and compare.

    Examples
    --------
    >>> from acclimate.controller.events import EventQueue
    >>> from acclimate.controller.loop import ControlLoop
    >>> from acclimate.controller.static import StaticPolicy
    >>> engine = Capabilities(max_depth=2, depths=(0, 1, 2))
    >>> loop = ControlLoop(
    ...     StaticPolicy(1, engine), engine, ControlConfig(policy="static:1"), clock_ns=lambda: 0)
    >>> queue = EventQueue()
    >>> loop.attach(queue)
    >>> verify_events(queue.take(), engine).events.total()
    2
    """
    replay = _Replay(capabilities, policies or {})
    for event in events:
        replay.feed(event)
    replay.settle_alarms()
    return replay.result


class _Replay:
    """The state of a replay: in step with the log, or waiting for a snapshot and saying why."""

    def __init__(self, capabilities: Capabilities, policies: Mapping[str, PolicyFactory]) -> None:
        self.result = VerifyResult()
        self._capabilities = capabilities
        self._factories = policies
        self._config: ControlConfig | None = None
        self._policy: Policy | None = None
        self._why_not = "before the first snapshot"
        self._tripped = False
        self._covered_to = -1
        self._alarms: deque[Alarm] | None = None  # None: unknown what was due
        self._config_fault = "no configuration before the snapshot"

    def feed(self, event: Event | TokensRecord) -> None:
        """Apply an input, or compare an output."""
        if isinstance(event, TokensRecord):
            self.result.events["tokens"] += 1
            return
        self.result.events[str(event.__struct_config__.tag)] += 1
        if isinstance(event, AlarmEvent):
            self._compare_alarm(event)
            return
        if isinstance(event, (PlanEvent, ObserveEvent)):
            self.settle_alarms()
        match event:
            case ConfigEvent():
                self._configure(event)
            case SnapshotEvent():
                self._resume(event)
            case GapEvent():
                self._lose("events lost in a gap")
                self._tripped = False
            case GuardEvent():
                self._tripped = event.stock not in (None, Stock.LATE)
                if self._tripped:
                    self._lose(f"guard: {event.stock}")
            case PlanEvent():
                self._compare_plan(event)
            case _:
                self._apply(event)

    def _configure(self, event: ConfigEvent) -> None:
        try:
            self._config = ControlConfig.read(event.config)
        except ValueError as error:
            self._config = None
            self._config_fault = f"configuration not understood: {error}"

    def _resume(self, event: SnapshotEvent) -> None:
        if self._tripped:
            return  # taken while the policy was in doubt; another follows when it is back
        in_step = self._policy is not None
        if self._config is None:
            self._lose(self._config_fault)
            return
        try:
            self._policy = self._build(event.policy, self._config)
        except ValueError:
            self._lose(f"unknown policy {event.policy!r}")
            return
        try:
            self._policy.load(event.state)
        except Exception as error:
            self._lose(f"state of {event.policy!r} cannot be loaded: {error}")
            return
        self._covered_to = event.seq
        if not in_step:
            self._alarms = None

    def _build(self, name: str, config: ControlConfig) -> Policy:
        factory = self._factories.get(name)
        if factory is not None:
            return factory(config, self._capabilities)
        if name != "adaptive" and not name.startswith("static:"):
            raise ValueError(f"policy must be known here, got {name!r}")
        return build_policy(config.model_copy(update={"policy": name}), self._capabilities)

    def _lose(self, why: str) -> None:
        self._policy = None
        self._why_not = why
        self._alarms = None

    def _apply(self, event: Event) -> None:
        """Feed an input that carries no output."""
        policy = self._policy
        if policy is None or event.seq < self._covered_to:
            if isinstance(event, ObserveEvent):
                self._alarms = None
            return
        try:
            match event:
                case AddEvent():
                    policy.admit(event.request)
                case ObserveEvent():
                    self._alarms = deque(policy.observe(event.outcome))
                case FreeEvent():
                    policy.forget(event.request)
                case DeclareEvent():
                    policy.declare(event.change)
                case ReportEvent():
                    policy.report()
                case _:
                    pass
        except Exception as error:
            kind = event.__struct_config__.tag
            self._differ(f"event {event.seq} ({kind}): logged as fine, but raised {error!r} here")
            self._lose("the policy raised in the replay")

    def _compare_plan(self, event: PlanEvent) -> None:
        self.result.decisions += 1
        policy = self._policy
        if policy is None:
            self.result.skipped[self._why_not] += 1
            return
        if event.seq < self._covered_to:
            self.result.skipped["already part of a snapshot"] += 1
            return
        self.result.policies[policy.name] += 1
        logged = event.decision
        try:
            again = policy.plan(event.context)
        except Exception as error:
            self._differ(
                f"event {event.seq}, step {logged.step}: {policy.name} logged a decision, "
                f"but raised {error!r} here"
            )
            return
        difference = plan_difference(logged, again)
        if difference is None:
            self.result.identical += 1
        else:
            self._differ(
                f"event {event.seq}, step {logged.step}, {policy.name} at "
                f"{event.context.requests.size} decoding requests: {difference}"
            )

    def _compare_alarm(self, event: AlarmEvent) -> None:
        if self._alarms is None:
            return
        self.result.alarms += 1
        if not self._alarms:
            self._differ(f"event {event.seq}: an alarm was logged that is not raised here")
            return
        again = self._alarms.popleft()
        wrong = [
            f"{name} was {getattr(event.alarm, name)!r}, is {getattr(again, name)!r} here"
            for name in event.alarm.__struct_fields__
            if not equal(getattr(event.alarm, name), getattr(again, name))
        ]
        if wrong:
            self._differ(f"event {event.seq}, alarm: {'; '.join(wrong)}")
        else:
            self.result.identical_alarms += 1

    def settle_alarms(self) -> None:
        """Count alarms that were raised here and never logged."""
        if self._alarms:
            self.result.alarms += len(self._alarms)
            self._differ(f"an alarm is raised here that was not logged: {self._alarms[0]}")
            self._alarms.clear()

    def _differ(self, sentence: str) -> None:
        if self.result.first_difference is None:
            self.result.first_difference = sentence
