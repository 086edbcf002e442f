"""What promises make of the worth of a request's tokens: kernels of the keeper."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled

_NEAR_TOKENS = 2.0  # of margin, below which a request is about to hold up the batch
_URGENCY = 2.0  # worth of its drafts, for each token that lacks


@compiled("void(f8[::1], f8[::1])")
def help_late(weights: FloatArray, margins: FloatArray) -> None:
    """Let the drafts of requests near their bound count for more, in place.

    Parameters
    ----------
    weights
        Shape (n,): what a token of each request is worth.
    margins
        Shape (n,): tokens that each may still fall behind its twin.

    Examples
    --------
    >>> weights = np.ones(2)
    >>> help_late(weights, np.array([5.0, 0.5]))
    >>> weights.tolist()
    [1.0, 4.0]
    """
    for r in range(weights.shape[0]):
        weights[r] += _URGENCY * max(_NEAR_TOKENS - margins[r], 0.0)


@compiled("void(f8[::1], i8[::1], i8[::1], f8[::1], i8[::1], f8)")
def share_out(
    weights: FloatArray,
    rows: IntArray,
    tenant_of: IntArray,
    served: FloatArray,
    alive: IntArray,
    fairness: float,
) -> None:
    """Let the drafts of a tenant count for less, the further it is ahead, in place.

    A tenant that is one unit of ``fairness`` ahead of the least served counts for half.

    Parameters
    ----------
    weights, rows
        Shape (n,): what a token of each request is worth, and the request's row.
    tenant_of
        Shape (rows,): the tenant of each row, -1 if it has none.
    served, alive
        Shape (tenants,): work done for each, and its requests in service.
    fairness
        Per unit of work.
    """
    least = np.inf
    for tenant in range(served.shape[0]):
        if alive[tenant] > 0:
            least = min(least, served[tenant])
    for r in range(weights.shape[0]):
        ahead = served[max(tenant_of[rows[r]], 0)] - least
        weights[r] /= 1.0 + fairness * max(ahead, 0.0)


@compiled("f8[::1](f8[:,::1], f8[::1])")
def best_paces(survival: FloatArray, curve: FloatArray) -> FloatArray:
    """Return the tokens per ms of each request if the step verified its drafts alone, at best.

    Parameters
    ----------
    survival
        Shape (n, depth): P(the first i drafts are all accepted).
    curve
        Milliseconds of the step with 0, 1, … verified drafts.

    Returns
    -------
    FloatArray
        Shape (n,).

    Examples
    --------
    >>> best_paces(np.array([[0.8, 0.1]]), np.array([10.0, 12.0, 14.0])).tolist()
    [0.15]
    """
    n, depth = survival.shape
    result = np.empty(n)
    last = curve.shape[0] - 1
    for r in range(n):
        tokens, best = 1.0, 1.0 / curve[0]
        for i in range(depth):
            tokens += survival[r, i]
            best = max(best, tokens / curve[min(i + 1, last)])
        result[r] = best
    return result
