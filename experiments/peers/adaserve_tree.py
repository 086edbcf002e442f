"""AdaServe on trees: depth and width by load alone, nodes for each request's target first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    IntArray,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.adaserve import AdaServe, Shape
from acclimate.experiments.peers.tree_base import TreePeer, best_first, said_survival


@dataclasses.dataclass(frozen=True, slots=True)
class WidthRule:
    """The rule's half for width, w = clip(⌊B₂/n⌋ + c₂).

    Parameters
    ----------
    budget
        B₂.
    offset
        c₂.
    most
        Largest width.
    """

    budget: int = 32
    offset: int = 0
    most: int = 3

    def width(self, requests: int, max_width: int) -> int:
        """Return ⌊B₂/n⌋ + c₂ within [1, most], and not above the engine's.

        >>> [WidthRule().width(n, max_width=4) for n in (1, 16, 20, 64)]
        [3, 2, 1, 1]
        """
        wanted = self.budget // max(requests, 1) + self.offset
        return max(1, min(wanted, self.most, max_width))


class AdaServeTree(TreePeer):
    """AdaServe's two passes over trees: for latency targets first, then by survival.

    Depth and width follow from the number of requests, and a fixed budget of tokens from the
    machine. The drafter's probabilities are believed as they are.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    descending
        Whether the neediest request is served first, as in the paper; its code serves the least
        needy first.
    shape, widths
        The shape rule and the budget.
    """

    FOLLOWS: ClassVar[str] = "AdaServe, arXiv 2501.12162v2"

    def __init__(
        self,
        capabilities: Capabilities,
        *,
        descending: bool = True,
        shape: Shape | None = None,
        widths: WidthRule | None = None,
    ) -> None:
        super().__init__(capabilities)
        self.name = "adaserve_tree" if descending else "adaserve_code_tree"
        self.descending = descending
        self.widths = widths or WidthRule()
        self._targets = AdaServe(capabilities, descending=descending, shape=shape)

    def admit(self, request: RequestInfo) -> None:
        """Note the request's TPOT target, if it has one."""
        self._targets.admit(request)

    def forget(self, request: int) -> None:
        """Drop the request."""
        self._targets.forget(request)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Remember how long a step takes; acceptance is not looked at."""
        return self._targets.observe(outcome)

    def plan(self, context: StepContext) -> StepPlan:
        """Draft by the shape rule, and spend the budget in two passes."""
        n, shape = context.requests.shape[0], self._targets.shape
        depth = self.allowed(shape.depth(n, self.capabilities.max_depth))
        width = self.widths.width(n, self.capabilities.max_width)
        kept = np.zeros(0, dtype=np.int64)
        if context.candidates is not None and n:
            budget = max(shape.budget_tokens - n, 0)
            kept = self._select(context, context.candidates, depth, budget)
        return self.make_tree_plan(context, kept, depth=depth, width=width)

    def state(self) -> dict[str, Any]:
        """Return targets, first tokens and the step's duration."""
        return self._targets.state()

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._targets.load(state)

    def _select(self, context: StepContext, tree: Candidates, depth: int, budget: int) -> IntArray:
        n = context.requests.shape[0]
        survival = said_survival(tree, n)
        order = [j for j in best_first(survival).tolist() if tree.depth[j] <= depth]
        of_request: list[list[int]] = [[] for _ in range(n)]
        for j in order:
            of_request[int(tree.request[j])].append(j)
        needs = self._targets.needs(context, depth)
        kept: dict[int, None] = {}
        for row in np.argsort(-needs if self.descending else needs, kind="stable").tolist():
            expected = 1.0
            for j in of_request[row]:
                if expected >= needs[row] or len(kept) >= budget:
                    break
                kept[j] = None
                expected += float(survival[j])
        for j in order:
            if len(kept) >= budget:
                break
            kept[j] = None
        return np.array(list(kept), dtype=np.int64)


def build(config: ControlConfig, capabilities: Capabilities) -> AdaServeTree:
    """Return the peer with the paper's order."""
    return AdaServeTree(capabilities)


def build_code_order(config: ControlConfig, capabilities: Capabilities) -> AdaServeTree:
    """Return the peer with the order of the published code."""
    return AdaServeTree(capabilities, descending=False)
