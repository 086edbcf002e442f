"""A policy under observation: what it believed and how good its shapes were, beside the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Capabilities,
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report
from acclimate.experiments.lab.recovery import RecoveryMeter, survival_beliefs
from acclimate.experiments.lab.shape import shape_share
from acclimate.experiments.simulation.truth import Truth

_SAMPLE_NS = 50_000_000


class WatchedPolicy:
    """Hands everything to a policy, and keeps notes that the policy does not see.

    Parameters
    ----------
    policy
        Decides and learns.
    meter
        Compares beliefs with the truth.
    capabilities, truth
        Of the engine; shapes are judged by them, every 50 ms at most.

    Notes
    -----
    ``shapes`` holds the time in seconds and `shape_share` of each sample.
    """

    def __init__(
        self, policy: Policy, meter: RecoveryMeter, capabilities: Capabilities, truth: Truth
    ) -> None:
        self.name = policy.name
        self.policy = policy
        self.meter = meter
        self.shapes: list[tuple[float, float]] = []
        self._capabilities = capabilities
        self._truth = truth
        self._sample_ns = 0

    def admit(self, request: RequestInfo) -> None:
        """Take note of a request."""
        self.policy.admit(request)

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        plan = self.policy.plan(context)
        plain = context.requests.size and not context.prefill_forecast_tokens
        if plain and context.now_ns >= self._sample_ns:
            self._sample_ns = context.now_ns + _SAMPLE_NS
            share = shape_share(plan, context, self._capabilities, self._truth)
            self.shapes.append((context.now_ns / 1e9, share))
        return plan

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step."""
        now_s = outcome.now_ns / 1e9
        if not outcome.exempt:
            beliefs = survival_beliefs(self.policy, self._capabilities.max_depth)
            self.meter.grade(beliefs, outcome.drafts, now_s)
        alarms = self.policy.observe(outcome)
        self.meter.notice(alarms, now_s)
        return alarms

    def declare(self, change: Change) -> None:
        """Take note of a change-point."""
        self.policy.declare(change)

    def forget(self, request: int) -> None:
        """Drop what is kept of a request."""
        self.policy.forget(request)

    def report(self) -> Report:
        """Return the policy's account of itself."""
        return self.policy.report()

    def state(self) -> dict[str, Any]:
        """Return the policy's state."""
        return self.policy.state()

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.policy.load(state)
