"""Arithmetic of draft trees on the flat arrays of `acclimate.controller.records.Candidates`.

Parents stand before their children, and siblings in the drafter's order, the likeliest first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import Candidates, FloatArray, IntArray
from acclimate.predictors.compiled import compiled

BoolArray = npt.NDArray[np.bool_]


@compiled("f8[::1](i8[::1], i8[::1], f8[::1], i8)")
def path_survival(
    request: IntArray, parent: IntArray, conditional: FloatArray, n_requests: int
) -> FloatArray:
    """Return P(the whole path up to and including each node is accepted), shape (m,).

    Siblings exclude each other: where their conditional probabilities add up to more than 1, they
    are scaled down to 1.

    Parameters
    ----------
    request, parent
        Shape (m,): of each node, as in `Candidates`.
    conditional
        Shape (m,): P(the node is accepted | its parent was), in [0, 1].
    n_requests
        Requests of the step.

    Examples
    --------
    >>> path_survival(np.array([0, 0, 0]), np.array([-1, 0, 0]), np.array([0.5, 0.9, 0.6]), 1)
    array([0.5, 0.3, 0.2])
    """
    m = parent.shape[0]
    total = np.zeros(n_requests + m)
    for j in range(m):
        total[request[j] if parent[j] < 0 else n_requests + parent[j]] += conditional[j]
    survival = np.empty(m)
    for j in range(m):
        shared = total[request[j] if parent[j] < 0 else n_requests + parent[j]]
        above = 1.0 if parent[j] < 0 else survival[parent[j]]
        survival[j] = above * conditional[j] / max(shared, 1.0)
    return survival


@compiled("f8[::1](i8[::1], f8[::1])")
def conditionals(parent: IntArray, survival: FloatArray) -> FloatArray:
    """Return P(each node is accepted | its parent was) from survival along paths, shape (m,).

    >>> conditionals(np.array([-1, 0]), np.array([0.5, 0.25])).tolist()
    [0.5, 0.5]
    """
    result = np.empty(parent.shape[0])
    for j in range(parent.shape[0]):
        above = 1.0 if parent[j] < 0 else survival[parent[j]]
        result[j] = min(survival[j] / above, 1.0) if above > 0.0 else 0.0
    return result


@compiled("i8[::1](i8[::1], i8[::1], i8)")
def sibling_ranks(request: IntArray, parent: IntArray, n_requests: int) -> IntArray:
    """Return how many siblings stand before each node, shape (m,).

    >>> sibling_ranks(np.array([0, 0, 0, 1]), np.array([-1, 0, -1, -1]), 2).tolist()
    [0, 0, 1, 0]
    """
    m = parent.shape[0]
    seen = np.zeros(n_requests + m, dtype=np.int64)
    rank = np.empty(m, dtype=np.int64)
    for j in range(m):
        family = request[j] if parent[j] < 0 else n_requests + parent[j]
        rank[j] = seen[family]
        seen[family] += 1
    return rank


@compiled("i8[::1](i8[::1], i8[::1], i8[::1], i8)")
def deepest_kept(request: IntArray, depth: IntArray, kept: IntArray, n_requests: int) -> IntArray:
    """Return the depth of the deepest kept node of each request, shape (n_requests,).

    Parameters
    ----------
    request, depth
        Shape (m,): of each node.
    kept
        Indices of the nodes that are kept.

    >>> deepest_kept(np.array([0, 0, 1]), np.array([1, 2, 1]), np.array([0, 1]), 2).tolist()
    [2, 0]
    """
    deepest = np.zeros(n_requests, dtype=np.int64)
    for j in kept:
        deepest[request[j]] = max(deepest[request[j]], depth[j])
    return deepest


@compiled("i8[::1](i8[::1], i8[::1], i8[::1], i8[::1])")
def first_chain(request: IntArray, parent: IntArray, depth: IntArray, lens: IntArray) -> IntArray:
    """Return the nodes of each request's chain of first children, down to a depth, ascending.

    That is what a policy of chains verifies on an engine of trees.

    Parameters
    ----------
    request, parent, depth
        Shape (m,): of each node.
    lens
        Shape (n,): how deep each request's chain may be.

    Examples
    --------
    >>> first_chain(np.zeros(4, np.int64), np.array([-1, -1, 0, 0]), np.array([1, 1, 2, 2]),
    ...             np.array([5])).tolist()
    [0, 2]
    """
    m = parent.shape[0]
    last = np.full(lens.shape[0], -1)  # end of each chain so far
    reached = np.zeros(lens.shape[0], dtype=np.int64)
    chain = np.empty(m, dtype=np.int64)
    count = 0
    for j in range(m):
        r = request[j]
        if parent[j] == last[r] and reached[r] == depth[j] - 1 and depth[j] <= lens[r]:
            last[r], reached[r] = j, depth[j]
            chain[count] = j
            count += 1
    return chain[:count].copy()


def kept_fault(kept: IntArray, candidates: Candidates | None) -> str | None:
    """Return what is wrong with a choice of nodes, or None: it must be ascending and connected.

    >>> none = np.zeros(0, np.int64)
    >>> tree = Candidates(np.array([0, 0]), np.array([-1, 0]), np.array([1, 2]), np.ones(2))
    >>> kept_fault(np.array([1]), tree), kept_fault(np.array([0, 1]), tree), kept_fault(none, None)
    ('kept must hold the parents of what it holds', None, None)
    """
    if kept.dtype != np.int64 or kept.ndim != 1:
        return f"kept must be a row of int64, got {kept.dtype}{kept.shape}"
    if not kept.size:
        return None
    if candidates is None:
        return "kept must be empty where there are no candidates"
    size = candidates.parent.shape[0]
    if kept[0] < 0 or kept[-1] >= size or (np.diff(kept) <= 0).any():
        return f"kept must be ascending in [0, {size - 1}]"
    inside = np.zeros(size + 1, dtype=np.bool_)
    inside[kept] = inside[-1] = True  # the root is behind the last
    if not inside[candidates.parent[kept]].all():
        return "kept must hold the parents of what it holds"
    return None
