"""Notes on the shape of chosen trees over time: depth, width, nodes, and tokens per request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report
from acclimate.controller.trees import sibling_ranks


class ShapeNote(NamedTuple):
    """One step: engine time, requests, and means over requests.

    ``depth`` is that of the deepest chosen node, ``width`` the most children chosen of one node,
    ``nodes`` how many were chosen, ``tokens`` how many were committed.
    """

    now_s: float
    requests: int
    depth: float
    width: float
    nodes: float
    tokens: float


class ShapeLog:
    """Hands everything to a policy, and notes the shape of what it chooses.

    Parameters
    ----------
    policy
        Decides and learns.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.name = policy.name
        self.notes: list[ShapeNote] = []
        self.alarms: list[Alarm] = []
        self._shape = (0.0, 0.0, 0.0)

    def admit(self, request: RequestInfo) -> None:
        """Take note of a request."""
        self.policy.admit(request)

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        plan = self.policy.plan(context)
        n, tree, kept = context.requests.shape[0], context.candidates, plan.kept
        self._shape = (0.0, 0.0, 0.0)
        if n and tree is not None and kept is not None and kept.size:
            widest = np.zeros(n)
            ranks = sibling_ranks(tree.request, tree.parent, n)[kept]
            np.maximum.at(widest, tree.request[kept], ranks + 1.0)
            self._shape = (
                float(plan.verify_lens.mean()), float(widest.mean()), kept.shape[0] / n,
            )  # fmt: skip
        return plan

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step."""
        n = outcome.decode_requests
        tokens = float(outcome.committed.sum()) / max(n, 1)
        self.notes.append(ShapeNote(outcome.now_ns / 1e9, n, *self._shape, tokens))
        alarms = self.policy.observe(outcome)
        self.alarms += alarms
        return alarms

    def declare(self, change: Change) -> None:
        """Take note of a change-point."""
        self.policy.declare(change)

    def forget(self, request: int) -> None:
        """Drop a request."""
        self.policy.forget(request)

    def report(self) -> Report:
        """Return the policy's account."""
        return self.policy.report()

    def state(self) -> dict[str, Any]:
        """Return the policy's state; notes are no part of it."""
        return self.policy.state()

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.policy.load(state)


def thin(notes: Sequence[ShapeNote], points: int) -> dict[str, list[float]]:
    """Return notes as columns, in ``points`` means over equally many steps at most.

    >>> notes = [ShapeNote(float(i), 1, 2.0, 1.0, 2.0, 1.5) for i in range(10)]
    >>> thin(notes, 5)["now_s"]
    [0.5, 2.5, 4.5, 6.5, 8.5]
    """
    if not notes:
        return {name: [] for name in ShapeNote._fields}
    table = np.array(notes, dtype=np.float64)
    parts = np.array_split(table, min(points, table.shape[0]))
    means = np.array([part.mean(axis=0) for part in parts])
    return {name: means[:, i].tolist() for i, name in enumerate(ShapeNote._fields)}
