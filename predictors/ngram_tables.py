"""Counts of what follows a context in a text, for all context lengths up to an order, as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acclimate.predictors.numerics import IntArray

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_ONE = np.uint64(1)
_DIRECTORY_BITS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class NgramTables:
    """Successors of contexts of 0 to ``order`` tokens, sorted by context length and hash.

    Two contexts whose 32-bit hashes are equal are one context: with a million of them, a lookup in
    vain finds one by mistake once in 4,000 times.

    Parameters
    ----------
    order
        Longest context, in tokens.
    starts
        Shape (order + 2,): where each length's contexts begin.
    keys
        Shape (contexts,): hashes, ascending within a length.
    begins
        Shape (contexts + 1,): where each context's successors begin.
    totals
        Shape (contexts,): how often the context was seen, at most 65,535.
    tokens, counts
        Shape (successors,): what followed, most frequent first, and how often, at most 65,535.
    directory
        Shape (order + 1, 65,537): where the keys with given upper 16 bits begin.
    """

    order: int
    starts: npt.NDArray[np.int64]
    keys: npt.NDArray[np.uint32]
    begins: npt.NDArray[np.int64]
    totals: npt.NDArray[np.uint16]
    tokens: npt.NDArray[np.uint16]
    counts: npt.NDArray[np.uint16]
    directory: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        order: int,
        starts: IntArray,
        keys: npt.NDArray[np.uint32],
        sizes: IntArray,
        totals: npt.NDArray[np.uint16],
        tokens: npt.NDArray[np.uint16],
        counts: npt.NDArray[np.uint16],
    ) -> NgramTables:
        """Put tables together from what a file holds: ``sizes`` are successors per context.

        Raises
        ------
        ValueError
            The arrays do not belong together.
        """
        contexts, successors = keys.shape[0], tokens.shape[0]
        if starts.shape != (order + 2,) or starts[0] != 0 or starts[-1] != contexts:
            raise ValueError(
                f"starts must have shape ({order + 2},) and end at {contexts} contexts"
            )
        if sizes.shape != (contexts,) or totals.shape != (contexts,):
            raise ValueError(f"sizes and totals must have shape ({contexts},)")
        if counts.shape != (successors,) or int(sizes.sum()) != successors:
            raise ValueError(f"sizes must add up to {successors} successors")
        if contexts and (sizes.min() < 1 or totals.min() < 1):
            raise ValueError("sizes and totals must be >= 1, got 0")
        begins = np.zeros(contexts + 1, dtype=np.int64)
        np.cumsum(sizes, out=begins[1:])
        edges = np.arange((1 << _DIRECTORY_BITS) + 1, dtype=np.int64) << (32 - _DIRECTORY_BITS)
        directory = np.empty((order + 1, edges.shape[0]), dtype=np.int64)
        for n in range(order + 1):
            own = keys[starts[n] : starts[n + 1]]
            if (np.diff(own.astype(np.int64)) <= 0).any():
                raise ValueError(f"keys of length {n} must be ascending, got disorder")
            directory[n] = starts[n] + np.searchsorted(own, edges)
        return cls(order, starts, keys, begins, totals, tokens, counts, directory)

    @property
    def sizes(self) -> IntArray:
        """Successors per context."""
        return np.diff(self.begins)


def hash_step(
    digest: npt.NDArray[np.uint64], tokens: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    """Return the hashes of contexts that are longer by one token in front.

    Examples
    --------
    >>> digest = np.zeros(1, dtype=np.uint64)
    >>> int(hash_step(digest, np.array([5], dtype=np.uint64))[0] >> np.uint64(32)) < 2**32
    True
    """
    mixed = (digest ^ (tokens + _ONE)) * _MIX
    return mixed ^ (mixed >> _SHIFT)


def build_tables(
    texts: Sequence[tuple[IntArray, int]], *, order: int, most_successors: int = 8
) -> NgramTables:
    """Count successors.

    A context whose shorter form was always followed by one and the same token is left out, since
    it could only say the same.

    Parameters
    ----------
    texts
        Token ids, each in [0, 65,535], and the position from which on tokens are successors; what
        is before is context only.
    order
        Longest context, >= 1.
    most_successors
        Kept per context, the most frequent ones.

    Raises
    ------
    ValueError
        The order is below 1, or there is nothing to count.

    Examples
    --------
    >>> tables = build_tables([(np.array([1, 2, 3, 1, 2, 4]), 1)], order=2)
    >>> tables.starts.tolist(), tables.totals[:1].tolist()
    ([0, 1, 4, 5], [5])
    """
    if order < 1:
        raise ValueError(f"order must be >= 1, got {order}")
    parts = [_positions(ids, first, order) for ids, first in texts if ids.shape[0] > first]
    if not parts:
        raise ValueError("texts must hold successors, got none")
    successors = np.concatenate([part[0] for part in parts])
    before = np.concatenate([part[1] for part in parts])  # column n: the token n + 1 back, or -1
    digest = np.zeros(successors.shape[0], dtype=np.uint64)
    left = np.arange(successors.shape[0])
    keys, sizes, totals, tokens, counts, starts = [], [], [], [], [], [0]
    for n in range(order + 1):
        if n:
            left = left[before[left, n - 1] >= 0]
            digest[left] = hash_step(digest[left], before[left, n - 1].astype(np.uint64))
        context = (digest[left] >> _SHIFT).astype(np.uint32)
        table = _count(context, successors[left], most_successors)
        keys.append(table[0])
        sizes.append(table[1])
        totals.append(table[2])
        tokens.append(table[3])
        counts.append(table[4])
        starts.append(starts[-1] + table[0].shape[0])
        settled = table[0][table[5] == 1]
        left = left[~np.isin(context, settled)]
    return NgramTables.of(
        order,
        np.array(starts, dtype=np.int64),
        np.concatenate(keys),
        np.concatenate(sizes),
        np.concatenate(totals),
        np.concatenate(tokens),
        np.concatenate(counts),
    )


def _positions(ids: IntArray, first: int, order: int) -> tuple[IntArray, IntArray]:
    """Return successors, and the tokens before each of them, nearest first."""
    at = np.arange(max(first, 0), ids.shape[0])
    back = at[:, None] - 1 - np.arange(order)
    return ids[at], np.where(back >= 0, ids[np.maximum(back, 0)], -1)


def _count(
    context: npt.NDArray[np.uint32], successors: IntArray, most: int
) -> tuple[
    npt.NDArray[np.uint32],
    IntArray,
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
    IntArray,
]:
    """Return keys, sizes, totals, tokens, counts, and how many successors each key really has."""
    pairs, seen = np.unique(
        (context.astype(np.uint64) << np.uint64(16)) | successors.astype(np.uint64),
        return_counts=True,
    )
    of = (pairs >> np.uint64(16)).astype(np.uint32)
    token = (pairs & np.uint64(0xFFFF)).astype(np.uint16)
    ranked = np.lexsort((token, -seen, of))
    of, token, seen = of[ranked], token[ranked], seen[ranked]
    keys, first, distinct = np.unique(of, return_index=True, return_counts=True)
    totals = np.add.reduceat(seen, first)
    rank = np.arange(of.shape[0]) - np.repeat(first, distinct)
    kept = rank < most
    return (
        keys,
        np.minimum(distinct, most).astype(np.int64),
        np.minimum(totals, 0xFFFF).astype(np.uint16),
        token[kept],
        np.minimum(seen[kept], 0xFFFF).astype(np.uint16),
        distinct.astype(np.int64),
    )
