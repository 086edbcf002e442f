"""Targets that only speculation can meet: which of them a step keeps within reach."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled


@compiled("f8[::1](i8[::1], i8[::1], f8[::1], f8[::1], f8[::1], f8[::1])")
def rescued_tokens(
    order: IntArray,
    request: IntArray,
    survival: FloatArray,
    milliseconds: FloatArray,
    pace_ms: FloatArray,
    stake: FloatArray,
) -> FloatArray:
    """Return the tokens that stay of use with the first 0, 1, … m candidates verified, shape (m + 1,).

    A request that must write faster than a plain step does keeps its target within reach in a step
    in which it writes E tokens, if that takes E times its pace at most. E·stake tokens then stay of
    use: those of the step, and their share of all that it has written. Step times are taken as
    never falling with the number of candidates.

    Parameters
    ----------
    order
        Shape (m,): candidates in the order in which they are taken, parents first.
    request, survival
        Shape (m,): of each candidate; survival as it is believed.
    milliseconds
        Shape (m + 1,): of the step with 0, 1, … candidates.
    pace_ms
        Shape (n,): time per token that each may take from now on, in ms; infinite where the target
        is in no danger, or lost.
    stake
        Shape (n,): tokens of the whole answer over those to come, >= 1.

    Examples
    --------
    >>> one = np.zeros(1, np.int64)
    >>> rescued_tokens(one, one, np.array([0.8]), np.array([10.0, 12.0]), np.array([7.0]),
    ...                np.array([2.0])).tolist()
    [0.0, 3.6]
    """
    m = order.shape[0]
    longest = np.empty(m + 1)
    so_far = 0.0
    for j in range(m + 1):
        so_far = max(so_far, milliseconds[j])
        longest[j] = so_far
    tokens = np.ones(pace_ms.shape[0])
    since = np.zeros(pace_ms.shape[0], dtype=np.int64)
    change = np.zeros(m + 2)
    for j in range(m + 1):
        r = request[order[j]] if j < m else -1
        for s in range(pace_ms.shape[0] if j == m else 1):
            row = s if j == m else r
            if pace_ms[row] == np.inf:
                continue
            # From its latest candidate to this one the request writes so many tokens.
            first, end = since[row], j + 1
            within = np.searchsorted(longest[first:end], tokens[row] * pace_ms[row], side="right")
            if within > 0:
                use = tokens[row] * stake[row]
                change[first] += use
                change[first + within] -= use
            if j < m:
                tokens[row] += survival[order[j]]
                since[row] = j + 1
    return np.cumsum(change[: m + 1])
