"""Intervals by bootstrap over prompts (or seeds), non-inferiority, and Holm's correction.

What varies from prompt to prompt is what an operator's traffic would vary in, so prompts are drawn
anew, and every arm is seen on the same draw. Rounds repeat a measurement and are aggregated before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.figures import Figure

RESAMPLES = 4_000
_LEVEL = 0.95
_LEAST = 3


def resample(n: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> IntArray:
    """Draw indices of ``n`` prompts with replacement, shape (resamples, n).

    Raises
    ------
    ValueError
        ``n`` or ``resamples`` is below 1.
    """
    if n < 1 or resamples < 1:
        raise ValueError(f"n and resamples must be >= 1, got {n} and {resamples}")
    return rng.integers(0, n, size=(resamples, n))


def speeds(tokens: FloatArray, seconds: FloatArray, index: IntArray | None = None) -> FloatArray:
    """Return the speed of every arm: the sum of tokens over the sum of seconds.

    Parameters
    ----------
    tokens
        Shape (prompts,).
    seconds
        Shape (arms, prompts).
    index
        A draw of prompts, shape (resamples, prompts); None for the sample itself.

    Returns
    -------
    FloatArray
        Shape (arms,), or (arms, resamples).

    Examples
    --------
    >>> speeds(np.array([10.0, 30.0]), np.array([[1.0, 1.0], [2.0, 2.0]])).tolist()
    [20.0, 10.0]
    """
    if index is None:
        index = np.arange(tokens.shape[0], dtype=np.int64)
    total: FloatArray = tokens[index].sum(axis=-1) / seconds[:, index].sum(axis=-1)
    return total


def median_speeds(seconds: FloatArray, index: IntArray | None = None) -> FloatArray:
    """Return the reciprocal of every arm's median time, as `speeds` does for sums.

    >>> median_speeds(np.array([[0.1, 0.2, 0.9]])).tolist()
    [5.0]
    """
    if index is None:
        index = np.arange(seconds.shape[1], dtype=np.int64)
    middle: FloatArray = 1.0 / np.median(seconds[:, index], axis=-1)
    return middle


def interval(name: str, value: float, draws: FloatArray, n: int, unit: str = "") -> Figure:
    """Return a value with the percentile interval of its resamples; none below three prompts.

    >>> figure = interval("a/b", 1.0, np.linspace(0.9, 1.1, 1001), n=39)
    >>> figure.text
    '1 [0.905, 1.095]'
    """
    if n < _LEAST:
        return Figure(name, value, n=n, unit=unit)
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Figure(name, value, float(low), float(high), n=n, unit=unit)


def inferiority_p(draws: FloatArray, margin: float) -> float:
    """Return the one-sided p-value of "the ratio is at most ``margin``".

    It is below 0.05 exactly where the 95 % lower bound of the ratio lies above the margin.

    >>> inferiority_p(np.array([0.99, 1.0, 1.01]), margin=0.98)
    0.25
    """
    return float((1 + np.count_nonzero(draws <= margin)) / (1 + draws.size))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being several, after Holm: in the order given, at most 1.

    References
    ----------
    S. Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6 (1979).

    Examples
    --------
    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = p[order] * np.arange(p.size, 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return [float(value) for value in adjusted]
