"""Small numeric helpers that several learners share."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_Scalar = TypeVar("_Scalar", bound=np.generic)


def save_arrays(owner: object, names: tuple[str, ...]) -> dict[str, Any]:
    """Return copies of an object's arrays by name, for its ``state``."""
    return {name: getattr(owner, name).copy() for name in names}


def load_arrays(
    owner: object,
    names: tuple[str, ...],
    state: dict[str, Any],
    *,
    growing: tuple[str, ...] = (),
    finite: bool = False,
) -> None:
    """Replace an object's arrays by those of a state, which stay the state's own; types are kept.

    Compiled code trusts shapes: one that differs from the object's is refused before anything is
    replaced.

    Parameters
    ----------
    owner, names, state
        As for `save_arrays`.
    growing
        Names of arrays with a row per request: their first axis may have any length.
    finite
        Whether NaN and infinity are refused.

    Raises
    ------
    ValueError
        An array is missing, of another shape, not numeric, or not finite.

    Examples
    --------
    >>> class Learner:
    ...     sums = np.zeros(2)
    >>> learner = Learner()
    >>> load_arrays(learner, ("sums",), {"sums": [1, 2]})
    >>> save_arrays(learner, ("sums",))
    {'sums': array([1., 2.])}
    """
    loaded = {}
    for name in names:
        if name not in state:
            raise ValueError(f"a state must have {name!r}, got {', '.join(map(str, state))}")
        have = getattr(owner, name)
        found = np.array(state[name], dtype=have.dtype, order="C")
        shape = found.shape[:1] + have.shape[1:] if name in growing else have.shape
        if found.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {found.shape}")
        if finite and not np.isfinite(found).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity")
        loaded[name] = found
    for name, found in loaded.items():
        setattr(owner, name, found)


def with_rows(array: npt.NDArray[_Scalar], n_rows: int, fill: float = 0) -> npt.NDArray[_Scalar]:
    """Return an array with ``n_rows`` rows at least: itself, or with new ones of ``fill`` behind.

    >>> with_rows(np.ones((1, 2)), 2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    missing = n_rows - array.shape[0]
    if missing <= 0:
        return array
    return np.concatenate([array, np.full((missing, *array.shape[1:]), fill, array.dtype)])


def check_range(name: str, values: npt.ArrayLike, least: int, most: int) -> None:
    """Refuse numbers that compiled code would take for places outside its arrays.

    Raises
    ------
    ValueError
        Some value is outside ``[least, most]``.

    Examples
    --------
    >>> check_range("pool", [0, 7], 0, 3)
    Traceback (most recent call last):
        ...
    ValueError: pool must be in [0, 3], got 0 to 7
    """
    found = np.asarray(values)
    if found.size and not least <= found.min() <= found.max() <= most:
        raise ValueError(f"{name} must be in [{least}, {most}], got {found.min()} to {found.max()}")


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
