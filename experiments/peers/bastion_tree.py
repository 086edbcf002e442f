"""BASTION: add the likeliest node while it earns more than its share of the step's time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepOutcome, StepPlan
from acclimate.controller.reports import Alarm
from acclimate.controller.step_time import learn_time
from acclimate.experiments.peers.tree_base import TreePeer, best_first, said_survival
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS, _MAX_VERIFIED = 512, 8_192


class BastionTree(TreePeer):
    """Stops at the first node with p_new · (T so far) <= P_sum · ΔT.

    Nodes are added best first over all requests, by the drafter's own probabilities; P_sum are the
    tokens expected so far, one per request included, T the step's time with the nodes so far and ΔT
    what the next one adds. The stop is greedy: behind a cliff of the step time nobody looks.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    profile
        Step times; None: they are learned while serving.
    """

    FOLLOWS: ClassVar[str] = "BASTION, its greedy stop"
    name = "bastion_tree"

    def __init__(self, capabilities: Capabilities, *, profile: StepTime | None = None) -> None:
        super().__init__(capabilities)
        self.profile = profile
        self._latency = StepLatency(_MAX_REQUESTS, _MAX_VERIFIED)

    def plan(self, context: StepContext) -> StepPlan:
        """Add nodes until one does not pay."""
        tree, n = context.candidates, context.requests.shape[0]
        order = np.zeros(0, dtype=np.int64)
        if tree is not None and n:
            survival = said_survival(tree, n)
            order = best_first(survival)
            order = order[: greedy_stop(survival[order], self._curve(n, order.shape[0]), n)]
        return self.make_tree_plan(
            context,
            order,
            depth=self.capabilities.max_depth,
            width=self.capabilities.max_width,
        )

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn step times, unless there is a profile."""
        if self.profile is None:
            learn_time(self._latency, outcome)
        return ()

    def state(self) -> dict[str, Any]:
        """Return the step times that were learned."""
        return {"latency": self._latency.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._latency.load(state["latency"])

    def _curve(self, requests: int, nodes: int) -> np.ndarray:
        if self.profile is not None:
            return self.profile.curve(StepMakeUp(requests, nodes))
        return self._latency.curve(requests, nodes)


def greedy_stop(survival: np.ndarray, milliseconds: np.ndarray, requests: int) -> int:
    """Return how many of the best nodes are added before one does not pay.

    Parameters
    ----------
    survival
        Shape (m,), falling.
    milliseconds
        Shape (>= m + 1,): a step with 0, 1, … verified nodes.

    Examples
    --------
    >>> greedy_stop(np.array([0.8, 0.3, 0.1]), np.array([10.0, 11.0, 12.0, 13.0]), 1)
    2
    """
    expected = float(requests)
    last = int(min(survival.shape[0], milliseconds.shape[0] - 1))
    for count in range(last):
        so_far, more = float(milliseconds[count]), float(milliseconds[count + 1])
        if survival[count] * so_far <= expected * (more - so_far):
            return count
        expected += float(survival[count])
    return last


def build(config: ControlConfig, capabilities: Capabilities) -> BastionTree:
    """Return the peer; it learns step times while serving."""
    return BastionTree(capabilities)
