"""EAGLE-2: draft wide, then verify the N nodes of each request that the drafter likes best."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.experiments.peers.tree_base import (
    TreePeer,
    best_first,
    first_of_each,
    said_survival,
)


class Eagle2Tree(TreePeer):
    """Expands by the drafter's probabilities and keeps the top N of each request, always.

    The tree's form follows the drafter's confidence, which is believed as it is; its size does not
    change, with neither load nor acceptance.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    nodes
        Nodes verified per request; the paper's 59 and a root for the smallest model.
    depth, width
        Of the drafts, cut to the engine's.
    """

    FOLLOWS: ClassVar[str] = "EAGLE-2, arXiv 2406.16858"
    name = "eagle2_tree"

    def __init__(
        self, capabilities: Capabilities, *, nodes: int = 59, depth: int = 6, width: int = 10
    ) -> None:
        super().__init__(capabilities)
        if nodes < 1:
            raise ValueError(f"nodes must be >= 1, got {nodes}")
        self.nodes, self.depth, self.width = nodes, depth, width

    def plan(self, context: StepContext) -> StepPlan:
        """Verify each request's best nodes."""
        tree, n = context.candidates, context.requests.shape[0]
        kept = np.zeros(0, dtype=np.int64)
        if tree is not None and n:
            kept = first_of_each(best_first(said_survival(tree, n)), tree.request, self.nodes)
        return self.make_tree_plan(context, kept, depth=self.depth, width=self.width)

    def state(self) -> dict[str, Any]:
        """Nothing is learned."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Nothing is learned."""


def build(config: ControlConfig, capabilities: Capabilities) -> Eagle2Tree:
    """Return the peer with the paper's settings."""
    return Eagle2Tree(capabilities)
