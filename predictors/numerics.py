"""Small numeric helpers that several learners share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def save_arrays(owner: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Return copies of an object's arrays by name, for its ``state``."""
    return {name: getattr(owner, name).copy() for name in names}


def load_arrays(owner: object, names: tuple[str, ...], state: dict[str, Any]) -> None:
    """Replace an object's arrays by those of a state, which stay the state's own; types are kept.

    >>> class Learner:
    ...     sums = np.zeros(2)
    >>> learner = Learner()
    >>> load_arrays(learner, ("sums",), {"sums": [1, 2]})
    >>> save_arrays(learner, ("sums",))
    {'sums': array([1., 2.])}
    """
    for name in names:
        setattr(owner, name, np.array(state[name], dtype=getattr(owner, name).dtype))


def geometric_buckets(largest: int, exact: int, per_octave: int) -> IntArray:
    """Return the bucket of each integer in ``[0, largest]``: one each up to ``exact``, then wider.

    Powers of two above ``exact`` lie in the middle of their buckets: a batch of 255 is like one of
    256.

    >>> geometric_buckets(12, exact=4, per_octave=2).tolist()
    [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7]
    """
    values = np.arange(largest + 1)
    wide = exact + np.rint(per_octave * np.log2(np.maximum(values, 1) / exact)).astype(np.int64)
    return np.where(values <= exact, values, np.maximum(wide, exact))
