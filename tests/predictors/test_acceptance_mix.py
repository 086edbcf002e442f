"""Two learners of acceptance, and who is believed."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.predictors.acceptance_codes import confidence_hints
from acclimate.predictors.acceptance_mix import AcceptanceMix

NONE, ONE = np.array([0]), np.array([1])


def serve(mix, rng, q, *, drafts=200, row=1, sure=None):
    """Grade drafts of one token, accepted with probability q(confidence)."""
    for _ in range(drafts):
        confidence = None if sure is None else float(rng.choice(sure))
        hit = int(rng.random() < (q if confidence is None else q(confidence)))
        mix.learn(NONE, np.array([row]), NONE, ONE, np.array([hit]), hints(confidence))


def hints(confidence):
    return None if confidence is None else confidence_hints(np.array([[confidence]]))


def believed(mix, confidence=None, row=0):
    rows = np.array([row])
    return float(mix.survival(NONE, rows, hints(confidence))[0, 0])


def test_a_drafters_confidence_is_believed_as_far_as_it_is_right():
    mix, rng = AcceptanceMix(1, 1), np.random.default_rng(0)
    mix.open_request(1, 0)
    serve(mix, rng, lambda sure: sure, drafts=3_000, sure=(0.1, 0.9))
    assert mix.share[0] > 0.9
    assert believed(mix, 0.9) == pytest.approx(0.9, abs=0.06)
    assert believed(mix, 0.1) == pytest.approx(0.1, abs=0.06)


def test_confidence_that_means_the_opposite_is_read_the_other_way_round():
    mix, rng = AcceptanceMix(1, 1), np.random.default_rng(1)
    mix.open_request(1, 0)
    serve(mix, rng, lambda sure: 1.0 - sure, drafts=3_000, sure=(0.2, 0.8))
    assert believed(mix, 0.8) == pytest.approx(0.2, abs=0.15)
    assert believed(mix, 0.2) == pytest.approx(0.8, abs=0.15)


def test_after_a_shift_the_quicker_learner_is_believed():
    mix, rng = AcceptanceMix(1, 1), np.random.default_rng(2)
    for row in range(1, 40):
        mix.open_request(row, 0)
        serve(mix, rng, 0.9, drafts=60, row=row)
    for row in range(40, 46):
        mix.open_request(row, 0)
        serve(mix, rng, 0.3, drafts=60, row=row)
    assert believed(mix) == pytest.approx(0.3, abs=0.15)


def test_a_doubt_keeps_the_best_guess_and_a_state_continues_it():
    mix, rng = AcceptanceMix(2, 1), np.random.default_rng(3)
    mix.open_request(1, 0)
    serve(mix, rng, 0.8, drafts=500)
    before = believed(mix)
    mix.doubt(0)
    assert believed(mix) == pytest.approx(before, abs=0.1)
    copy = AcceptanceMix(2, 1)
    copy.load(mix.state())
    for each in (mix, copy):
        serve(each, np.random.default_rng(4), 0.4, drafts=50)
    assert believed(copy, row=1) == believed(mix, row=1)
    mix.shake()
    assert (mix.share < 0.2).all()


def test_a_loud_tenant_has_at_most_half_a_say_in_its_pool():
    mix, rng = AcceptanceMix(4, 1), np.random.default_rng(5)
    for slot, tenant in ((1, 1), (2, 2)):
        mix.open_slot(slot, 0, tenant)
        mix.open_request(slot, slot)
    for _ in range(400):
        for slot, q, drafts in ((1, 0.9, 1), (2, 0.05, 10)):
            for _ in range(drafts):
                at = np.array([slot])
                mix.learn(at, at, NONE, ONE, np.array([int(rng.random() < q)]))
    mix.open_slot(3, 0, 3)
    fresh = float(mix.predict_slots()[3, 0])
    assert 0.3 < fresh < 0.7  # by tokens it would be 0.13


def test_positions_that_nobody_asks_for_are_left_out():
    mix = AcceptanceMix(1, 3)
    rows = np.array([1, 1])
    whole = mix.survival(np.zeros(2, dtype=np.int64), rows)
    some = mix.survival(np.zeros(2, dtype=np.int64), rows, None, np.array([2, 0]))
    assert some[0, :2].tolist() == whole[0, :2].tolist()
    assert some[0, 2] == 0.0 and not some[1].any()
