"""Draft trees of one request, and how they grow from what a drafter says of the next token."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from acclimate.controller.records import FloatArray, IntArray


class Law(NamedTuple):
    """What a drafter says of the next token.

    ``tokens`` and ``chances`` have shape (c,), likeliest first. Chances are positive and add up to
    1 at most: the rest is for tokens that it does not name.
    """

    tokens: IntArray
    chances: FloatArray


class NextTokens(Protocol):
    """A drafter, as far as trees need it."""

    def next_tokens(self, ids: IntArray, most: int) -> Law:
        """Return up to ``most`` tokens that may come after ``ids``."""


@dataclasses.dataclass(frozen=True, slots=True)
class DraftTree:
    """Draft tokens behind the last token of a request, parents before children.

    Parameters
    ----------
    tokens, parent, depth
        Shape (m,): token id, index of the parent (-1 for a child of the last token), depth from 1.
        Siblings stand in the order in which verification tries them, and differ.
    confidence
        Shape (m,): the drafter's P(token | its parent).
    laws
        Where children were drawn by chance: by parent, the law that they were drawn from, without
        replacement. Empty where the tree is a function of the text.
    drawn
        Whether children were drawn by chance.
    """

    tokens: IntArray
    parent: IntArray
    depth: IntArray
    confidence: FloatArray
    laws: dict[int, Law] = dataclasses.field(default_factory=dict)
    drawn: bool = False

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def children(self) -> dict[int, list[int]]:
        """Return the children of each node that has some, in order."""
        found: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parent.tolist()):
            found.setdefault(parent, []).append(node)
        return found

    def keep(self, nodes: IntArray) -> DraftTree:
        """Return the tree of some of its nodes, which must be ascending and hold their parents.

        >>> tree = grow_caterpillar(_Alphabet(), np.array([0]), depth=2, width=2, nodes=4)
        >>> tree.keep(np.array([0, 3])).parent.tolist()
        [-1, 0]
        """
        place = np.full(len(self) + 1, -1)
        place[nodes] = np.arange(nodes.shape[0])
        laws = {
            int(place[parent]): law
            for parent, law in self.laws.items()
            if parent < 0 or place[parent] >= 0
        }
        return DraftTree(
            self.tokens[nodes],
            place[self.parent[nodes]],
            self.depth[nodes],
            self.confidence[nodes],
            laws,
            self.drawn,
        )


def no_draft() -> DraftTree:
    """Return the tree without a node."""
    none = np.zeros(0, dtype=np.int64)
    return DraftTree(none, none, none, np.zeros(0))


class Grower(Protocol):
    """Grows a tree behind ``ids`` from what a drafter says."""

    def __call__(
        self,
        drafter: NextTokens,
        ids: IntArray,
        *,
        depth: int,
        width: int,
        nodes: int,
        floor: float = 0.0,
    ) -> DraftTree:
        """Return a tree of at most ``nodes``, ``depth`` deep, with ``width`` children per node.

        Paths less likely than ``floor``, by the drafter's word, are left out, the first token apart.
        """


def grow_beam(
    drafter: NextTokens,
    ids: IntArray,
    *,
    depth: int,
    width: int,
    nodes: int,
    floor: float = 0.0,
    correct: Callable[[int, FloatArray], FloatArray] | None = None,
) -> DraftTree:
    """Grow best-first: the likeliest path is extended next, until there are enough nodes.

    Parameters
    ----------
    drafter
        Says what may come next.
    ids
        The request's text.
    depth, width, nodes
        Limits.
    floor
        How likely a path must be to be worth a node; the first token is drafted in any case.
    correct
        Turns the drafter's probabilities at a depth into acceptance probabilities, for the order of
        growth; None: they are believed.

    Examples
    --------
    >>> tree = grow_beam(_Alphabet(), np.array([0]), depth=2, width=2, nodes=4)
    >>> tree.tokens.tolist(), tree.parent.tolist(), tree.depth.tolist()
    ([1, 2, 2, 3], [-1, 0, -1, 0], [1, 2, 1, 2])
    >>> grow_beam(_Alphabet(), np.array([0]), depth=2, width=2, nodes=4, floor=0.3).tokens.tolist()
    [1, 2, 2]
    """
    grown = _Growth(ids, depth)
    heap: list[tuple[float, int, int, int, float]] = []
    serial = 0
    if depth > 0 and nodes > 0:
        serial = _offer(heap, serial, drafter.next_tokens(ids, width), width, 1.0, -1, 1, correct)
    while heap and len(grown.tokens) < nodes:
        negative, _, parent, token, chance = heapq.heappop(heap)
        if -negative < floor and grown.tokens:
            break
        node = grown.add(parent, token, chance)
        below = grown.depth[node] + 1
        if below <= depth and len(grown.tokens) < nodes:
            law = drafter.next_tokens(grown.text(node), width)
            serial = _offer(heap, serial, law, width, -negative, node, below, correct)
    return grown.tree()


def grow_caterpillar(
    drafter: NextTokens,
    ids: IntArray,
    *,
    depth: int,
    width: int,
    nodes: int,
    floor: float = 0.0,
) -> DraftTree:
    """Grow a greedy chain, and beside each of its nodes the next likeliest tokens there.

    Of more than ``nodes`` those with the likeliest paths stay, and of those the ones above ``floor``
    and the first.

    Examples
    --------
    >>> tree = grow_caterpillar(_Alphabet(), np.array([0]), depth=2, width=2, nodes=4)
    >>> tree.tokens.tolist(), tree.parent.tolist()
    ([1, 2, 2, 3], [-1, 0, -1, 0])
    """
    grown = _Growth(ids, depth)
    survival: list[float] = []
    spine, above = -1, 1.0
    for _ in range(depth if nodes > 0 else 0):
        law = drafter.next_tokens(grown.text(spine), width)
        tokens, chances = law.tokens[:width].tolist(), law.chances[:width].tolist()
        if not tokens:
            break
        places = [
            grown.add(spine, token, chance) for token, chance in zip(tokens, chances, strict=True)
        ]
        survival += [above * chance for chance in chances]
        spine, above = places[0], above * chances[0]
        if above < floor:
            break
    likely = np.array(survival)
    order = np.argsort(-likely, kind="stable")[:nodes]
    worth = likely[order] >= floor
    worth[:1] = True
    return grown.tree(order[worth].astype(np.int64))


class _Growth:
    """A tree under way, and the text in front of each of its nodes."""

    def __init__(self, ids: IntArray, depth: int) -> None:
        self._room = np.concatenate([ids.astype(np.int64), np.zeros(depth, dtype=np.int64)])
        self._end = ids.shape[0]
        self.tokens: list[int] = []
        self.parent: list[int] = []
        self.depth: list[int] = []
        self.confidence: list[float] = []

    def add(self, parent: int, token: int, confidence: float) -> int:
        """Add a node, and return its index."""
        self.tokens.append(token)
        self.parent.append(parent)
        self.depth.append(1 if parent < 0 else self.depth[parent] + 1)
        self.confidence.append(confidence)
        return len(self.tokens) - 1

    def text(self, node: int) -> IntArray:
        """Return the request's text and the path to a node; valid until the next call."""
        end = self._end + (self.depth[node] if node >= 0 else 0)
        while node >= 0:
            self._room[self._end + self.depth[node] - 1] = self.tokens[node]
            node = self.parent[node]
        text: IntArray = self._room[:end]
        return text

    def tree(self, order: IntArray | None = None) -> DraftTree:
        """Return the tree, of some of its nodes in another order that keeps parents first."""
        if order is None:
            order = np.arange(len(self.tokens))
        place = np.full(len(self.tokens) + 1, -1)
        place[order] = np.arange(order.shape[0])
        return DraftTree(
            np.array(self.tokens, dtype=np.int64)[order],
            place[np.array(self.parent, dtype=np.int64)[order]],
            np.array(self.depth, dtype=np.int64)[order],
            np.array(self.confidence, dtype=np.float64)[order],
        )


def _offer(
    heap: list[tuple[float, int, int, int, float]],
    serial: int,
    law: Law,
    width: int,
    survival: float,
    parent: int,
    depth: int,
    correct: Callable[[int, FloatArray], FloatArray] | None,
) -> int:
    """Put the children of a node on the heap; return the next serial number."""
    chances = law.chances[:width]
    believed = chances if correct is None else np.minimum(correct(depth, chances), 1.0)
    for token, chance, q in zip(
        law.tokens[:width].tolist(), chances.tolist(), believed.tolist(), strict=True
    ):
        heapq.heappush(heap, (-survival * q, serial, parent, token, chance))
        serial += 1
    return serial


class _Alphabet:
    """A drafter for examples: the next numbers in order, each likelier than the one after."""

    def next_tokens(self, ids: IntArray, most: int) -> Law:
        """Return the numbers behind the last one."""
        first = int(ids[-1]) + 1
        return Law(np.arange(first, first + 2)[:most], np.array([0.6, 0.3])[:most])
