"""What outlives an engine: the parts of a policy's state that a later life can begin with.

Requests, steps under way, clocks and budgets belong to the life that ended.
"""

from __future__ import annotations

from typing import Any

from acclimate.controller.beliefs import Beliefs
from acclimate.controller.policy import Policy
from acclimate.predictors.latency import StepLatency
from acclimate.predictors.watched_latency import WatchedLatency

ACCEPTANCE = "acceptance"
"""Acceptance and draft lengths, with the traffic classes that they are of."""
STEP_TIMES = "step_times"
"""How long steps take."""

_ACCEPTANCE_PARTS = ("slots", "acceptance", "lengths")
_WORTH_STEPS = 200  # fewer say nothing of a machine


def parts_of(policy: Policy) -> tuple[str, ...]:
    """Return the parts that a policy can begin with, in the order in which it should."""
    parts = []
    if isinstance(getattr(policy, "beliefs", None), Beliefs):
        parts.append(ACCEPTANCE)
    if isinstance(getattr(policy, "latency", None), StepLatency):
        parts.append(STEP_TIMES)
    return tuple(parts)


def kept_of(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts of a `Policy.state` that are worth keeping, none if it is another policy's.

    Examples
    --------
    >>> kept_of({"depth": 3}), list(kept_of({"latency": {"steps": 500}}))
    ({}, ['step_times'])
    """
    beliefs = state.get("beliefs")
    if not isinstance(beliefs, dict):
        beliefs = state
    kept = {}
    if beliefs is not state and all(name in beliefs for name in _ACCEPTANCE_PARTS):
        kept[ACCEPTANCE] = {name: beliefs[name] for name in _ACCEPTANCE_PARTS}
    latency = beliefs.get("latency")
    if isinstance(latency, dict) and latency.get("steps", 0) >= _WORTH_STEPS:
        kept[STEP_TIMES] = latency
    return kept


def begin_with(policy: Policy, part: str, state: dict[str, Any]) -> None:
    """Begin with a part of an earlier life, as after a change that was declared.

    Every class keeps its best guess, with little weight: what was served since is not known. New
    classes begin as their pool does. Step times keep their shape; the pace of all is measured anew,
    since clocks and neighbours may be others than then.

    Parameters
    ----------
    policy
        One that has seen nothing yet, and of whose `parts_of` this is.
    part, state
        As `kept_of` gave them, or as a stranger's file did.

    Raises
    ------
    ValueError, KeyError, TypeError
        It is of other sizes, or damaged; the policy is then of no use.
    """
    if part == ACCEPTANCE:
        _begin_acceptance(policy.beliefs, state)  # type: ignore[attr-defined]
        return
    latency = policy.latency  # type: ignore[attr-defined]
    if state.keys() != latency.state().keys():
        raise ValueError(
            f"step times must hold {', '.join(latency.state())}, got {', '.join(state)}"
        )
    latency.load(state)
    latency.check()
    if isinstance(latency, WatchedLatency):
        latency.expect_change()


def _begin_acceptance(beliefs: Beliefs, state: dict[str, Any]) -> None:
    beliefs.slots.load(state["slots"])
    beliefs.slots.vacate()
    beliefs.acceptance.load(state["acceptance"])
    beliefs.lengths.load(state["lengths"])
    beliefs.make_room()
    beliefs.shake()
