"""Verification: which path of a tree the target takes, and the token that it adds behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.trees.draft import DraftTree, Law

Residual = Callable[[FloatArray, IntArray, FloatArray], FloatArray]
"""What is left of a target's law once a child drawn from a drafter's law was rejected."""


class Walk(NamedTuple):
    """What the target made of a tree.

    ``path`` are the accepted nodes, from the root's child on; ``bonus`` is the token behind them.
    """

    path: list[int]
    bonus: int

    def written(self, tree: DraftTree) -> list[int]:
        """Return the tokens that the step adds to the text."""
        return [*tree.tokens[self.path].tolist(), self.bonus]


def walk_greedy(tree: DraftTree, choice: IntArray) -> Walk:
    """Follow the target's first choices as far as the tree holds them.

    Parameters
    ----------
    tree
        What was verified.
    choice
        Shape (m + 1,): the target's likeliest token behind the root and behind each node.

    Examples
    --------
    >>> tree = DraftTree(np.array([5, 6, 7]), np.array([-1, -1, 1]), np.array([1, 1, 2]), np.ones(3))
    >>> walk_greedy(tree, np.array([6, 0, 7, 9]))
    Walk(path=[1, 2], bonus=9)
    """
    children = tree.children()
    path: list[int] = []
    node, wanted = -1, int(choice[0])
    while True:
        taken = next((c for c in children.get(node, ()) if tree.tokens[c] == wanted), None)
        if taken is None:
            return Walk(path, wanted)
        path.append(taken)
        node, wanted = taken, int(choice[taken + 1])


def residual(target: FloatArray, tokens: IntArray, chances: FloatArray) -> FloatArray:
    """Return [p - q]₊ as a law again, for p the target's and q the drafter's.

    Parameters
    ----------
    target
        Shape (vocab,): p, adding up to 1.
    tokens, chances
        Shape (c,): q, 0 for all other tokens.

    Examples
    --------
    >>> residual(np.array([0.5, 0.5]), np.array([0]), np.array([0.75])).tolist()
    [0.0, 1.0]
    """
    left = target.copy()
    left[tokens] = np.maximum(left[tokens] - chances, 0.0)
    total = left.sum()
    # Where both laws are equal nothing is left, and nothing can have been rejected but by rounding.
    return left / total if total > 0.0 else target


def walk_sampled(
    tree: DraftTree,
    law_of: Callable[[int], FloatArray],
    rng: np.random.Generator,
    *,
    left_by: Residual = residual,
) -> Walk:
    """Draw from the target, and make use of the tree as far as it goes: its law stays exact.

    At each node the children are tried in order [1]_ [2]_: one that was drawn from q is accepted with
    probability min(1, p/q), and what a rejection leaves is p ← [p - q]₊ normalised, q ← q without
    the child, normalised. A child that is no draw but a function of the text is a draw from a law
    that knows nothing else: it is accepted with probability p, and p loses it.

    Parameters
    ----------
    tree
        What was verified.
    law_of
        The target's law behind a node, shape (vocab,); -1 is the root.
    rng
        Decides.
    left_by
        For tests that plant a fault.

    References
    ----------
    .. [1] X. Miao et al., "SpecInfer", ASPLOS 2024: multi-step speculative sampling.
    .. [2] Z. Chen et al., "Sequoia", arXiv 2402.12374: sampling without replacement.

    Examples
    --------
    >>> tree = DraftTree(np.array([1]), np.array([-1]), np.array([1]), np.ones(1))
    >>> walk_sampled(tree, lambda node: np.array([0.0, 1.0]), np.random.default_rng(0))
    Walk(path=[0], bonus=1)
    """
    children = tree.children()
    path: list[int] = []
    node = -1
    while True:
        law = law_of(node)
        drafted = tree.laws.get(node)
        taken = None
        for child in children.get(node, ()):
            token = int(tree.tokens[child])
            if drafted is None:
                drafted = Law(np.array([token]), np.ones(1))
            at = int(np.flatnonzero(drafted.tokens == token)[0])
            if rng.random() * drafted.chances[at] < law[token]:
                taken = child
                break
            law = left_by(law, drafted.tokens, drafted.chances)
            drafted = _without(drafted, at) if tree.drawn else None
        if taken is None:
            return Walk(path, draw(law, rng.random()))
        path.append(taken)
        node = taken


def draw(law: FloatArray, luck: float) -> int:
    """Return the token at ``luck`` in [0, 1) of a law's cumulative sum.

    >>> draw(np.array([0.25, 0.0, 0.75]), 0.3)
    2
    """
    cumulated = np.cumsum(law)
    at = int(np.searchsorted(cumulated, luck * cumulated[-1], side="right"))
    return min(at, int(law.shape[0]) - 1)


def _without(law: Law, at: int) -> Law:
    """Return a law without one of its tokens, adding up to 1 again."""
    tokens, chances = np.delete(law.tokens, at), np.delete(law.chances, at)
    total = chances.sum()
    return Law(tokens, chances / total if total > 0.0 else chances)
