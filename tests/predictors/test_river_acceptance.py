"""Acceptance learners as River classifiers: conformance, hostile features, and the choice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from river import checks

from acclimate.predictors.prequential import PrequentialChoice
from acclimate.predictors.river_acceptance import (
    AcceptancePipeline,
    ChosenAcceptance,
    RandomEffectsClassifier,
)

MODELS = [RandomEffectsClassifier(), AcceptancePipeline(), ChosenAcceptance()]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_river_conformance(model):
    checks.check_estimator(model)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308, "many", None, [1]])
def test_strange_features_and_labels_never_reach_the_model(model, value):
    model = model.clone()
    names = ("position", "domain", "request", "match", "confidence", "context", "grammar")
    model.learn_one(dict.fromkeys(names, value), True)
    model.learn_one({"position": 1}, math.nan)
    model.learn_one({"position": 1, "match": 3}, False)
    shown = model.predict_proba_one(dict.fromkeys(names, value))[True]
    assert 0.0 <= shown <= 1.0


def test_what_was_dropped_is_counted_by_reason():
    model = RandomEffectsClassifier()
    for value in (math.nan, -1.0, "x"):
        model.learn_one({"match": value}, True)
    model.learn_one({}, math.nan)
    assert dict(model.dropped) == {
        "match is no finite number >= 0": 3,
        "label is not finite": 1,
    }


def test_endless_domains_and_requests_share_what_there_is():
    model = RandomEffectsClassifier(max_domains=4, max_requests=4)
    for number in range(500):
        model.learn_one({"domain": f"d{number}", "request": number}, number % 2 == 0)
    assert 0.3 < model.predict_proba_one({"domain": "never seen"})[True] < 0.7


def test_the_choice_follows_the_better_candidate_and_does_not_flutter():
    rng, choice = np.random.default_rng(0), PrequentialChoice(2, window_tokens=500)
    changes = []
    for phase, (first, second) in enumerate([(0.5, 0.8), (0.8, 0.5)]):
        before = choice.best
        for _ in range(3_000):
            right = rng.random(1) < 0.8
            choice.learn(np.array([[first, second]]), right)
            if choice.best != before:
                changes.append((phase, choice.best))
                before = choice.best
    assert changes == [(0, 1), (1, 0)]


def test_a_candidate_that_fails_is_never_chosen():
    choice = PrequentialChoice(2)
    choice.best = 1
    for _ in range(50):
        choice.learn(np.array([[0.6, math.nan]]), np.array([True]))
    assert choice.best == 0
    assert np.isfinite(choice.losses).all()
    copy = PrequentialChoice(2)
    copy.load(choice.state())
    assert (copy.losses == choice.losses).all()
    with pytest.raises(ValueError, match="totals must have shape"):
        copy.load({**choice.state(), "totals": [1.0]})
