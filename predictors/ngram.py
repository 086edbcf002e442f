"""A back-off n-gram model of a target's text, which also looks at the request's own text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acclimate.predictors.ngram_kernels import (
    N_BUCKETS,
    Tables,
    chain,
    chain_rows,
    level_chances,
    rank_all,
)
from acclimate.predictors.ngram_tables import NgramTables, build_tables
from acclimate.predictors.numerics import FloatArray, IntArray

OWN_LENGTHS = (16, 12, 8, 6, 5, 4, 3, 2, 1)
_ROUNDS = 12
_EVIDENCE = 4.0  # asks of a level's kind that its prior weight counts for
_UNKNOWN = 1.0 / 50_000  # P(a token that no level names)
_WEIGHED_EVERY = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Levels:
    """The contexts that a model asks, in turn: long ones first, own text before trained text.

    Parameters
    ----------
    lengths, own
        Shape (levels,): tokens of context, and whether the request's own text is looked at.
    """

    lengths: IntArray
    own: np.ndarray

    @classmethod
    def of(cls, order: int) -> Levels:
        """Return the levels of tables of an order.

        >>> Levels.of(2).lengths.tolist()
        [16, 12, 8, 6, 5, 4, 3, 2, 2, 1, 1, 0]
        """
        levels = [(length, True) for length in OWN_LENGTHS]
        levels += [(length, False) for length in range(order + 1)]
        levels.sort(reverse=True)
        lengths, own = zip(*levels, strict=True)
        return cls(np.array(lengths, dtype=np.int64), np.array(own, dtype=np.bool_))

    def __len__(self) -> int:
        return int(self.lengths.shape[0])


class BackoffModel:
    """Says which tokens may come next, and how likely each is.

    P(token) = Σ over levels of (what longer contexts left over) · (weight) · (share of the
    context's successors): interpolation as Jelinek and Mercer's, with weights per context length,
    amount of evidence and its unanimity [1]_.

    Parameters
    ----------
    tables
        Successors of contexts in the text that it was trained on.
    weights
        Shape (levels, `N_BUCKETS`), in [0, 1].

    Raises
    ------
    ValueError
        The weights have another shape, or are out of range.

    References
    ----------
    .. [1] F. Jelinek, R. L. Mercer, "Interpolated estimation of Markov source parameters from
       sparse data", Pattern Recognition in Practice, 1980.

    Examples
    --------
    >>> text = np.array([1, 2, 3, 4] * 30)
    >>> model = train_backoff([(text, 1)] * 20, order=2)
    >>> drafts, confidence = model.draft(np.array([9, 3, 4, 1, 2]), 3)
    >>> drafts.tolist(), bool((confidence > 0.8).all())
    ([3, 4, 1], True)
    """

    def __init__(self, tables: NgramTables, weights: FloatArray) -> None:
        self.tables = tables
        self.levels = Levels.of(tables.order)
        shape = (len(self.levels), N_BUCKETS)
        if weights.shape != shape:
            raise ValueError(f"weights must have shape {shape}, got {weights.shape}")
        if not ((weights >= 0) & (weights <= 1)).all():
            raise ValueError("weights must be in [0, 1]")
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.arrays: Tables = (
            tables.starts,
            tables.keys,
            tables.begins,
            tables.totals,
            tables.tokens,
            tables.counts,
            tables.directory,
        )

    def draft(self, ids: IntArray, depth: int) -> tuple[IntArray, FloatArray]:
        """Return up to ``depth`` tokens to come after ``ids``, and P(each is right | those before).

        Shape (at most depth,) each.
        """
        room = np.concatenate((ids.astype(np.int64), np.zeros(depth, dtype=np.int64)))
        drafts, confidence = np.empty(depth, dtype=np.int64), np.empty(depth)
        chain(
            room, ids.shape[0], self.arrays, self.levels.lengths, self.levels.own, self.weights,
            drafts, confidence,
        )  # fmt: skip
        made = int((drafts >= 0).sum())
        return drafts[:made], confidence[:made]

    def draft_rows(
        self,
        token_ids: npt.NDArray[np.int32],
        rows: IntArray,
        ends: IntArray,
        room: IntArray,
        depth: int,
    ) -> tuple[IntArray, FloatArray]:
        """Return drafts for rows of a table of texts, -1 behind their ends, and their confidence.

        Parameters
        ----------
        token_ids
            Shape (texts, most tokens): one text per row.
        rows, ends
            Shape (n,): which texts, and how many tokens each has.
        room
            Scratch space for the longest text and ``depth`` tokens.

        Returns
        -------
        tuple
            Shape (n, depth) each.
        """
        drafts = np.empty((rows.shape[0], depth), dtype=np.int64)
        confidence = np.empty((rows.shape[0], depth))
        chain_rows(
            token_ids, rows, ends, self.arrays, self.levels.lengths, self.levels.own, self.weights,
            room, drafts, confidence,
        )  # fmt: skip
        return drafts, confidence

    def rank(self, ids: IntArray, first: int, width: int) -> tuple[IntArray, FloatArray]:
        """Return the ``width`` likeliest tokens of each position from ``first`` on, and their P.

        Shape (positions, width) each; -1 and 0 where there are fewer.
        """
        positions = max(ids.shape[0] - first, 0)
        best = np.empty((positions, width), dtype=np.int64)
        confidence = np.empty((positions, width))
        rank_all(
            np.ascontiguousarray(ids, dtype=np.int64), first, self.arrays, self.levels.lengths,
            self.levels.own, self.weights, best, confidence,
        )  # fmt: skip
        return best, confidence


def train_backoff(
    texts: Sequence[tuple[IntArray, int]], *, order: int = 5, most_successors: int = 16
) -> BackoffModel:
    """Train a model on texts.

    The weights come from every tenth text under tables of the others; then all are counted.

    Parameters
    ----------
    texts
        Token ids, and from which position on they are to be predicted.
    order, most_successors
        As in `acclimate.predictors.ngram_tables.build_tables`.

    Raises
    ------
    ValueError
        There are fewer than two texts with something to predict.
    """
    weighed = list(texts[::_WEIGHED_EVERY])
    counted = [text for i, text in enumerate(texts) if i % _WEIGHED_EVERY]
    partial = build_tables(counted, order=order, most_successors=most_successors)
    weights = learn_weights(partial, weighed)
    return BackoffModel(build_tables(texts, order=order, most_successors=most_successors), weights)


def learn_weights(tables: NgramTables, texts: Sequence[tuple[IntArray, int]]) -> FloatArray:
    """Return the weights under which texts are likeliest, found by expectation maximisation.

    Parameters
    ----------
    tables
        Counted on other texts.
    texts
        As in `train_backoff`.
    """
    levels = Levels.of(tables.order)
    n = len(levels)
    weights = np.full((n, N_BUCKETS), 0.5)
    model = BackoffModel(tables, weights)
    said_parts, kind_parts = [], []
    for ids, first in texts:
        positions = ids.shape[0] - first
        if positions <= 0:
            continue
        said, kinds = np.empty((positions, n)), np.empty((positions, n), dtype=np.int64)
        level_chances(
            np.ascontiguousarray(ids, dtype=np.int64), first, model.arrays, levels.lengths,
            levels.own, weights, said, kinds,
        )  # fmt: skip
        said_parts.append(said)
        kind_parts.append(kinds)
    if not said_parts:
        raise ValueError("texts must hold tokens to predict, got none")
    said, kinds = np.concatenate(said_parts), np.concatenate(kind_parts)
    for _ in range(_ROUNDS):
        weights = _better(weights, said, kinds)
    return weights


def _better(weights: FloatArray, said: FloatArray, kinds: IntArray) -> FloatArray:
    """Do one round of expectation maximisation."""
    rows, n = said.shape
    speaks = kinds >= 0
    share = np.where(speaks, weights[np.arange(n), np.maximum(kinds, 0)], 0.0)
    below = np.empty((rows, n + 1))  # P(token | level l is reached)
    below[:, n] = _UNKNOWN
    for level in range(n - 1, -1, -1):
        w = share[:, level]
        below[:, level] = w * said[:, level] + (1.0 - w) * below[:, level + 1]
    asked, answered = np.zeros((n, N_BUCKETS)), np.zeros((n, N_BUCKETS))
    reached = np.ones(rows)
    for level in range(n):
        here = speaks[:, level]
        given = share[:, level] * said[:, level] / below[:, level] * reached
        kind = kinds[here, level]
        asked[level] = np.bincount(kind, weights=reached[here], minlength=N_BUCKETS)
        answered[level] = np.bincount(kind, weights=given[here], minlength=N_BUCKETS)
        reached = reached - given
    return (answered + 0.5 * _EVIDENCE) / (asked + _EVIDENCE)
