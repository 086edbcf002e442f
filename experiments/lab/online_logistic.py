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
    rate: float,
) -> FloatArray:
    """Return the log loss in nats of every token, each predicted before its step was learned.

    The model is a logistic regression over sparse features, trained by AdaGrad from zero weights.

    Parameters
    ----------
    index, value
        Shape (n, features): which weights a token uses, and with what value; 0 for none.
    right, step
        Shape (n,): the outcomes, and the step of each, ascending.
    rate
        AdaGrad's learning rate, above 0.

    Examples
    --------
    >>> n = 400
    >>> losses = prequential_losses(
    ...     np.zeros((n, 1), dtype=np.int64), np.ones((n, 1)), np.arange(n) % 4 > 0,
    ...     np.arange(n), rate=0.5)
    >>> round(float(losses[0]), 3), 0.55 < losses[200:].mean() < 0.60
    (0.693, True)

    References
    ----------
    Duchi, Hazan, Singer: Adaptive subgradient methods. JMLR 12, 2011.
    """
    if index.shape != value.shape:
        raise ValueError(f"index and value must agree, got {index.shape} and {value.shape}")
    if not 0.0 < rate < math.inf:
        raise ValueError(f"rate must be > 0, got {rate}")
    weights = int(index.max()) + 1 if index.size else 0
    return _losses(
        np.ascontiguousarray(index),
        np.ascontiguousarray(value),
        right.astype(np.float64),
        np.ascontiguousarray(step),
        weights,
        rate,
    )


@compiled("f8[::1](i8[:,::1], f8[:,::1], f8[::1], i8[::1], i8, f8)")
def _losses(
    index: IntArray,
    value: FloatArray,
    right: FloatArray,
    step: IntArray,
    n_weights: int,
    rate: float,
) -> FloatArray:
    weight = np.zeros(n_weights)
    squares = np.full(n_weights, 1e-8)
    losses = np.zeros(right.shape[0])
    error = np.zeros(right.shape[0])
    begin = 0
    while begin < right.shape[0]:
        end = begin
        while end < right.shape[0] and step[end] == step[begin]:
            logit = 0.0
            for f in range(index.shape[1]):
                logit += weight[index[end, f]] * value[end, f]
            p = 1.0 / (1.0 + math.exp(-min(max(logit, -30.0), 30.0)))
            shown = min(max(p, _CLIP), 1.0 - _CLIP)
            losses[end] = -math.log(shown if right[end] > 0.5 else 1.0 - shown)
            error[end] = p - right[end]
            end += 1
        for i in range(begin, end):
            for f in range(index.shape[1]):
                if value[i, f] != 0.0:
                    slope = error[i] * value[i, f]
                    w = index[i, f]
                    squares[w] += slope * slope
                    weight[w] -= rate * slope / math.sqrt(squares[w])
        begin = end
    return losses
