"""The draft trees of a batch, one after the other in flat arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.controller.trees import deepest_kept, first_chain
from acclimate.experiments.trees.draft import DraftTree

_ANY_DEPTH = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True, slots=True)
class Forest:
    """Trees of n requests as arrays over all m nodes, in the layout of `Candidates`.

    Parameters
    ----------
    begins
        Shape (n + 1,): where each request's nodes begin.
    request, parent, depth, tokens, confidence
        Shape (m,): parents are indices into these arrays, -1 for a root's child.
    drawn
        Whether any tree's children were drawn by chance.
    """

    begins: IntArray
    request: IntArray
    parent: IntArray
    depth: IntArray
    tokens: IntArray
    confidence: FloatArray
    drawn: bool

    @classmethod
    def of(cls, trees: Sequence[DraftTree]) -> Forest:
        """Build from each request's tree.

        >>> one = DraftTree(np.array([5]), np.array([-1]), np.array([1]), np.ones(1))
        >>> two = DraftTree(np.array([6, 7]), np.array([-1, 0]), np.array([1, 2]), np.ones(2))
        >>> Forest.of([one, two]).parent.tolist()
        [-1, -1, 1]
        """
        sizes = [len(tree) for tree in trees]
        begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return cls(
            begins,
            np.repeat(np.arange(len(trees)), sizes),
            _join(
                [
                    np.where(t.parent < 0, -1, t.parent + b)
                    for t, b in zip(trees, begins, strict=False)
                ]
            ),
            _join([tree.depth for tree in trees]),
            _join([tree.tokens for tree in trees]),
            np.concatenate([tree.confidence for tree in trees] or [np.zeros(0)]),
            any(tree.drawn for tree in trees),
        )

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def n_requests(self) -> int:
        """Trees, empty ones included."""
        return int(self.begins.shape[0]) - 1

    def deepest(self) -> IntArray:
        """Return how deep each request's tree is, shape (n,)."""
        return deepest_kept(self.request, self.depth, np.arange(len(self)), self.n_requests)

    def chain(self) -> IntArray:
        """Return the nodes of the chains of first children, ascending."""
        deep = np.full(self.n_requests, _ANY_DEPTH)
        return first_chain(self.request, self.parent, self.depth, deep)

    def split(self, kept: IntArray) -> list[IntArray]:
        """Return the kept nodes of each request, as indices into its own tree."""
        bounds = np.searchsorted(kept, self.begins)
        return [kept[bounds[r] : bounds[r + 1]] - self.begins[r] for r in range(self.n_requests)]

    def whole_families(self, kept: IntArray) -> IntArray:
        """Return the kept nodes that verification can make use of.

        A child that was drawn by chance is worth nothing without the siblings drawn before it: it
        was drawn from what they left. Such nodes are dropped, and what is below them.

        >>> tree = DraftTree(np.array([5, 6]), np.array([-1, -1]), np.ones(2, np.int64), np.ones(2),
        ...                  drawn=True)
        >>> Forest.of([tree]).whole_families(np.array([1])).tolist()
        []
        """
        if not self.drawn:
            return kept
        useful = np.zeros(len(self) + 1, dtype=np.bool_)
        useful[-1] = True  # the root is behind the last
        chosen = np.zeros(len(self), dtype=np.bool_)
        chosen[kept] = True
        broken: set[tuple[int, int]] = set()
        for node, parent in enumerate(self.parent.tolist()):
            family = (int(self.request[node]), parent)
            useful[node] = chosen[node] and useful[parent] and family not in broken
            if not useful[node]:
                broken.add(family)
        return np.flatnonzero(useful[:-1]).astype(np.int64)


def _join(parts: list[IntArray]) -> IntArray:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
