"""The oracle of trees: our objective with true survival and step time, nothing learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from acclimate.controller.records import (
    Capabilities,
    FloatArray,
    RequestInfo,
    StepContext,
    StepPlan,
)
from acclimate.controller.select import select
from acclimate.controller.trees import path_survival
from acclimate.experiments.peers.tree_base import TreePeer
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime

Truth = Callable[[str, FloatArray], FloatArray]
"""P(a node is accepted | its parent was), by domain and what the drafter said."""

_WINDOW_STEPS = 100.0


class OracleTree(TreePeer):
    """Verifies the nodes that maximise tokens at the price of time, knowing survival and T.

    The price is the rate of its own recent steps by the truth, the fixed point of Dinkelbach's
    method. Drafts are taken as they come, at full depth and width.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    truth
        What a drafter's probability is worth in a domain, now.
    step_time
        How long a step takes.
    """

    FOLLOWS: ClassVar[str] = "price of time with true survival and step time"
    name = "oracle_tree"

    def __init__(self, capabilities: Capabilities, truth: Truth, step_time: StepTime) -> None:
        super().__init__(capabilities)
        self.truth = truth
        self.step_time = step_time
        self.tokens = self.busy_ms = 0.0
        self._domains: dict[int, str] = {}

    def admit(self, request: RequestInfo) -> None:
        """Note the request's domain."""
        self._domains[request.request] = request.domain

    def forget(self, request: int) -> None:
        """Drop the request."""
        self._domains.pop(request, None)

    def plan(self, context: StepContext) -> StepPlan:
        """Choose by the truth."""
        n, most = context.requests.shape[0], self.capabilities
        tree = context.candidates
        kept = np.zeros(0, dtype=np.int64)
        if tree is not None and n:
            survival = self.known_survival(context)
            makeup = StepMakeUp(
                n, survival.shape[0], context_tokens=int(context.context_tokens.sum())
            )
            curve = self.step_time.curve(makeup)
            price = self.tokens / self.busy_ms if self.busy_ms else n / float(curve[0])
            selection = select(survival, curve, price * (n + context.waiting_prompts) / n)
            kept = np.sort(selection.order[: selection.count])
            fading = np.exp(-1.0 / _WINDOW_STEPS)
            self.tokens = fading * self.tokens + n + selection.worth(selection.count)
            self.busy_ms = fading * self.busy_ms + float(curve[selection.count])
        return self.make_tree_plan(context, kept, depth=most.max_depth, width=most.max_width)

    def known_survival(self, context: StepContext) -> FloatArray:
        """Return P(the path to each candidate is accepted), shape (m,)."""
        tree = context.candidates
        if tree is None or tree.confidence is None:
            raise ValueError("candidates must come with the drafter's probabilities, got none")
        conditional = np.empty(tree.confidence.shape[0])
        for row, number in enumerate(context.requests.tolist()):
            own = tree.request == row
            conditional[own] = self.truth(self._domains[number], tree.confidence[own])
        return path_survival(tree.request, tree.parent, conditional, context.requests.shape[0])

    def state(self) -> dict[str, Any]:
        """Return the rate so far."""
        return {"tokens": self.tokens, "busy_ms": self.busy_ms}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.tokens, self.busy_ms = float(state["tokens"]), float(state["busy_ms"])
