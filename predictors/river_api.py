"""Our learners as River estimators: one event at a time, features in a dict.

The tables behind them work on arrays in an engine's step; these classes are for whoever composes
or evaluates them with River. Unknown features are ignored and missing ones take a default.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base

from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.latency import StepLatency

_MAX_TOKENS = 2**31


class AcceptanceClassifier(base.Classifier):
    """P(a draft token is accepted, given that those before it were).

    Features: ``position`` (1 for the first draft, default 1), ``domain`` and ``request`` (any
    hashable value, default one of each). Domains and requests beyond their numbers share one.

    Parameters
    ----------
    max_depth
        Positions kept apart; deeper ones count as the deepest.
    max_domains, max_requests
        Values kept apart.
    window_tokens
        Tokens after which a domain's evidence has decayed to 1/e.

    Examples
    --------
    >>> model = AcceptanceClassifier()
    >>> for _ in range(100):
    ...     model.learn_one({"position": 1, "domain": "code"}, True)
    >>> round(model.predict_proba_one({"position": 1, "domain": "code"})[True], 1)
    1.0
    """

    def __init__(
        self,
        max_depth: int = 8,
        max_domains: int = 16,
        max_requests: int = 64,
        window_tokens: float = 400.0,
    ) -> None:
        self.max_depth = max_depth
        self.max_domains = max_domains
        self.max_requests = max_requests
        self.window_tokens = window_tokens
        self._table = AcceptanceTable(max_domains, max_depth, window_tokens=window_tokens)
        self._table.reserve(max_requests)
        self._domains: dict[Hashable, int] = {}
        self._requests: dict[Hashable, int] = {}

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        """Learn whether the draft token that ``x`` describes was accepted."""
        position = self._position(x)
        domain = _number(self._domains, x.get("domain"), self.max_domains, grow=True)
        request = _number(self._requests, x.get("request"), self.max_requests, grow=True)
        self._table.learn(
            np.array([domain]),
            np.array([request]),
            start=np.array([position]),
            graded=np.array([1]),
            matched=np.array([int(bool(y))]),
        )

    def predict_proba_one(self, x: dict[str, Any], **kwargs: Any) -> dict[bool, float]:
        """Return the probabilities of True (accepted) and False."""
        position = self._position(x)
        domain = _number(self._domains, x.get("domain"), self.max_domains, grow=False)
        request = _number(self._requests, x.get("request"), self.max_requests, grow=False)
        survival = self._table.survival(np.array([domain]), np.array([request]))[0]
        before = survival[position - 1] if position else 1.0
        accepted = float(survival[position] / before) if before > 0 else 0.0
        return {True: accepted, False: 1.0 - accepted}

    def _position(self, x: dict[str, Any]) -> int:
        return min(_count(x.get("position"), default=1), self.max_depth) - 1 if x else 0


class StepLatencyRegressor(base.Regressor):
    """Milliseconds of an engine step.

    Features, all counts: ``requests``, ``verified``, ``prefill``, ``context``, ``sampled``,
    ``draft_depth``; a missing one is 0.

    Parameters
    ----------
    max_requests, max_verified
        Largest values kept apart.
    window_steps
        Steps after which evidence has decayed to 1/e.

    Examples
    --------
    >>> model = StepLatencyRegressor()
    >>> for _ in range(100):
    ...     model.learn_one({"requests": 4, "verified": 8}, 25.0)
    >>> round(model.predict_one({"requests": 4, "verified": 8}))
    25
    """

    def __init__(
        self, max_requests: int = 256, max_verified: int = 1024, window_steps: float = 400.0
    ) -> None:
        self.max_requests = max_requests
        self.max_verified = max_verified
        self.window_steps = window_steps
        self._model = StepLatency(max_requests, max_verified, window_steps=window_steps)

    def learn_one(self, x: dict[str, Any], y: float) -> None:
        """Learn one step's duration; a duration that is not positive and finite is ignored."""
        if 0.0 < y < math.inf:
            counts = self._counts(x)
            self._model.learn(
                counts.pop("requests"), counts.pop("verified"), latency_ms=y, **counts
            )

    def predict_one(self, x: dict[str, Any], **kwargs: Any) -> float:
        """Return the expected duration in milliseconds."""
        counts = self._counts(x)
        verified = min(counts.pop("verified"), self.max_verified)
        return float(self._model.curve(counts.pop("requests"), verified, **counts)[-1])

    @staticmethod
    def _counts(x: dict[str, Any]) -> dict[str, int]:
        names = {"prefill": "prefill_tokens", "context": "context_tokens"}
        names.update(sampled="sampled_rows", draft_depth="draft_depth")
        names.update(requests="requests", verified="verified")
        return {name: _count(x.get(feature), default=0) for feature, name in names.items()}


def _count(value: Any, default: int) -> int:
    """Return a feature as a count; what is no finite number >= 0 is taken as the default."""
    if isinstance(value, (int, float)) and math.isfinite(value) and value >= default:
        return int(min(value, _MAX_TOKENS))
    return default


def _number(known: dict[Hashable, int], value: Hashable, capacity: int, *, grow: bool) -> int:
    """Return the number of a value: 0 if it is new, the last one if it finds no room."""
    number = known.get(value)
    if number is None:
        if len(known) >= capacity - 2:
            return capacity - 1
        if not grow:
            return 0
        number = known[value] = len(known) + 1
    return number
