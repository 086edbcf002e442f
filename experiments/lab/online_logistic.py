"""Prequential log loss of an online logistic model: predict a step, then learn from it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled

_CLIP = 1e-3


def prequential_losses(
    index: IntArray,
    value: FloatArray,
    right: npt.NDArray[np.bool_],
    step: IntArray,
    *,
    prior_sd: float = 1.0,
) -> FloatArray:
    """Return the log loss in nats of every token, each predicted before its step was learned.

    The model is a Bayesian logistic regression over sparse features, with independent normal priors
    about 0 and one Newton step per token. It has no learning rate, so that a set with more features
    pays for them what their uncertainty costs, and nothing else.

    Parameters
    ----------
    index, value
        Shape (n, features): which weights a token uses, and with what value; 0 for none. A token
        names each weight once.
    right, step
        Shape (n,): the outcomes, and the step of each, ascending.
    prior_sd
        Standard deviation of every weight before anything is seen, in logits.

    Raises
    ------
    ValueError
        Shapes disagree, or the prior has no spread.

    Examples
    --------
    >>> n = 400
    >>> losses = prequential_losses(
    ...     np.zeros((n, 1), dtype=np.int64), np.ones((n, 1)), np.arange(n) % 4 > 0, np.arange(n))
    >>> round(float(losses[0]), 3), bool(0.55 < losses[200:].mean() < 0.58)
    (0.693, True)

    References
    ----------
    Spiegelhalter, Lauritzen: Sequential updating of conditional probabilities on directed graphical
    structures. Networks 20, 1990. The prediction averages over the weights as in MacKay: The
    evidence framework applied to classification networks. Neural Computation 4, 1992.
    """
    if index.shape != value.shape:
        raise ValueError(f"index and value must agree, got {index.shape} and {value.shape}")
    if not 0.0 < prior_sd < math.inf:
        raise ValueError(f"prior_sd must be > 0, got {prior_sd}")
    weights = int(index.max()) + 1 if index.size else 0
    return _losses(
        np.ascontiguousarray(index),
        np.ascontiguousarray(value),
        right.astype(np.float64),
        np.ascontiguousarray(step),
        weights,
        prior_sd,
    )


@compiled("f8[::1](i8[:,::1], f8[:,::1], f8[::1], i8[::1], i8, f8)")
def _losses(
    index: IntArray,
    value: FloatArray,
    right: FloatArray,
    step: IntArray,
    n_weights: int,
    prior_sd: float,
) -> FloatArray:
    weight = np.zeros(n_weights)
    covariance = np.zeros((n_weights, n_weights))
    for w in range(n_weights):
        covariance[w, w] = prior_sd * prior_sd
    gain = np.zeros(n_weights)
    losses = np.zeros(right.shape[0])
    features = index.shape[1]
    begin = 0
    while begin < right.shape[0]:
        end = begin
        while end < right.shape[0] and step[end] == step[begin]:
            logit, variance = 0.0, 0.0
            for f in range(features):
                logit += weight[index[end, f]] * value[end, f]
                for g in range(features):
                    variance += (
                        value[end, f] * covariance[index[end, f], index[end, g]] * value[end, g]
                    )
            p = 1.0 / (1.0 + math.exp(-logit / math.sqrt(1.0 + math.pi * variance / 8.0)))
            shown = min(max(p, _CLIP), 1.0 - _CLIP)
            losses[end] = -math.log(shown if right[end] > 0.5 else 1.0 - shown)
            end += 1
        for i in range(begin, end):
            logit, variance = 0.0, 0.0
            gain[:] = 0.0
            for f in range(features):
                if value[i, f] != 0.0:
                    w = index[i, f]
                    logit += weight[w] * value[i, f]
                    # The covariance is symmetric: its rows lie together in memory.
                    gain += covariance[w] * value[i, f]
            for f in range(features):
                variance += gain[index[i, f]] * value[i, f]
            p = 1.0 / (1.0 + math.exp(-logit))
            slope = p * (1.0 - p)
            shrink = slope / (1.0 + slope * variance)
            for w in range(n_weights):
                if gain[w] != 0.0:
                    covariance[w] -= shrink * gain[w] * gain
            weight += gain * ((right[i] - p) / (1.0 + slope * variance))
        begin = end
    return losses
