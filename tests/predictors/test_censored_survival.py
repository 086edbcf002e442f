"""Censored survival: weights undo what the policy chose, intervals cover, faults are counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.censored_survival import CensoredSurvival


def two_kinds(n, rng, *, weighted):
    """Blocks are easy (.9) or hard (.5); position 3 is verified in 9 of 10 easy, 1 of 10 hard."""
    easy = rng.random(n) < 0.5
    chance = np.where(easy, 0.9, 0.1)
    depth = np.where(rng.random(n) < chance, 3, 2)
    right = rng.random((n, 3)) < np.where(easy, 0.9, 0.5)[:, None]
    run = np.where(right.all(axis=1), 3, right.argmin(axis=1))
    propensity = np.ones((n, 3))
    if weighted:
        propensity[:, 2] = chance
    model = CensoredSurvival(3)
    model.learn(np.minimum(run + 1, depth), np.minimum(run, depth), propensity)
    return model


TRUTH = [(0.9**i + 0.5**i) / 2 for i in (1, 2, 3)]


def test_weights_undo_the_choice_and_intervals_cover():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(150):
        low, high = two_kinds(2_000, rng, weighted=True).interval()
        covered.append((low <= TRUTH) & (high >= TRUTH))
    assert (np.mean(covered, axis=0) >= 0.9).all()
    naive = two_kinds(20_000, rng, weighted=False)
    assert naive.interval()[0][2] > TRUTH[2]


def test_without_censoring_it_is_the_plain_share_with_its_binomial_width():
    rng = np.random.default_rng(1)
    run = np.minimum(rng.geometric(0.3, 4_000) - 1, 3)
    model = CensoredSurvival(3)
    model.learn(np.minimum(run + 1, 3), run, np.ones((run.size, 3)))
    share = np.array([(run >= i).mean() for i in (1, 2, 3)])
    assert model.survival == pytest.approx(share)
    low, high = model.interval()
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(share * (1 - share) / run.size), rel=0.01)


def test_without_evidence_nothing_is_claimed():
    model = CensoredSurvival(2)
    model.learn_one({"graded": 1}, 1)
    low, high = model.interval()
    assert low[0] > 0.0 and high[0] < 1.0
    assert (low[1], high[1]) == (0.0, 1.0)
    assert math.isnan(model.survival[1]) and model.predict_one({"position": 2}) == 0.5


def test_faults_are_counted_by_name_and_small_chances_bounded():
    model = CensoredSurvival(2, least_propensity=0.1)
    graded, matched = np.array([3, 1, 2, 1, 1, 1]), np.array([1, 2, 0, 1, 1, 1])
    chance = np.ones((6, 2))
    chance[3, 0], chance[4, 0], chance[5, 0] = math.nan, 1.5, 1e-9
    model.learn(graded, matched, chance)
    assert dict(model.dropped) == {
        "graded out of range": 1,
        "matched out of range": 2,
        "propensity out of range": 2,
    }
    assert model.clipped == 1
    assert model.weight.tolist() == [10.0, 0.0]


def test_a_window_forgets_and_a_state_continues():
    model = CensoredSurvival(1, window_blocks=50)
    ones = np.ones((400, 1))
    model.learn(np.ones(400, np.int64), np.ones(400, np.int64), ones)
    model.learn(np.ones(400, np.int64), np.zeros(400, np.int64), ones)
    assert model.survival[0] < 0.01
    copy = CensoredSurvival(1, window_blocks=50)
    copy.load(model.state())
    assert (copy.interval()[1] == model.interval()[1]).all()
    with pytest.raises(ValueError, match="weight must"):
        CensoredSurvival(2).load(model.state())


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-2, 6), st.integers(-2, 6), st.floats(-1, 2) | st.just(math.nan)),
        max_size=30,
    )
)
def test_bounds_hold_the_estimate_whatever_comes(blocks):
    model = CensoredSurvival(4)
    for graded, matched, chance in blocks:
        model.learn_one({"graded": graded, "propensity": chance}, matched)
    low, high = model.interval()
    survival = model.survival
    known = np.isfinite(survival)
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    inside = known & (survival > 0) & (survival < 1)
    assert (low[inside] <= survival[inside] + 1e-9).all()
    assert (survival[inside] <= high[inside] + 1e-9).all()
    assert int(model.blocks[0]) + sum(model.dropped.values()) == len(blocks)
