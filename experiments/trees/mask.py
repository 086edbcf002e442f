"""Who sees whom in a tree: ancestors, and the tokens in front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import IntArray
from acclimate.predictors.compiled import compiled

BoolArray = npt.NDArray[np.bool_]


@compiled("b1[:,::1](i8[::1])")
def ancestors(parent: IntArray) -> BoolArray:
    """Return which nodes each node sees: itself and its ancestors, shape (m, m).

    Parameters
    ----------
    parent
        Shape (m,): of each node, -1 for a root; parents stand before children.

    Examples
    --------
    >>> ancestors(np.array([-1, 0, 0])).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    """
    m = parent.shape[0]
    sees = np.zeros((m, m), dtype=np.bool_)
    for j in range(m):
        if parent[j] >= 0:
            for i in range(j):
                sees[j, i] = sees[parent[j], i]
        sees[j, j] = True
    return sees


def batch_sight(lengths: IntArray, parents: Sequence[IntArray]) -> BoolArray:
    """Return who sees whom in a batch, shape (rows, widest, longest + widest).

    A row's new nodes lie behind its own ``lengths`` tokens. What fills a row up sees itself alone,
    and nobody sees it.

    Parameters
    ----------
    lengths
        Shape (rows,): tokens whose keys and values are at hand.
    parents
        Of each row's new nodes.

    Examples
    --------
    >>> batch_sight(np.array([1, 0]), [np.array([-1, 0]), np.array([-1])]).astype(int).tolist()
    [[[1, 1, 0], [1, 1, 1]], [[1, 0, 0], [0, 1, 0]]]
    """
    widest = max(parent.shape[0] for parent in parents)
    sight = np.zeros((len(parents), widest, int(lengths.max()) + widest), dtype=np.bool_)
    for row, (length, parent) in enumerate(zip(lengths.tolist(), parents, strict=True)):
        m = parent.shape[0]
        sight[row, :m, :length] = True
        sight[row, :m, length : length + m] = ancestors(parent)
        for filler in range(m, widest):
            sight[row, filler, length + filler] = True
    return sight
