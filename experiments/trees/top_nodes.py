"""So many nodes per request, the likeliest by what was learned: trees at equal verified tokens."""

from __future__ import annotations

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.reasons import Reason
from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.controller.tree_policy import TreePolicy
from acclimate.controller.trees import deepest_kept
from acclimate.experiments.peers.tree_base import best_first, first_of_each


class TopNodes(TreePolicy):
    """`TreePolicy`'s beliefs with a fixed number of nodes instead of the price of time.

    Parameters
    ----------
    config, capabilities
        As in `TreePolicy`.
    nodes
        Per request.
    """

    def __init__(self, config: ControlConfig, capabilities: Capabilities, *, nodes: int) -> None:
        super().__init__(config, capabilities)
        if nodes < 1:
            raise ValueError(f"nodes must be >= 1, got {nodes}")
        self.nodes = nodes
        self.name = f"top_nodes:{nodes}"

    def plan(self, context: StepContext) -> StepPlan:
        """Verify each request's likeliest nodes."""
        tree, n = context.candidates, context.requests.shape[0]
        kept, lens, expected = np.zeros(0, dtype=np.int64), np.zeros(n, dtype=np.int64), 0.0
        if tree is not None and n:
            survival = self.beliefs.survival(context, tree)
            kept = np.sort(first_of_each(best_first(survival), tree.request, self.nodes))
            lens = deepest_kept(tree.request, tree.depth, kept, n)
            expected = float(survival[kept].sum())
        return StepPlan(
            step=context.step,
            draft_depth=self.capabilities.max_depth,
            draft_width=self.capabilities.max_width,
            verify_lens=lens,
            kept=kept,
            depth=self.capabilities.max_depth,
            reason=Reason.FIXED if n else Reason.IDLE,
            predicted_tokens=n + expected if n else None,
        )
