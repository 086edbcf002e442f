"""Never slower: the engine that verifies nothing, and how long a step may be beside it."""

from __future__ import annotations

import math

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.controller.step_time import STALL_RATIO
from acclimate.predictors.compiled import compiled

_CERTAINTY = 1.64  # standard errors
_UNMEASURED_ERROR = 0.5  # of an extrapolated difference, as a share of it


def longest_step_ms(
    margins: FloatArray, plain_ms: float, *, share: float, aggregate: bool = False
) -> float:
    """Return how long a step may be at most; a plain one is always allowed.

    In a step of T ms a request writes one token at least, and its twin T/T₀. Its margin
    lead + B + η·twin so changes by no less than 1 - (1 - η)·T/T₀, whatever becomes of the drafts: it
    stays non-negative while T ≤ T₀·(margin + 1)/(1 - η).

    Parameters
    ----------
    margins
        Shape (n,): lead + B + η·twin of each request, in tokens
        (`PromiseTable.twin_margin_tokens`).
    plain_ms
        T₀: the same step with nothing verified.
    share
        η, in [0, 1].
    aggregate
        Whether requests may lend each other: the mean of the margins counts, not the least.

    Examples
    --------
    >>> margins = np.array([8.0, 0.1])
    >>> round(longest_step_ms(margins, 10.0, share=0.0), 3)
    11.0
    >>> longest_step_ms(margins, 10.0, share=0.0, aggregate=True)
    50.5
    >>> longest_step_ms(np.array([-3.0]), 10.0, share=0.05)
    10.0
    """
    if not margins.size:
        return math.inf
    if share >= 1.0:
        return math.inf
    margin = float(margins.mean() if aggregate else margins.min())
    return plain_ms * max(1.0, (margin + 1.0) / (1.0 - share))


@compiled("f8[::1](f8[::1], f8[::1], f8)")
def upper_ms(milliseconds: FloatArray, errors_ms: FloatArray, plain_ms: float) -> FloatArray:
    """Return upper bounds of how long a step takes with 0, 1, … verified drafts, shape (m + 1,).

    It is the difference to a plain step that is bounded: what makes both longer, such as a prompt or
    a slow machine, meets the twin as well. A difference that was never measured may be half as much
    again.

    Parameters
    ----------
    milliseconds, errors_ms
        Shape (m + 1,): predicted times and their standard errors, infinite where unmeasured.
    plain_ms
        T₀: the time of a plain step as it is known, in place of the first of these.

    Examples
    --------
    >>> upper_ms(np.array([10.0, 12.0, 14.0]), np.array([0.3, 0.4, np.inf]), 10.0).round(2).tolist()
    [10.0, 12.82, 16.0]
    """
    result = np.empty(milliseconds.shape[0])
    result[0] = plain_ms
    for m in range(1, milliseconds.shape[0]):
        extra = milliseconds[m] - milliseconds[0]
        doubt = _CERTAINTY * np.sqrt(errors_ms[m] ** 2 + errors_ms[0] ** 2)
        if not doubt < np.inf:
            doubt = _UNMEASURED_ERROR * abs(extra)
        result[m] = plain_ms + max(extra + doubt, 0.0)
    return result


def twin_tokens(latency_ns: int | None, k0_ms: float | None, usual_ms: float | None) -> float:
    """Return what a twin writes in the time of a step, T/T₀; 0 where either is unknown.

    Parameters
    ----------
    latency_ns
        T: how long the step took.
    k0_ms
        T₀: how long it would have taken with nothing verified.
    usual_ms
        How long it was expected to take. Of a step three times as long, a stall, only this counts.

    Examples
    --------
    >>> twin_tokens(30_000_000, 20.0, None), twin_tokens(400_000_000, 20.0, 30.0)
    (1.5, 1.5)
    """
    if not latency_ns or latency_ns < 0 or k0_ms is None or not 0.0 < k0_ms < math.inf:
        return 0.0
    step_ms = latency_ns / 1e6
    if usual_ms is not None and usual_ms > 0.0 and step_ms > STALL_RATIO * usual_ms:
        step_ms = usual_ms
    return step_ms / k0_ms
