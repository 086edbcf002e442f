"""Means over seeds with 95 % bootstrap intervals; a seed is what is drawn anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.experiments.figures import Figure
from acclimate.experiments.statistics import interval, resample


def mean_over_seeds(
    name: str, values: Sequence[float], rng: np.random.Generator, unit: str = ""
) -> Figure:
    """Return the mean of one value per seed; no interval below three.

    Examples
    --------
    >>> mean_over_seeds("a", [1.0, 1.0, 1.0], np.random.default_rng(0)).text
    '1'
    """
    sample = np.asarray(values, dtype=np.float64)
    if not sample.size:
        return Figure(name, None, n=0, unit=unit)
    draws = sample[resample(sample.size, rng)].mean(axis=1)
    return interval(name, float(sample.mean()), draws, sample.size, unit)


def censored_median(
    name: str, values: Sequence[float], rng: np.random.Generator, unit: str = ""
) -> Figure:
    """Return the median of values of which some never came (infinity).

    Where more than half never came, the median is unknown and so is None; the same holds for the
    upper end of its interval.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> censored_median("a", [1.0, 2.0, np.inf], rng).value
    2.0
    >>> censored_median("a", [1.0, np.inf, np.inf], rng).value is None
    True
    """
    sample = np.asarray(values, dtype=np.float64)
    if not sample.size:
        return Figure(name, None, n=0, unit=unit)
    # Of an even number the lower middle one: the mean with an infinity would say nothing.
    draws = np.sort(sample[resample(sample.size, rng)], axis=1)[:, (sample.size - 1) // 2]
    if sample.size < 3:
        low = high = np.nan
    else:
        low, high = np.quantile(draws, [0.025, 0.975], method="nearest")
    middle = float(np.sort(sample)[(sample.size - 1) // 2])
    return Figure(name, middle, float(low), float(high), n=sample.size, unit=unit)
