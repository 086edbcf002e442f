"""Sizes that an engine pads its steps to: which cell a step is in, and as how long it counts."""

from __future__ import annotations

import numpy as np

from acclimate.predictors.numerics import IntArray, geometric_buckets


def padded(capture_sizes: tuple[int, ...], most: int) -> tuple[IntArray, IntArray]:
    """Return cell and padded count of 0, 1, … ``most``, each of shape (most + 1,).

    Counts beyond the largest size are not padded; their cells are their own, wider with the count.

    Parameters
    ----------
    capture_sizes
        Ascending and positive; empty for an engine that does not pad.
    most
        Largest count.

    Raises
    ------
    ValueError
        ``capture_sizes`` are not ascending and positive.

    Examples
    --------
    >>> cell, count = padded((1, 2, 4), 6)
    >>> cell.tolist(), count.tolist()
    ([0, 0, 1, 2, 2, 8, 9], [1, 1, 2, 4, 4, 5, 6])
    """
    if any(a >= b for a, b in zip((0, *capture_sizes), capture_sizes, strict=False)):
        raise ValueError(f"capture_sizes must be ascending and positive, got {capture_sizes}")
    counts = np.arange(most + 1)
    cell = geometric_buckets(most, exact=32, per_octave=8)
    if not capture_sizes:
        return cell, counts
    sizes = np.array(capture_sizes)
    index = np.searchsorted(sizes, counts)
    within = index < sizes.size
    return (
        np.where(within, index, sizes.size + cell),
        np.where(within, sizes[np.minimum(index, sizes.size - 1)], counts),
    )
