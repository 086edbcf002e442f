"""The same tree in every step: a box of depth and width."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.controller.trees import sibling_ranks
from acclimate.experiments.peers.tree_base import (
    TreePeer,
    best_first,
    first_of_each,
    said_survival,
)


class StaticTree(TreePeer):
    """Verify the best nodes within a fixed depth and width, so many per request at most.

    Depth 0 is ``k0``, width 1 a chain.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    depth, width
        Of the box, cut to the engine's.
    nodes
        Nodes per request.
    """

    FOLLOWS: ClassVar[str] = "a fixed shape"

    def __init__(
        self, capabilities: Capabilities, *, depth: int, width: int, nodes: int = 64
    ) -> None:
        super().__init__(capabilities)
        for name, value, least in (("depth", depth, 0), ("width", width, 1), ("nodes", nodes, 1)):
            if value < least:
                raise ValueError(f"{name} must be >= {least}, got {value}")
        self.depth = self.allowed(depth)
        self.width = min(width, capabilities.max_width)
        self.nodes = nodes
        self.name = f"static_tree:{depth}x{width}x{nodes}"

    def plan(self, context: StepContext) -> StepPlan:
        """Verify what is inside the box."""
        tree, n = context.candidates, context.requests.shape[0]
        kept = np.zeros(0, dtype=np.int64)
        if tree is not None and n:
            rank = sibling_ranks(tree.request, tree.parent, n)
            inside = (tree.depth <= self.depth) & (rank < self.width)
            for j in range(inside.shape[0]):
                if tree.parent[j] >= 0:
                    inside[j] &= inside[tree.parent[j]]
            order = best_first(np.where(inside, said_survival(tree, n), -1.0))
            kept = first_of_each(order[: int(inside.sum())], tree.request, self.nodes)
        return self.make_tree_plan(
            context, kept, depth=self.depth, width=self.width, nodes=self.nodes
        )

    def state(self) -> dict[str, Any]:
        """Nothing is kept but the shape."""
        return {"depth": self.depth, "width": self.width, "nodes": self.nodes}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the shape."""
        self.depth, self.width, self.nodes = (
            int(state[name]) for name in ("depth", "width", "nodes")
        )
