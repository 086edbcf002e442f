"""Sequoia: the best tree that knows nothing of the text, computed once."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.controller.trees import sibling_ranks
from acclimate.experiments.peers.tree_base import TreePeer
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime

_RANK_ACCEPTANCE = (0.55, 0.14, 0.07, 0.04)


class SequoiaTree(TreePeer):
    """The tree that is best if a child's acceptance depends on its rank among siblings alone.

    A node's worth is the product of its path's acceptances by rank; the best tree of N nodes are
    the N worthiest, which is what Sequoia's dynamic programme finds as long as acceptance falls with
    rank. Its size is the one with the most expected tokens per time for a single request where step
    times are known, otherwise ``nodes``. Neither confidence nor domain nor load is looked at.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    rank_acceptance
        P(the child of rank 0, 1, … is accepted | its parent was), measured before; falling.
    nodes
        Largest tree.
    profile
        Step times that the size is chosen by.

    Raises
    ------
    ValueError
        Acceptances rise with rank, or add up to more than 1.
    """

    FOLLOWS: ClassVar[str] = "Sequoia, arXiv 2402.12374"
    name = "sequoia_tree"

    def __init__(
        self,
        capabilities: Capabilities,
        *,
        rank_acceptance: Sequence[float] = _RANK_ACCEPTANCE,
        nodes: int = 64,
        profile: StepTime | None = None,
    ) -> None:
        super().__init__(capabilities)
        rates = list(rank_acceptance)[: capabilities.max_width]
        falling = all(a >= b for a, b in itertools.pairwise(rates))
        if not rates or not falling or rates[-1] < 0.0 or sum(rates) > 1.0 + 1e-9:
            raise ValueError(f"rank_acceptance must fall and sum to at most 1, got {rates}")
        paths, worth = best_static_tree(rates, nodes=nodes, depth=capabilities.max_depth)
        if profile is not None:
            cost = profile.curve(StepMakeUp(1, len(paths)))
            pace = (1.0 + np.concatenate([[0.0], np.cumsum(worth)])) / cost
            paths = paths[: int(np.argmax(pace))]
        self.paths = frozenset(paths)

    def plan(self, context: StepContext) -> StepPlan:
        """Verify the nodes whose ranks along the path are in the tree."""
        tree, n = context.candidates, context.requests.shape[0]
        kept = []
        if tree is not None and n:
            ranks = sibling_ranks(tree.request, tree.parent, n).tolist()
            paths: list[tuple[int, ...]] = []
            for j, parent in enumerate(tree.parent.tolist()):
                above = paths[parent] if parent >= 0 else ()
                paths.append((*above, ranks[j]))
                if paths[j] in self.paths:
                    kept.append(j)
        depth = max(map(len, self.paths), default=0)
        width = 1 + max((max(path) for path in self.paths), default=0)
        return self.make_tree_plan(
            context, np.array(kept, dtype=np.int64), depth=depth, width=width
        )

    def state(self) -> dict[str, Any]:
        """Return the tree."""
        return {"paths": sorted([list(path) for path in self.paths])}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the tree."""
        self.paths = frozenset(tuple(int(r) for r in path) for path in state["paths"])


def best_static_tree(
    rank_acceptance: Sequence[float], *, nodes: int, depth: int
) -> tuple[list[tuple[int, ...]], list[float]]:
    """Return the worthiest nodes as ranks along their paths, best first, and their worth.

    Parameters
    ----------
    rank_acceptance
        P(child of rank i is accepted | its parent was), falling.
    nodes, depth
        Limits.

    Examples
    --------
    >>> best_static_tree([0.6, 0.3], nodes=4, depth=8)[0]
    [(0,), (0, 0), (1,), (0, 0, 0)]
    """
    paths: list[tuple[int, ...]] = []
    worth: list[float] = []
    heap: list[tuple[float, tuple[int, ...]]] = []
    if depth and rank_acceptance:
        heap.append((-rank_acceptance[0], (0,)))
    while heap and len(paths) < nodes:
        negative, path = heapq.heappop(heap)
        if negative == 0.0:
            break
        paths.append(path)
        worth.append(-negative)
        rank = path[-1]
        if len(path) < depth:
            heapq.heappush(heap, (negative * rank_acceptance[0], (*path, 0)))
        if rank + 1 < len(rank_acceptance):
            sibling = negative / rank_acceptance[rank] * rank_acceptance[rank + 1]
            heapq.heappush(heap, (sibling, (*path[:-1], rank + 1)))
    return paths, worth


def build(config: ControlConfig, capabilities: Capabilities) -> SequoiaTree:
    """Return the peer with acceptances by rank as they are usual."""
    return SequoiaTree(capabilities)
