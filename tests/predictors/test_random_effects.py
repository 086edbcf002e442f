"""The random-effects model: what it learns, what it refuses, what it must never do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.acceptance_codes import confidence_hints, covariate_codes
from acclimate.predictors.overdispersion import REQUEST
from acclimate.predictors.random_effects import RandomEffectsAcceptance

ONE, NONE = np.array([1]), np.array([0])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def serve(model, rng, log_odds_of, *, slot=0, requests, drafts, depth, first_row=1):
    """Serve requests one after the other in one row; log_odds_of() gives each request's own."""
    row, slots = np.array([first_row]), np.array([slot])
    for _ in range(requests):
        model.open_request(first_row, slot)
        q = sigmoid(log_odds_of())
        for _ in range(drafts):
            run = int(np.argmin(np.append(rng.random(depth) < q, False)))
            graded = min(run + 1, depth)
            model.learn(slots, row, NONE, np.array([graded]), np.array([run]))
        model.close_request(first_row)


def test_a_cold_request_is_predicted_as_its_slot_and_a_warm_one_by_itself():
    model, rng = RandomEffectsAcceptance(3, 2), np.random.default_rng(0)
    model.open_slot(1, 0)
    model.open_slot(2, 0)
    for _ in range(40):
        for slot, centre in ((1, 1.5), (2, -0.5)):
            serve(model, rng, lambda c=centre: c, slot=slot, requests=1, drafts=20, depth=2)
    both = model.predict(np.array([1, 2]), np.array([0, 0]))[:, 0]
    assert both == pytest.approx(sigmoid(np.array([1.5, -0.5])), abs=0.08)
    serve(model, rng, lambda: -2.5, slot=1, requests=1, drafts=40, depth=2)
    warm = model.predict(np.array([1]), ONE)[0, 0]
    assert warm < 0.25
    assert model.predict(np.array([1]), NONE)[0, 0] > 0.7


def test_how_widely_requests_differ_is_estimated():
    """Wide requests: a few tokens move the prediction far. Alike ones: hardly."""
    spread = {}
    for name, sd in (("wide", 1.2), ("alike", 0.0)):
        model, rng = RandomEffectsAcceptance(1, 1), np.random.default_rng(1)
        serve(model, rng, lambda s=sd, r=rng: s * r.normal(), requests=300, drafts=30, depth=1)
        spread[name] = math.sqrt(model.variances[0, REQUEST])
        model.open_request(1)
        for _ in range(6):
            model.learn(NONE, ONE, NONE, ONE, ONE)
        spread[f"{name}/after"] = model.predict(NONE, ONE)[0, 0]
    assert spread["wide"] > 2 * spread["alike"]
    assert spread["wide/after"] > spread["alike/after"] + 0.08


def test_hints_and_covariates_count_where_they_are_known():
    model, rng = RandomEffectsAcceptance(1, 1, n_hints=12), np.random.default_rng(2)
    for _ in range(4_000):
        confidence, hot = rng.random(), rng.random() < 0.5
        hints = confidence_hints(np.array([[confidence]]))
        covariates = covariate_codes([100], [1.0 if hot else 0.0], [-1])
        right = rng.random() < sigmoid(4 * (confidence - 0.5) - hot)
        model.learn(NONE, NONE, NONE, ONE, np.array([int(right)]), hints, covariates)

    def at(confidence, temperature):
        hints = confidence_hints(np.array([[confidence]]))
        return model.predict(NONE, NONE, hints, covariate_codes([100], [temperature], [-1]))[0, 0]

    assert at(0.9, 0.0) == pytest.approx(sigmoid(1.6), abs=0.1)
    assert at(0.1, 0.0) == pytest.approx(sigmoid(-1.6), abs=0.1)
    assert at(0.5, 0.0) - at(0.5, 1.0) == pytest.approx(0.5 - sigmoid(-1.0), abs=0.1)


def test_what_became_of_the_last_draft_counts():
    """Hard spots come after rejections: position 1 is right 9 in 10 times after a whole draft."""
    model, rng = RandomEffectsAcceptance(1, 2), np.random.default_rng(3)
    model.open_request(1)
    whole = True
    for _ in range(3_000):
        right = rng.random(2) < (0.9 if whole else 0.4)
        run = int(np.argmin(np.append(right, False)))
        model.learn(NONE, ONE, NONE, np.array([min(run + 1, 2)]), np.array([run]))
        whole = run == 2
    model.learn(NONE, ONE, NONE, np.array([2]), np.array([2]))
    after_whole = model.predict(NONE, ONE)[0, 0]
    model.learn(NONE, ONE, NONE, ONE, NONE)
    assert after_whole == pytest.approx(0.9, abs=0.08)
    assert model.predict(NONE, ONE)[0, 0] == pytest.approx(0.4, abs=0.12)


def test_intervals_narrow_with_evidence_and_hold_the_truth():
    model, rng = RandomEffectsAcceptance(1, 1), np.random.default_rng(4)
    widths = []
    for _ in range(2):
        low, high = model.predict_interval(NONE, NONE)
        widths.append(float(high[0, 0] - low[0, 0]))
        serve(model, rng, lambda: 1.0, requests=60, drafts=20, depth=1)
    low, high = model.predict_interval(NONE, NONE)
    assert widths[1] < 0.7 * widths[0]
    assert low[0, 0] < sigmoid(1.0) < high[0, 0]


def test_other_pools_and_a_loud_tenant_do_not_move_a_prediction():
    model, rng = RandomEffectsAcceptance(4, 2), np.random.default_rng(5)
    model.open_slot(1, 0, tenant=1)
    model.open_slot(2, 0, tenant=2)
    model.open_slot(3, 3)
    serve(model, rng, lambda: 1.5, slot=1, requests=40, drafts=10, depth=2)
    before = model.predict(np.array([1]), NONE)
    serve(model, rng, lambda: -4.0, slot=3, requests=40, drafts=10, depth=2)
    assert (model.predict(np.array([1]), NONE) == before).all()
    assert model.tenants.count(np.array([2]), np.array([5_000]))[2] < 0.1


def test_after_a_change_that_was_told_a_slot_is_right_sooner():
    models = {told: RandomEffectsAcceptance(2, 1) for told in (False, True)}
    for told, model in models.items():
        rng = np.random.default_rng(8)
        model.open_slot(1, 0)
        serve(model, rng, lambda: 2.0, slot=1, requests=100, drafts=20, depth=1)
        before = model.predict(ONE, NONE)[0, 0]
        if told:
            model.loosen(1)
            assert model.predict(ONE, NONE)[0, 0] == pytest.approx(before, abs=0.05)
        serve(model, rng, lambda: -1.0, slot=1, requests=4, drafts=20, depth=1)
    told, alone = (models[told].predict(ONE, NONE)[0, 0] for told in (True, False))
    assert told < alone - 0.1
    assert told < 0.5


def test_runs_that_cannot_be_are_dropped_by_name_and_change_nothing():
    model = RandomEffectsAcceptance(2, 4)
    start = model.state()
    huge = 2**62
    runs = np.array(
        [
            [5, 1, 0, 1, 1], [-1, 1, 0, 1, 1], [0, huge, 0, 1, 1],
            [0, 1, huge, huge, 0], [0, 1, 3, 2, 1], [0, 1, 0, -1, -1],
            [0, 1, 0, 2, 3], [0, 1, 0, 2, -1],
        ]
    )  # fmt: skip
    sums = model.learn(*runs.T.copy())
    assert not sums.any()
    assert dict(model.dropped) == {
        "slot or row is unknown": 3,
        "position out of range": 3,
        "matched out of range": 2,
    }
    after = model.state()
    assert all((after[name] == start[name]).all() for name in ("weights", "past", "slot_sums"))


def test_weights_that_are_not_finite_are_quarantined():
    model = RandomEffectsAcceptance(1, 2)
    model.open_request(1)
    model.weights[0, 0, 0] = math.nan
    model.request_effects[1, 1, 0] = math.inf
    model.pool_bend[0, 0] = math.nan
    assert ((model.predict(NONE, ONE) > 0) & (model.predict(NONE, ONE) < 1)).all()
    for _ in range(200):
        model.learn(NONE, ONE, NONE, np.array([2]), ONE)
    assert model.quarantined >= 3
    assert model.predict(NONE, ONE)[0] == pytest.approx([1.0, 0.0], abs=0.1)


def test_save_and_load_mid_stream_gives_the_same_bits():
    model, rng = RandomEffectsAcceptance(2, 3), np.random.default_rng(6)
    serve(model, rng, lambda: 0.5, requests=20, drafts=15, depth=3)
    copy = RandomEffectsAcceptance(2, 3)
    copy.load(model.state())
    for each in (model, copy):
        each.learn(NONE, ONE, NONE, np.array([3]), np.array([2]))
    assert (model.predict(NONE, ONE) == copy.predict(NONE, ONE)).all()
    assert copy.dropped == model.dropped


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", np.zeros((1, 1, 1)), "weights must have shape"),
        ("variances", np.full((2, 5), math.nan), "variances must be finite"),
        ("pool", np.array([0, 7]), "pool must be in"),
        ("past", np.full((64, 3), -9), "past must be"),
    ],
)
def test_a_damaged_state_is_refused(name, value, message):
    model = RandomEffectsAcceptance(2, 3)
    with pytest.raises(ValueError, match=message):
        model.load({**model.state(), name: value})


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(-3, 12)] * 6), min_size=1, max_size=40))
def test_whatever_comes_predictions_stay_inside_and_every_run_is_accounted_for(runs):
    model = RandomEffectsAcceptance(3, 4, n_hints=4)
    table = np.array(runs)
    hints = np.repeat(table[:, 5:], 4, axis=1)
    covariates = table[:, 2:5].copy()
    sums = model.learn(*table[:, :5].T.copy(), hints, covariates)
    q = model.predict(np.array([0, 1, 2]), np.array([0, 1, 2]))
    assert ((q > 0) & (q < 1)).all()
    assert np.isfinite(model.weights).all() and np.isfinite(model.request_effects).all()
    learned = len(runs) - sum(model.dropped.values())
    assert sums[:, 0].sum() == model.tokens
    assert (model.tokens > 0) <= (learned > 0)


def test_memory_does_not_grow_with_requests():
    model, rng = RandomEffectsAcceptance(2, 2), np.random.default_rng(7)
    sizes = set()
    for _ in range(3):
        serve(model, rng, rng.normal, requests=50, drafts=3, depth=2)
        state = model.state()
        sizes.add(sum(v.nbytes for v in state.values() if isinstance(v, np.ndarray)))
    assert len(sizes) == 1
