"""Small numeric helpers that several learners share."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_EDGE = 1e-4


def logit(p: FloatArray) -> FloatArray:
    """Return log-odds, with probabilities kept 1e-4 away from 0 and 1.

    >>> logit(np.array([0.5, 1.0])).round(3).tolist()
    [0.0, 9.21]
    """
    p = np.minimum(np.maximum(p, _EDGE), 1.0 - _EDGE)
    return np.log(p / (1.0 - p))


def sigmoid(x: FloatArray) -> FloatArray:
    """Return 1 / (1 + exp(-x)).

    >>> sigmoid(np.array([0.0])).tolist()
    [0.5]
    """
    return 1.0 / (1.0 + np.exp(-x))


def geometric_buckets(largest: int, exact: int, per_octave: int) -> IntArray:
    """Return the bucket of each integer in ``[0, largest]``: one each up to ``exact``, then wider.

    >>> geometric_buckets(12, exact=4, per_octave=2).tolist()
    [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7]
    """
    values = np.arange(largest + 1)
    wide = exact + np.floor(per_octave * np.log2(np.maximum(values, 1) / exact)).astype(np.int64)
    return np.where(values <= exact, values, np.maximum(wide, exact))
