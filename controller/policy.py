"""What a live engine, a replay and a simulator know of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from acclimate.controller.records import (
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report


@runtime_checkable
class Policy(Protocol):
    """Decides each step and learns from what came of it.

    A policy is built with its `Capabilities` and a seed; it reads no clock and no global
    generator. `plan` must not learn and `observe` must not decide. The same inputs in the same
    order give the same plans.
    """

    name: str

    def admit(self, request: RequestInfo) -> None:
        """Take note of a request before any context names it."""

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step, and return what was noticed."""

    def declare(self, change: Change) -> None:
        """Take note of a change-point that somebody announces."""

    def forget(self, request: int) -> None:
        """Drop what is kept of a request."""

    def report(self) -> Report:
        """Return an account for people and trackers; called about once a second."""

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs, as plain data (numbers, strings, lists, dicts)."""

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
