"""Probabilities from log-odds, for compiled callers."""

from __future__ import annotations

import math

from acclimate.predictors.compiled import compiled


@compiled("f8(f8)")
def probability_of(log_odds: float) -> float:
    """Return the probability of log-odds, held to [-30, 30] so that neither end is certain.

    >>> probability_of(0.0)
    0.5
    """
    return 1.0 / (1.0 + math.exp(-min(max(log_odds, -30.0), 30.0)))
