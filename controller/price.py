"""The price of time: how many tokens a millisecond of this engine earns at this load."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.numerics import geometric_buckets, load_arrays, save_arrays

_STATE = ("tokens", "busy_ms")
_PRIOR_MS = 300.0  # a model's rate counts as this much time of evidence


class PriceOfTime:
    """Decode tokens per millisecond, per decode count, over recent busy time.

    One number for all loads is wrong on every ramp: the rate is kept per decode count. Time that
    prefill accounts for is left out, so that a prompt in the step does not make drafts look cheap.
    At the fixed point, choosing E - price·T with price = sum E / sum T maximises sum E / sum T
    (Dinkelbach's method for ratios).

    Parameters
    ----------
    max_requests
        Largest decode count kept apart.
    window_s
        Busy time after which evidence has decayed to 1/e.

    Examples
    --------
    >>> price = PriceOfTime(max_requests=4, window_s=5.0)
    >>> for _ in range(1000):
    ...     price.learn(2, tokens=3, milliseconds=20.0)
    >>> round(price.tokens_per_ms(2, model_rate=1.0), 2)
    0.2
    """

    def __init__(self, max_requests: int, *, window_s: float) -> None:
        self.window_ms = 1000.0 * window_s
        self._load = geometric_buckets(max_requests, exact=16, per_octave=8)
        self._last = max_requests
        self.tokens = np.zeros(int(self._load[-1]) + 1)
        self.busy_ms = np.zeros(int(self._load[-1]) + 1)

    def learn(self, requests: int, tokens: int, milliseconds: float) -> None:
        """Add a step: decode requests, tokens they committed, decode time."""
        load = self._load[min(requests, self._last)]
        keep = math.exp(-milliseconds / self.window_ms)
        self.tokens[load] = self.tokens[load] * keep + tokens
        self.busy_ms[load] = self.busy_ms[load] * keep + milliseconds

    def tokens_per_ms(self, requests: int, model_rate: float, waiting: int = 0) -> float:
        """Return the price with ``waiting`` prompts in the queue.

        ``model_rate`` is the rate that the model expects of this step at best; it stands in until
        there is evidence. Below capacity tokens per second are set by arrivals, and what counts is
        delay: the factor (n + W) / n says so.
        """
        load = self._load[min(requests, self._last)]
        rate = (self.tokens[load] + _PRIOR_MS * model_rate) / (self.busy_ms[load] + _PRIOR_MS)
        return float(rate) * (requests + waiting) / max(requests, 1)

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)
