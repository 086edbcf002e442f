"""What a step's committed tokens say of every candidate, verified or not."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.predictors.compiled import compiled


@compiled(
    "Tuple((i8[::1], i8[::1]))(i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], b1)"
)
def grade_nodes(
    request: IntArray,
    parent: IntArray,
    depth: IntArray,
    tokens: IntArray,
    verified: IntArray,
    written: IntArray,
    begins: IntArray,
    hindsight: bool,
) -> tuple[IntArray, IntArray]:
    """Return which candidates are graded and which accepted, shape (m,) of 0 and 1 each.

    A node is graded if its parent is on the path that was written, and accepted if it is itself.

    Parameters
    ----------
    request, parent, depth, tokens
        Shape (m,): of the candidates.
    verified
        Shape (m,): 1 for those that were verified.
    written, begins
        Tokens that the step wrote, row after row, and shape (n + 1,): where each row's begin.
    hindsight
        Whether candidates that were not verified are graded: they must be a function of the text.

    Examples
    --------
    Of the siblings 5 and 6 the first was verified; the target wrote 6:

    >>> zeros, roots = np.zeros(2, np.int64), np.full(2, -1)
    >>> graded, accepted = grade_nodes(
    ...     zeros, roots, zeros + 1, np.array([5, 6]), np.array([1, 0]),
    ...     np.array([6]), np.array([0, 1]), True)
    >>> graded.tolist(), accepted.tolist()
    ([1, 1], [0, 1])
    """
    m = request.shape[0]
    graded = np.zeros(m, dtype=np.int64)
    accepted = np.zeros(m, dtype=np.int64)
    for j in range(m):
        if not hindsight and verified[j] == 0:
            continue
        if parent[j] >= 0 and accepted[parent[j]] == 0:
            continue
        at = begins[request[j]] + depth[j] - 1
        if at < begins[request[j] + 1]:
            graded[j] = 1
            accepted[j] = 1 if tokens[j] == written[at] else 0
    return graded, accepted
