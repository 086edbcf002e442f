"""Draft trees whose children are drawn by chance, without replacement."""

from __future__ import annotations

from collections import deque

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.trees.draft import DraftTree, Law, NextTokens

_MOST_NAMED = 48  # tokens of a law


def grow_drawn(
    drafter: NextTokens,
    ids: IntArray,
    rng: np.random.Generator,
    *,
    depth: int,
    width: int,
    nodes: int,
    floor: float = 0.0,
    rank_decay: float = 0.5,
) -> DraftTree:
    """Grow level by level: every node draws its children from the drafter's law.

    How many children a node has depends on no token that was drawn, as long as every law names
    ``width`` tokens, and neither does ``confidence``: a drafter's probability of the very token that
    it drew would tell the selection about it, and the target's law would be lost [1]_. Confidence is
    a guess by rank instead.

    Parameters
    ----------
    drafter, ids, depth, width, nodes, floor
        As in `acclimate.experiments.trees.draft.grow_beam`.
    rng
        Draws the children.
    rank_decay
        Guess of a child's acceptance over that of its elder sibling.

    References
    ----------
    .. [1] Z. Chen et al., "Sequoia: scalable and robust speculative decoding", arXiv 2402.12374.
    """
    tokens: list[int] = []
    parent: list[int] = []
    depths: list[int] = []
    confidence: list[float] = []
    laws: dict[int, Law] = {}
    guesses = (1.0 - rank_decay) * rank_decay ** np.arange(width)
    open_nodes: deque[tuple[int, tuple[int, ...], float]] = deque([(-1, (), 1.0)])
    while open_nodes and len(tokens) < nodes:
        node, path, survival = open_nodes.popleft()
        likely = int(np.count_nonzero(survival * guesses >= floor)) or int(node < 0)
        if len(path) == depth or not likely:
            continue
        text = np.concatenate([ids, np.array(path, dtype=np.int64)])
        law = whole(drafter.next_tokens(text, _MOST_NAMED))
        if not law.tokens.size:
            continue
        laws[node] = law
        room = min(likely, law.tokens.shape[0], nodes - len(tokens))
        for rank, token in enumerate(draw_some(law, room, rng).tolist()):
            tokens.append(token)
            parent.append(node)
            depths.append(len(path) + 1)
            confidence.append(float(guesses[rank]))
            open_nodes.append((len(tokens) - 1, (*path, token), survival * confidence[-1]))
    return DraftTree(
        np.array(tokens, dtype=np.int64),
        np.array(parent, dtype=np.int64),
        np.array(depths, dtype=np.int64),
        np.array(confidence, dtype=np.float64),
        laws,
        drawn=True,
    )


def whole(law: Law) -> Law:
    """Return the law with chances that add up to 1, without those that are 0."""
    positive = law.chances > 0.0
    chances: FloatArray = law.chances[positive]
    return Law(law.tokens[positive], chances / chances.sum() if chances.size else chances)


def draw_some(law: Law, count: int, rng: np.random.Generator) -> IntArray:
    """Draw ``count`` different tokens, each from what the ones before left.

    The largest of log chance + Gumbel noise are such a draw, in order.

    >>> law = Law(np.array([7, 8]), np.array([1.0 - 1e-12, 1e-12]))
    >>> draw_some(law, 2, np.random.default_rng(0)).tolist()
    [7, 8]
    """
    noisy = np.log(law.chances) + rng.gumbel(size=law.chances.shape[0])
    drawn: IntArray = law.tokens[np.argsort(-noisy, kind="stable")[:count]]
    return drawn
