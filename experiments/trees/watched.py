"""Notes on a tree policy: what the drafter said, what was believed, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import (
    Change,
    FloatArray,
    IntArray,
    NodeOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report
from acclimate.controller.tree_policy import TreePolicy

BoolArray = npt.NDArray[np.bool_]


class Notes(NamedTuple):
    """Verified nodes of one domain, shape (m,) each, and sums over its requests' steps.

    ``said`` and ``believed`` are survival by the drafter and by the policy, ``taken`` whether the
    path to the node was committed, ``parent`` the index of the node in front, -1 for none, and
    ``family`` a number that the children of one node share; ``expected`` and ``written`` are tokens
    per step, summed.
    """

    said: FloatArray
    believed: FloatArray
    taken: BoolArray
    parent: IntArray
    family: IntArray
    steps: int
    verified: int
    expected: float
    written: int


class WatchedTrees:
    """Hands everything to a policy, and keeps notes that the policy does not see.

    Parameters
    ----------
    policy
        Decides and learns.
    """

    def __init__(self, policy: TreePolicy) -> None:
        self.policy = policy
        self.name = policy.name
        self._domains: dict[int, str] = {}
        self._planned: dict[int, tuple[FloatArray, FloatArray]] = {}
        self._rows: dict[str, list[tuple[FloatArray, FloatArray, IntArray, IntArray]]] = {}
        self._sums: dict[str, FloatArray] = {}

    def notes(self) -> dict[str, Notes]:
        """Return what was noted, by domain."""
        found = {}
        for domain, rows in sorted(self._rows.items()):
            sizes = [row[0].shape[0] for row in rows]
            begins = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
            said, believed, taken, above = (
                np.concatenate(column) for column in zip(*rows, strict=True)
            )
            parent = np.where(above < 0, -1, above + begins)
            # Roots have the place of their tree instead of a parent's.
            family = np.where(above < 0, -1 - begins, parent)
            steps, verified, expected, written = self._sums[domain].tolist()
            found[domain] = Notes(
                said, believed, taken > 0, parent, family, int(steps), int(verified), expected,
                int(written),
            )  # fmt: skip
        return found

    def admit(self, request: RequestInfo) -> None:
        """Take note of a request."""
        self._domains[request.request] = request.domain
        self.policy.admit(request)

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        tree = context.candidates
        if tree is not None and tree.request.size:
            self._planned = {
                context.step: (tree.survival, self.policy.beliefs.survival(context, tree))
            }
        return self.policy.plan(context)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step."""
        planned = self._planned.pop(outcome.step, None)
        if outcome.nodes is not None:
            self._note(outcome, outcome.nodes, planned)
        return self.policy.observe(outcome)

    def declare(self, change: Change) -> None:
        """Take note of a change-point."""
        self.policy.declare(change)

    def forget(self, request: int) -> None:
        """Drop a request."""
        self._domains.pop(request, None)
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

    def _note(
        self,
        outcome: StepOutcome,
        nodes: NodeOutcomes,
        planned: tuple[FloatArray, FloatArray] | None,
    ) -> None:
        for row, number in enumerate(outcome.requests.tolist()):
            domain = self._domains.get(number, "")
            own = np.flatnonzero((nodes.request == row) & (nodes.verified > 0))
            taken = nodes.accepted[own]
            expected = 1.0
            if planned is not None and own.size:
                said, believed = planned[0][own], planned[1][own]
                place = np.full(nodes.parent.shape[0] + 1, -1)
                place[own] = np.arange(own.shape[0])
                above = place[nodes.parent[own]]
                self._rows.setdefault(domain, []).append((said, believed, taken, above))
                expected += float(believed.sum())
            sums = self._sums.setdefault(domain, np.zeros(4))
            sums += (1.0, own.size, expected, 1.0 + float(taken.sum()))
