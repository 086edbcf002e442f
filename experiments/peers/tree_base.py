"""What peers for engines of trees share: the drafter's own survival, and plans of nodes."""

from __future__ import annotations

import numpy as np

from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    FloatArray,
    IntArray,
    StepContext,
    StepPlan,
)
from acclimate.controller.trees import deepest_kept, path_survival
from acclimate.experiments.peers.base import Peer, PeerReason


class TreePeer(Peer):
    """A peer that decides nodes, on an engine whose capabilities advertise width.

    Raises
    ------
    ValueError
        The engine drafts chains.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        super().__init__(capabilities)
        if capabilities.max_width < 2:
            raise ValueError(f"max_width must be >= 2, got {capabilities.max_width}")

    def make_tree_plan(
        self,
        context: StepContext,
        kept: IntArray,
        *,
        depth: int,
        width: int,
        nodes: int | None = None,
        reason: str = PeerReason.RULE,
    ) -> StepPlan:
        """Return a plan that verifies nodes, and drafts a shape as far as that is a choice.

        Parameters
        ----------
        kept
            Indices of candidates in any order, parents included.
        depth, width, nodes
            Wanted of the next drafts; without ``nodes`` as many as the engine drafts.
        """
        n, most = context.requests.shape[0], self.capabilities.max_depth
        tree = context.candidates
        kept = np.sort(kept)
        lens = np.zeros(n, dtype=np.int64)
        if tree is None or not n:
            kept = kept[:0]
        else:
            lens = deepest_kept(tree.request, tree.depth, kept, n)
        if not self.capabilities.asks_for_depth:
            depth, width, nodes = most, self.capabilities.max_width, None
        return StepPlan(
            step=context.step,
            draft_depth=max(self.allowed(depth), self.capabilities.depths[0]),
            draft_width=max(1, min(width, self.capabilities.max_width)),
            draft_nodes=None if nodes is None else max(nodes, 1),
            verify_lens=lens,
            kept=kept,
            depth=most,
            reason=reason if n else Reason.IDLE,
        )


def said_survival(candidates: Candidates, n_requests: int) -> FloatArray:
    """Return survival as the drafter's own probabilities have it, shape (m,).

    Where it says none, the candidates' survival.
    """
    if candidates.confidence is None:
        return candidates.survival
    said = np.nan_to_num(candidates.confidence, nan=0.5, posinf=1.0, neginf=0.0)
    return path_survival(candidates.request, candidates.parent, np.clip(said, 0.0, 1.0), n_requests)


def best_first(survival: FloatArray) -> IntArray:
    """Return the candidates best first; equal ones stay as they are, parents before children."""
    return np.argsort(-survival, kind="stable").astype(np.int64)


def first_of_each(order: IntArray, request: IntArray, nodes: int) -> IntArray:
    """Return the first ``nodes`` candidates of each request, in the order given.

    >>> first_of_each(np.array([2, 0, 1]), np.array([0, 0, 0]), 2).tolist()
    [2, 0]
    """
    taken: dict[int, int] = {}
    kept = []
    for j in order.tolist():
        r = int(request[j])
        if taken.get(r, 0) < nodes:
            taken[r] = taken.get(r, 0) + 1
            kept.append(j)
    return np.array(kept, dtype=np.int64)
