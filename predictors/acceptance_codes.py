"""What is known of a draft and its request, as the small numbers that the learners count by."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray

CONTEXTS, TEMPERATURES, GRAMMARS = 9, 5, 3
"""Codes of context length, temperature and grammar, 0 for unknown included."""
CONFIDENCES = 12
"""Codes of confidence, 0 for unknown included."""
_SHORTEST_CONTEXT = 64
_LOWEST_ODDS, _HIGHEST_ODDS = -4.0, 6.0


def match_hints(match_tokens: IntArray, n_hints: int) -> IntArray:
    """Return hints from the length of the match that a draft was found by; below 1 is unknown.

    >>> match_hints(np.array([[-3, 0, 2, 99]]), n_hints=8).tolist()
    [[0, 0, 2, 7]]
    """
    return np.clip(match_tokens, 0, n_hints - 1)


@compiled("i8(f8)")
def confidence_hint(confidence: float) -> int:
    """Return the hint of one confidence, see `confidence_hints`."""
    if not 0.0 <= confidence <= 1.0:
        return 0
    inside = min(max(confidence, 1e-9), 1.0 - 1e-9)
    odds = math.log(inside / (1.0 - inside))
    width = (_HIGHEST_ODDS - _LOWEST_ODDS) / (CONFIDENCES - 3)
    return min(max(2 + math.floor((odds - _LOWEST_ODDS) / width), 1), CONFIDENCES - 1)


def confidence_hints(confidence: FloatArray) -> IntArray:
    """Return hints from a drafter's confidence in [0, 1], by its log-odds; NaN is unknown.

    Values outside [0, 1] are no confidence, and unknown too.

    >>> confidence_hints(np.array([[0.01, 0.5, 0.99, 1.0, np.nan, np.inf, -1.0]])).tolist()
    [[1, 5, 9, 11, 0, 0, 0]]
    """
    flat = np.asarray(confidence, dtype=np.float64)
    codes = np.array([confidence_hint(sure) for sure in flat.ravel()], dtype=np.int64)
    return codes.reshape(flat.shape)


def covariate_codes(
    context_tokens: npt.ArrayLike, temperature: npt.ArrayLike, grammar: npt.ArrayLike
) -> IntArray:
    """Return codes of requests' covariates, shape (n, 3).

    Parameters
    ----------
    context_tokens
        Shape (n,): tokens attended to, in octaves from 64 on; below 1 is unknown.
    temperature
        Shape (n,): 0, up to 0.5, up to 1, above; NaN or negative is unknown.
    grammar
        Shape (n,): 1 where a grammar restricts the output, 0 where none does, else unknown.

    Examples
    --------
    >>> covariate_codes([0, 100, 10_000], [float("nan"), 0.0, 1.0], [-1, 0, 1]).tolist()
    [[0, 0, 0], [2, 1, 1], [8, 3, 2]]
    """
    context = np.asarray(context_tokens, dtype=np.float64)
    octave = np.floor(np.log2(np.clip(context, 1.0, 2.0**40) / _SHORTEST_CONTEXT)) + 2.0
    known = np.isfinite(context) & (context >= 1.0)
    contexts = np.where(known, np.clip(octave, 1, CONTEXTS - 1), 0)
    heat = np.asarray(temperature, dtype=np.float64)
    known = np.isfinite(heat) & (heat >= 0.0)
    temperatures = np.where(known, 1 + np.digitize(heat, [0.0, 0.5, 1.0], right=True), 0)
    flag = np.asarray(grammar, dtype=np.float64)
    grammars = np.where(flag == 0, 1, np.where(flag == 1, 2, 0))
    return np.ascontiguousarray(np.stack([contexts, temperatures, grammars], axis=-1), np.int64)
