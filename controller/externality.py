"""Good neighbours: how long a step may be so that every target within reach stays within reach."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled

_CERTAINTY = 1.5  # standard deviations of a request's yield over its remaining steps


@compiled("f8(f8, f8, f8)")
def _sure_yield(gain: float, second: float, left: float) -> float:
    """Return drafts accepted per step that a request can count on over its remaining steps.

    ``gain`` and ``second`` are first and second moment of the drafts accepted in a step.
    """
    if gain <= 0.0:
        return 0.0
    steps = max(left / (1.0 + gain), 1.0)
    spread = np.sqrt(max(second - gain * gain, 0.0) / steps)
    return float(max(gain - _CERTAINTY * spread, 0.0))


@compiled("f8[::1](i8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1], f8)")
def longest_steps_ms(
    order: IntArray,
    request: IntArray,
    depth: IntArray,
    survival: FloatArray,
    pace_ms: FloatArray,
    left_tokens: FloatArray,
    longest_ms: float,
) -> FloatArray:
    """Return how long the step may be that verifies the first 0, 1, … m candidates, shape (m + 1,).

    A request with S seconds until its answer is due and L tokens to come keeps its target within
    reach while it gets a token every S/L: spread over its remaining steps, and not spent in one. A
    step in which it writes E tokens may take E·S/L. Of what its own drafts yield, that counts on
    which it can rely: over N = L/E steps, the mean less 1.5 standard errors, and so nothing towards
    the end. A request that verifies nothing has E = 1, whatever its neighbours gain.

    Parameters
    ----------
    order
        Shape (m,): candidates in the order in which they are taken, parents first.
    request, depth, survival
        Shape (m,): of each candidate; survival as it is believed.
    pace_ms
        Shape (n,): S/L of each request in ms, infinite where no target is at stake. Where it is a
        little below a plain step's time, give the plain step's time: no step is then allowed in
        which the request would write more slowly than without any drafts.
    left_tokens
        Shape (n,): L.
    longest_ms
        A bound whatever is verified.

    Examples
    --------
    >>> none = np.zeros(2, np.int64)
    >>> longest_steps_ms(np.array([0, 1]), none, np.array([1, 2]), np.array([0.9, 0.8]),
    ...                  np.array([10.0, 15.0]), np.array([400.0, 50.0]), np.inf).round(1).tolist()
    [10.0, 15.0, 15.0]
    """
    n, m = pace_ms.shape[0], order.shape[0]
    size = 1
    while size < n:
        size *= 2
    # A tournament: each node holds the least of the two below it.
    least = np.full(2 * size, np.inf)
    for r in range(n):
        least[size + r] = pace_ms[r]
    for node in range(size - 1, 0, -1):
        least[node] = min(least[2 * node], least[2 * node + 1])
    result = np.empty(m + 1)
    result[0] = min(least[1], longest_ms)
    gain, second = np.zeros(n), np.zeros(n)
    for j in range(m):
        node = order[j]
        r = request[node]
        if pace_ms[r] < np.inf:
            gain[r] += survival[node]
            second[r] += (2.0 * depth[node] - 1.0) * survival[node]
            place = size + r
            least[place] = pace_ms[r] * (1.0 + _sure_yield(gain[r], second[r], left_tokens[r]))
            while place > 1:
                place //= 2
                least[place] = min(least[2 * place], least[2 * place + 1])
        result[j + 1] = min(least[1], longest_ms)
    return result
