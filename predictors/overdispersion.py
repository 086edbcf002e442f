"""How widely the random effects differ, from tokens that share them.

Two tokens that share effects have residuals e, e' with E[e·e'] = h·h'·(the variances of what they
share), where h = q(1 - q). Sums of e·e' and h·h' over such pairs are kept up token by token, from
decayed sums per effect; the variances solve linear equations in them (the moment estimator of
Williams: Extra-binomial variation in logistic linear models. Applied Statistics 31, 1982).
"""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray

REQUEST, REQUEST_POSITION, REQUEST_RENEWAL, SLOT, SLOT_NEAR = 0, 1, 2, 3, 4
"""Columns of variances, one per kind of effect."""
N_KINDS = 5
_LEAST, _MOST = 0.25, 9.0  # of the prior: what is small for now may grow


@compiled("void(f8[:,::1], f8[::1], f8[::1], f8)")
def estimate_variances(
    pairs: FloatArray, prior: FloatArray, variances: FloatArray, prior_pairs: float
) -> None:
    """Write the variance of each kind of effect; a prior counts like so many weighted pairs.

    Pairs that share both position and renewal are taken to be as many as if sharing one said
    nothing of the other.
    """
    products, slopes = pairs[0], pairs[1]
    own, position, renewal = slopes[REQUEST], slopes[REQUEST_POSITION], slopes[REQUEST_RENEWAL]
    both = position * renewal / own if own > 0.0 else 0.0
    matrix = np.empty((3, 3))
    matrix[0, 0], matrix[0, 1], matrix[0, 2] = own, position, renewal
    matrix[1, 0], matrix[1, 1], matrix[1, 2] = position, position, both
    matrix[2, 0], matrix[2, 1], matrix[2, 2] = renewal, both, renewal
    right = np.empty(3)
    for k in range(3):
        matrix[k, k] += prior_pairs
        right[k] = products[k] + prior_pairs * prior[k]
    solved = np.linalg.solve(matrix, right)
    apart = max(slopes[SLOT] - slopes[SLOT_NEAR], 0.0)
    across = (products[SLOT] - products[SLOT_NEAR] + prior_pairs * prior[SLOT]) / (
        apart + prior_pairs
    )
    near = (products[SLOT_NEAR] - across * slopes[SLOT_NEAR] + prior_pairs * prior[SLOT_NEAR]) / (
        slopes[SLOT_NEAR] + prior_pairs
    )
    for k in range(N_KINDS):
        value = solved[k] if k < 3 else (across if k == SLOT else near)
        if math.isfinite(value):
            variances[k] = min(max(value, _LEAST * prior[k]), _MOST * prior[k])
        else:
            variances[k] = prior[k]
