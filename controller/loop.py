"""The loop: ask the policy, guard the answer, feed back what came of it, log every event."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import (
    AddEvent,
    AlarmEvent,
    DeclareEvent,
    EventQueue,
    FreeEvent,
    GuardEvent,
    ObserveEvent,
    PlanEvent,
    PreemptEvent,
    ReportEvent,
)
from acclimate.controller.guard import Guard, plan_fault
from acclimate.controller.journal import Journal
from acclimate.controller.policy import Policy
from acclimate.controller.reasons import Stock
from acclimate.controller.records import (
    Capabilities,
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Report, ShadowReport
from acclimate.controller.shadow import ShadowAccount

_REPORT_INTERVAL_NS = 1_000_000_000


@dataclasses.dataclass(slots=True)
class LoopCounters:
    """What happened so far, in counts that only rise."""

    steps: int = 0
    stock_steps: int = 0
    shadow_steps: int = 0
    depth_switches: int = 0
    probes: int = 0
    outcomes: int = 0
    late_calls: int = 0
    faults: int = 0
    violations: int = 0
    alarms: int = 0


class ControlLoop:
    """One engine's feedback loop around a `Policy`.

    The engine's side calls `admit`, then per step `plan` and `observe`, and `preempt` or `forget`
    when a request loses its place or ends. Nothing here waits, locks or does I/O; no fault of the
    policy leaves it.

    Parameters
    ----------
    policy
        Decides and learns.
    capabilities
        What the engine allows; a plan outside it counts as a fault.
    config
        The configuration in force.
    clock_ns
        A monotonic clock in nanoseconds.
    log
        Gets one line per guard event.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> config = ControlConfig(policy="static:2")
    >>> loop = ControlLoop(build_policy(config, engine), engine, config, clock_ns=lambda: 0)
    >>> context = StepContext(
    ...     step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
    ...     requests=int_array([1, 2]), drafts=int_array([4, 1]), committed=int_array([9, 9]),
    ...     context_tokens=int_array([50, 60]), tokens_left=int_array([40, 40]))
    >>> loop.plan(context).verify_lens.tolist()
    [2, 1]
    """

    def __init__(
        self,
        policy: Policy,
        capabilities: Capabilities,
        config: ControlConfig,
        *,
        clock_ns: Callable[[], int],
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.policy = policy
        self.capabilities = capabilities
        self.config = config
        self.clock_ns = clock_ns
        self.counters = LoopCounters()
        self.depth: int | None = None
        self.config_version = 1
        self.stock: Stock | None = None
        self._guard = Guard(config.guard)
        self._log = log
        self._journal = Journal(
            policy=lambda: self.policy,
            config=lambda: (self.config_version, self.config.model_dump()),
            failed=self._state_failed,
        )
        self._snapshot_due = False
        self._report_due_ns = 0
        self._shadow = self._shadow_account()

    # --- called by the engine's side, per step -------------------------------------------------

    def plan(self, context: StepContext) -> StepPlan | None:
        """Decide one step; None means that the engine's own rule acts in it.

        In shadow mode it always acts; what was decided is recorded and accounted for.
        """
        begun_ns = self.clock_ns()
        self.counters.steps += 1
        stock = self._guard.stock(begun_ns)
        if stock is not self.stock:
            self._turn(stock, begun_ns)
        if stock is not None:
            self.counters.stock_steps += 1
            return None
        if self._snapshot_due:
            self._snapshot_due = False
            self._journal.snapshot()
        try:
            plan = self.policy.plan(context)
            fault = plan_fault(plan, context, self.capabilities)
        except Exception as error:
            self._fault(Stock.ERROR, f"plan raised {type(error).__name__}: {error}")
            return None
        if fault is not None:
            self._fault(Stock.INVALID, fault)
            return None
        self._journal.write(PlanEvent, context=context, decision=plan)
        if self.depth is not None and plan.depth != self.depth:
            self.counters.depth_switches += 1
        self.depth = plan.depth
        self.counters.probes += plan.explored
        self._check_time(begun_ns, "plan")
        if self._shadow is not None:
            self._shadow.expect(plan)
            self.counters.shadow_steps += 1
            return None
        return plan

    def observe(self, outcome: StepOutcome) -> None:
        """Feed back what came of a step."""
        self.counters.outcomes += 1
        if self._guard.tripped:
            return
        begun_ns = self.clock_ns()
        try:
            alarms = self.policy.observe(outcome)
            if self._shadow is not None:
                self._shadow.settle(outcome)
            due = bool(self._journal) and outcome.now_ns >= self._report_due_ns
            report = self._report() if due else None
        except Exception as error:
            self._fault(Stock.ERROR, f"observe raised {type(error).__name__}: {error}")
            return
        self._journal.write(ObserveEvent, outcome=outcome)
        for alarm in alarms:
            self._journal.write(AlarmEvent, alarm=alarm)
        if report is not None:
            self._report_due_ns = outcome.now_ns + _REPORT_INTERVAL_NS
            self._journal.write(ReportEvent, now_ns=outcome.now_ns, report=report)
        self.counters.alarms += len(alarms)
        self._check_time(begun_ns, "observe")

    # --- called by the engine's side, now and then ---------------------------------------------

    def admit(self, request: RequestInfo) -> None:
        """A request arrived."""
        self._call("admit", lambda: self.policy.admit(request))
        self._journal.write(AddEvent, request=request)

    def forget(self, request: int) -> None:
        """A request ended: finished or aborted."""
        self._call("forget", lambda: self.policy.forget(request))
        self._journal.write(FreeEvent, request=request)

    def preempt(self, request: int) -> None:
        """A request lost its place; its drafts are gone, what was learned of it stays."""
        self._journal.write(PreemptEvent, request=request)

    def declare(self, change: Change) -> None:
        """Somebody announces a change-point."""
        self._call("declare", lambda: self.policy.declare(change))
        self._journal.write(DeclareEvent, change=change)

    def violation(self, detail: str) -> None:
        """The engine did not do what was asked: back off.

        While the policy is held back already, the plan was made before: it is the same incident.
        """
        self.counters.violations += 1
        if not self._guard.tripped:
            self._fault(Stock.VIOLATION, detail)

    # --- called by an operator -----------------------------------------------------------------

    def reload(self, config: ControlConfig) -> None:
        """Put a configuration into force; what was learned stays if the policy stays.

        Raises
        ------
        ValueError
            The configuration names no usable policy; the old one stays in force.
        """
        policy = build_policy(config, self.capabilities)
        if policy.name == self.policy.name and not self._guard.tripped:
            policy.load(self.policy.state())
        self.policy = policy
        self.config = config
        self.config_version += 1
        self._shadow = self._shadow_account()
        self._guard.reset(config.guard)
        self._journal.start()

    def replace_policy(self, policy: Policy) -> None:
        """Let another policy act from the next step on (experiments swap arms this way)."""
        self.policy = policy
        self._journal.snapshot()

    def attach(self, queue: EventQueue) -> None:
        """Send events to a sink's queue from now on, beginning with configuration and state."""
        self._journal.attach(queue)

    def detach(self, queue: EventQueue) -> None:
        """Send no more events to a queue; what is in it stays. An unknown queue is no error."""
        self._journal.detach(queue)

    def status(self) -> dict[str, Any]:
        """Return counters and state for people and metrics."""
        shadow = self.shadow
        return {
            **dataclasses.asdict(self.counters),
            "depth": self.depth,
            "policy": self.policy.name,
            "blocked_by": None if self.stock is None else str(self.stock),
            "config_version": self.config_version,
            "lost_events": self._journal.lost,
            "shadow_speed_ratio": shadow and shadow.speed_ratio,
        }

    @property
    def shadow(self) -> ShadowReport | None:
        """What the plans would have made, in shadow mode and after the first step."""
        return None if self._shadow is None else self._shadow.report()

    # --- inside --------------------------------------------------------------------------------

    def _call(self, what: str, call: Callable[[], None]) -> None:
        if self._guard.tripped:
            # The policy's state is in doubt; it still learns who comes and goes, quietly.
            try:
                call()
            except Exception:
                self.counters.faults += 1
            return
        begun_ns = self.clock_ns()
        try:
            call()
        except Exception as error:
            self._fault(Stock.ERROR, f"{what} raised {type(error).__name__}: {error}")
            return
        self._check_time(begun_ns, what)

    def _report(self) -> Report:
        report = self.policy.report()
        shadow = self.shadow
        return report if shadow is None else msgspec.structs.replace(report, shadow=shadow)

    def _shadow_account(self) -> ShadowAccount | None:
        if not self.config.shadow:
            return None
        return ShadowAccount(
            self.capabilities.max_depth, window_steps=self.config.learn.latency_window_steps
        )

    def _check_time(self, begun_ns: int, what: str) -> None:
        took_ns = self.clock_ns() - begun_ns
        if self._guard.is_late(took_ns):
            self.counters.late_calls += 1
            self._guard.late()
            self._log(f"late: {what} took {took_ns / 1e6:.0f} ms; the next step is stock")

    def _fault(self, stock: Stock, detail: str) -> None:
        now_ns = self.clock_ns()
        self.counters.faults += 1
        self._guard.trip(stock, now_ns)
        self._log(f"{stock}: {detail}; the engine's own rule acts (trip {self._guard.trips})")
        self.stock = self._guard.stock(now_ns)
        self._snapshot_due = True
        self._journal.write(GuardEvent, now_ns=now_ns, stock=str(self.stock), detail=detail)

    def _turn(self, stock: Stock | None, now_ns: int) -> None:
        self.stock = stock
        why = None if stock is None else str(stock)
        self._journal.write(GuardEvent, now_ns=now_ns, stock=why)

    def _state_failed(self, error: Exception) -> None:
        self.counters.faults += 1
        self._log(f"state raised {type(error).__name__}: {error}; the trace has a gap")
