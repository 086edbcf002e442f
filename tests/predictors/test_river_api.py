"""Our learners pass River's own conformance battery."""

from __future__ import annotations

import math

import pytest
from river import checks

from acclimate.predictors.river_api import AcceptanceClassifier, StepLatencyRegressor


@pytest.mark.parametrize("model", [AcceptanceClassifier(), StepLatencyRegressor()], ids=str)
def test_river_conformance(model):
    checks.check_estimator(model)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "many", None])
def test_strange_features_and_targets_never_reach_the_model(value):
    latency = StepLatencyRegressor()
    latency.learn_one({"requests": value, "verified": value}, 20.0)
    latency.learn_one({"requests": 4}, math.nan)
    assert math.isfinite(latency.predict_one({"requests": 4, "verified": value}))
    acceptance = AcceptanceClassifier()
    acceptance.learn_one({"position": value, "domain": "code"}, True)
    assert 0.0 <= acceptance.predict_proba_one({"position": value})[True] <= 1.0


def test_endless_labels_share_a_slot():
    model = AcceptanceClassifier(max_domains=4)
    for label in range(1000):
        model.learn_one({"domain": f"label-{label}", "request": label}, label % 2 == 0)
    assert 0.3 < model.predict_proba_one({"domain": "never seen"})[True] < 0.7
