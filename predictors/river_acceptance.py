"""Acceptance learners as River classifiers: the random-effects model, a pipeline, and a choice.

Features of a draft token, all optional: ``position`` (1 for the first), ``domain`` and ``request``
(any hashable value), ``match`` (tokens of the match it was found by), ``confidence`` (in [0, 1]),
``context`` (tokens), ``temperature``, ``grammar`` (0 or 1). Unknown features are ignored.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base, compose, linear_model, optim, preprocessing

from acclimate.predictors.acceptance_codes import (
    CONFIDENCES,
    confidence_hints,
    covariate_codes,
    match_hints,
)
from acclimate.predictors.numerics import IntArray
from acclimate.predictors.prequential import PrequentialChoice
from acclimate.predictors.random_effects import RandomEffectsAcceptance

_MATCHES = 8
_OTHER = 0


class RandomEffectsClassifier(base.Classifier):
    """P(a draft token is accepted, given that those before it were): `RandomEffectsAcceptance`.

    A token at position 1 begins a new draft of its request; tokens at later positions belong to the
    request's last one. Domains beyond their number share one, and the request that was not seen for
    longest makes room for a new one. Features that are no numbers in range count as unknown, and in
    ``dropped`` by name.

    Parameters
    ----------
    max_depth
        Positions kept apart; deeper ones count as the deepest.
    max_domains, max_requests
        Values kept apart.

    Examples
    --------
    >>> model = RandomEffectsClassifier()
    >>> for _ in range(100):
    ...     model.learn_one({"position": 1, "domain": "code", "request": 7}, True)
    >>> model.predict_proba_one({"position": 1, "domain": "code", "request": 7})[True] > 0.9
    True
    """

    def __init__(self, max_depth: int = 8, max_domains: int = 16, max_requests: int = 64) -> None:
        self.max_depth = max_depth
        self.max_domains = max_domains
        self.max_requests = max_requests
        self._model = RandomEffectsAcceptance(
            max_domains, max_depth, n_hints=_MATCHES + CONFIDENCES - 1
        )
        self._model.reserve(max_requests)
        self._domains: dict[Hashable, int] = {}
        self._requests: OrderedDict[Hashable, int] = OrderedDict()
        self.dropped: Counter[str] = Counter()

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        """Learn whether the draft token that ``x`` describes was accepted."""
        if isinstance(y, float) and not math.isfinite(y):
            self.dropped["label is not finite"] += 1
            return
        slot = self._slot(x.get("domain"), grow=True)
        row = self._row(x.get("request"), slot)
        position = self._position(x)
        one, none = np.array([1]), np.array([0])
        self._model.learn(
            np.array([slot]),
            np.array([row]),
            np.array([position]),
            one,
            one if y else none,
            *self._codes(x, count=True),
        )

    def predict_proba_one(self, x: dict[str, Any], **kwargs: Any) -> dict[bool, float]:
        """Return the probabilities of True (accepted) and False."""
        slot = self._slot(x.get("domain"), grow=False)
        request = x.get("request")
        row = self._requests.get(request, 0) if isinstance(request, Hashable) else 0
        q = self._model.predict(np.array([slot]), np.array([row]), *self._codes(x, count=False))
        accepted = float(q[0, self._position(x)])
        return {True: accepted, False: 1.0 - accepted}

    def _position(self, x: dict[str, Any]) -> int:
        position = self._number(x, "position", 1.0, count=False)
        return int(min(max(position, 1.0), self.max_depth)) - 1

    def _codes(self, x: dict[str, Any], *, count: bool) -> tuple[IntArray, IntArray]:
        match = self._number(x, "match", 0.0, count=count)
        hint = match_hints(np.array([int(min(match, _MATCHES))]), _MATCHES)
        confidence = self._number(x, "confidence", math.nan, count=count)
        sure = confidence_hints(np.array([confidence]))
        hint = np.where(sure > 0, sure + _MATCHES - 1, hint)
        context = self._number(x, "context", 0.0, count=count)
        temperature = self._number(x, "temperature", math.nan, count=count)
        grammar = self._number(x, "grammar", -1.0, count=count)
        covariates = covariate_codes([context], [temperature], [int(min(grammar, 2))])
        return np.repeat(hint[:, None], self.max_depth, axis=1), covariates

    def _number(self, x: dict[str, Any], name: str, default: float, *, count: bool) -> float:
        """Return a feature that is a finite number >= 0, else its default."""
        if name not in x:
            return default
        value = x[name]
        if isinstance(value, (int, float, np.number)) and math.isfinite(value) and value >= 0:
            return float(min(value, 2**40))
        self.dropped[f"{name} is no finite number >= 0"] += count
        return default

    def _slot(self, domain: Hashable, *, grow: bool) -> int:
        if not isinstance(domain, Hashable):
            return _OTHER
        slot = self._domains.get(domain)
        if slot is None:
            if not grow or len(self._domains) >= self.max_domains - 1:
                return _OTHER
            slot = self._domains[domain] = len(self._domains) + 1
            self._model.open_slot(slot, 0)
        return slot

    def _row(self, request: Hashable, slot: int) -> int:
        if request is None or not isinstance(request, Hashable):
            return 0
        row = self._requests.get(request)
        if row is None:
            if len(self._requests) >= self.max_requests - 1:
                _, row = self._requests.popitem(last=False)
            else:
                row = len(self._requests) + 1
            self._requests[request] = row
            self._model.open_request(row, slot)
        self._requests.move_to_end(request)
        return row


class AcceptancePipeline(base.Classifier):
    """River's ``StandardScaler | LogisticRegression`` over a draft token's numbers: the challenger.

    Besides the features named above it takes ``run``, ``whole`` and ``age`` (what became of the
    request's last draft, and its graded tokens so far), ``own_rate`` (share of the request's graded
    tokens that were accepted). Values that are not finite count as absent.

    Parameters
    ----------
    learning_rate
        Of the gradient step.

    Examples
    --------
    >>> model = AcceptancePipeline()
    >>> for i in range(400):
    ...     model.learn_one({"own_rate": i % 2}, i % 2 == 1)
    >>> model.predict_proba_one({"own_rate": 1.0})[True] > 0.7
    True
    """

    _FEATURES = (
        "position", "match", "confidence", "context", "temperature", "grammar", "run", "whole",
        "age", "own_rate",
    )  # fmt: skip
    _LARGEST = 1e6

    def __init__(self, learning_rate: float = 0.05) -> None:
        self.learning_rate = learning_rate
        self._pipeline = compose.Pipeline(
            preprocessing.StandardScaler(),
            linear_model.LogisticRegression(optim.AdaGrad(learning_rate)),
        )

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        """Learn whether the draft token that ``x`` describes was accepted."""
        if not isinstance(y, float) or math.isfinite(y):
            self._pipeline.learn_one(self._clean(x), bool(y))

    def predict_proba_one(self, x: dict[str, Any], **kwargs: Any) -> dict[bool, float]:
        """Return the probabilities of True (accepted) and False."""
        accepted = float(self._pipeline.predict_proba_one(self._clean(x)).get(True, 0.5))
        accepted = accepted if math.isfinite(accepted) else 0.5
        return {True: accepted, False: 1.0 - accepted}

    def _clean(self, x: dict[str, Any]) -> dict[str, float]:
        """Return the numbers that are finite, large ones clipped; counts by their logarithm."""
        clean = {}
        for name in self._FEATURES:
            value = x.get(name)
            if isinstance(value, (int, float, np.number)) and math.isfinite(value):
                value = min(max(float(value), 0.0), self._LARGEST)
                clean[name] = math.log1p(value) if name in ("context", "age", "run") else value
        return clean


class ChosenAcceptance(base.Classifier):
    """The candidate whose prequential log loss is lowest of late predicts; all learn.

    Parameters
    ----------
    candidates
        Classifiers of True and False; the first predicts until another is better.
    window_tokens
        Tokens after which a loss has decayed to 1/e.

    Examples
    --------
    >>> from river import dummy
    >>> model = ChosenAcceptance([dummy.PriorClassifier(), RandomEffectsClassifier()])
    >>> for i in range(300):
    ...     model.learn_one({"position": 1 + i % 2}, i % 2 == 0)
    >>> model.chosen
    1
    """

    def __init__(
        self, candidates: list[base.Classifier] | None = None, window_tokens: float = 2_000.0
    ) -> None:
        self.candidates = candidates
        self.window_tokens = window_tokens
        self._models = candidates or [RandomEffectsClassifier(), AcceptancePipeline()]
        self._choice = PrequentialChoice(len(self._models), window_tokens=window_tokens)

    @property
    def chosen(self) -> int:
        """Index of the candidate that predicts."""
        return self._choice.best

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        """Score every candidate's prediction, then let it learn."""
        if isinstance(y, float) and not math.isfinite(y):
            return
        predictions = [model.predict_proba_one(x).get(True, 0.5) for model in self._models]
        self._choice.learn(np.array([predictions]), np.array([bool(y)]))
        for model in self._models:
            model.learn_one(x, bool(y))

    def predict_proba_one(self, x: dict[str, Any], **kwargs: Any) -> dict[bool, float]:
        """Return the probabilities that the best candidate gives."""
        accepted = float(self._models[self.chosen].predict_proba_one(x).get(True, 0.5))
        return {True: accepted, False: 1.0 - accepted}
