"""When requests arrive: Poisson processes, steady, in bursts, or of classes that peak in turn."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray


def poisson_arrivals(requests: int, rate_per_s: float, rng: np.random.Generator) -> FloatArray:
    """Return the times of ``requests`` arrivals of a Poisson process, in seconds.

    Raises
    ------
    ValueError
        The rate is not above 0.

    Examples
    --------
    >>> times_s = poisson_arrivals(1000, 4.0, np.random.default_rng(0))
    >>> bool(230 < times_s[-1] < 270)
    True
    """
    if not rate_per_s > 0:
        raise ValueError(f"rate_per_s must be > 0, got {rate_per_s}")
    return np.cumsum(rng.exponential(1.0 / rate_per_s, size=requests))


def burst_arrivals(
    requests: int,
    rate_per_s: float,
    rng: np.random.Generator,
    *,
    burst_factor: float,
    every_s: float,
    burst_s: float,
) -> FloatArray:
    """Return arrivals of a Poisson process whose rate rises by a factor in regular bursts.

    Parameters
    ----------
    rate_per_s
        Between bursts.
    burst_factor
        By which the rate rises in a burst.
    every_s, burst_s
        A burst begins every ``every_s`` seconds, the first at ``every_s - burst_s``, and lasts
        ``burst_s``.

    Raises
    ------
    ValueError
        A rate is not above 0, or a burst is longer than its period.

    Examples
    --------
    >>> times_s = burst_arrivals(
    ...     1000, 1.0, np.random.default_rng(0), burst_factor=10.0, every_s=10.0, burst_s=1.0)
    >>> bool((times_s % 10.0 >= 9.0).mean() > 0.4)
    True
    """
    if not (rate_per_s > 0 and burst_factor > 0):
        raise ValueError(f"rates must be > 0, got {rate_per_s} and factor {burst_factor}")
    if not 0 < burst_s < every_s:
        raise ValueError(f"burst_s must be in (0, every_s {every_s}), got {burst_s}")
    # Arrivals of rate 1 on a clock that runs by the cumulated rate, which is piecewise linear.
    load = np.cumsum(rng.exponential(size=requests))
    quiet_s = every_s - burst_s
    quiet_load = rate_per_s * quiet_s
    period_load = quiet_load + rate_per_s * burst_factor * burst_s
    periods, inside = np.divmod(load, period_load)
    calm = inside < quiet_load
    within_s = np.where(
        calm,
        inside / rate_per_s,
        quiet_s + (inside - quiet_load) / (rate_per_s * burst_factor),
    )
    times_s: FloatArray = periods * every_s + within_s
    return times_s


def staggered_arrivals(
    duration_s: float,
    rates_per_s: FloatArray,
    rng: np.random.Generator,
    *,
    every_s: float,
    peak_factor: float,
) -> tuple[FloatArray, IntArray]:
    """Return Poisson arrivals of several classes that peak in turn, and each arrival's class.

    Parameters
    ----------
    duration_s
        Until when requests arrive.
    rates_per_s
        Shape (classes,): mean rate of each.
    every_s
        Time in which each class has one peak, of an equal part of it.
    peak_factor
        A class's rate at its peak over its mean, in [1, classes]; between peaks it is lower, so
        that the mean holds over every period.

    Raises
    ------
    ValueError
        A time or a rate is not above 0, or the factor is out of range.

    Examples
    --------
    >>> times_s, kind = staggered_arrivals(
    ...     600.0, np.array([2.0, 1.0]), np.random.default_rng(0), every_s=60.0, peak_factor=1.5)
    >>> first_half = times_s % 60.0 < 30.0
    >>> [round(float(first_half[kind == k].mean()), 1) for k in (0, 1)]
    [0.8, 0.2]
    """
    kinds = rates_per_s.shape[0]
    if not (duration_s > 0 and every_s > 0 and (rates_per_s > 0).all()):
        raise ValueError(
            f"times and rates must be > 0, got {duration_s}, {every_s} and {rates_per_s.tolist()}"
        )
    if not 1 <= peak_factor <= kinds:
        raise ValueError(f"peak_factor must be in [1, {kinds}], got {peak_factor}")
    calm_factor = (kinds - peak_factor) / max(kinds - 1, 1)
    periods = int(np.ceil(duration_s / every_s))
    edges_s = np.arange(periods * kinds + 1) * (every_s / kinds)
    times, kind_of = [], []
    for kind, rate in enumerate(rates_per_s.tolist()):
        part = np.arange(periods * kinds) % kinds
        factors = np.where(part == kind, peak_factor, calm_factor if kinds > 1 else 1.0)
        load = np.concatenate([[0.0], np.cumsum(rate * factors * every_s / kinds)])
        drawn = np.cumsum(rng.exponential(size=round(load[-1] + 10.0 * load[-1] ** 0.5 + 50.0)))
        own_s = np.interp(drawn[drawn < load[-1]], load, edges_s)
        own_s = own_s[own_s < duration_s]
        times.append(own_s)
        kind_of.append(np.full(own_s.shape[0], kind, dtype=np.int64))
    times_s, kinds_of = np.concatenate(times), np.concatenate(kind_of)
    order = np.argsort(times_s, kind="stable")
    return times_s[order], kinds_of[order]
