"""Draft probabilities are corrected per domain, depth and request, and again after a shift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.draft_calibration import DraftCalibration


def _sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def _stream(rng, n, a, b, offsets=(0.0, 0.0, 0.0)):
    """Return depth, said and outcomes of n nodes whose truth is a line on the log-odds scale."""
    depth = rng.integers(1, 4, n)
    said = rng.beta(1.0, 1.0, n)
    line = a + b * np.log(said / (1.0 - said)) + np.array(offsets)[depth - 1]
    return depth, said, (rng.random(n) < _sigmoid(line)).astype(np.int64), _sigmoid(line)


def _feed(calibration, slot, row, stream, chunk=8):
    depth, said, hits, _ = stream
    for at in range(0, depth.shape[0], chunk):
        part = slice(at, at + chunk)
        size = depth[part].shape[0]
        calibration.learn(
            np.full(size, slot), np.full(size, row), depth[part], said[part], hits[part]
        )


def _error(calibration, slot, row, stream):
    depth, said, _, truth = stream
    n = depth.shape[0]
    return float(
        np.abs(
            calibration.conditional(np.full(n, slot), np.full(n, row), depth, said) - truth
        ).mean()
    )


def test_a_drafter_is_believed_until_it_is_known_better():
    said = np.array([0.05, 0.5, 0.9])
    fresh = DraftCalibration(2, 3)
    one = np.ones(3, np.int64)
    assert fresh.conditional(one, one, one, said) == pytest.approx(said)


def test_it_learns_slope_and_offset_per_domain():
    rng = np.random.default_rng(0)
    calibration = DraftCalibration(4, 3)
    laws = {1: (-1.0, 0.6), 2: (0.8, 1.3)}
    for _ in range(20):
        for slot, (a, b) in laws.items():
            _feed(calibration, slot, slot, _stream(rng, 100, a, b))
    for slot, (a, b) in laws.items():
        assert _error(calibration, slot, 0, _stream(rng, 2_000, a, b)) < 0.05


def test_a_depth_has_an_offset_of_its_own():
    rng = np.random.default_rng(1)
    calibration = DraftCalibration(2, 3)
    offsets = (0.8, 0.0, -1.2)
    for _ in range(20):
        _feed(calibration, 1, 1, _stream(rng, 100, 0.0, 1.0, offsets))
    assert _error(calibration, 1, 0, _stream(rng, 2_000, 0.0, 1.0, offsets)) < 0.05


def test_a_cold_domain_predicts_as_its_pool():
    rng = np.random.default_rng(2)
    calibration = DraftCalibration(3, 3)
    _feed(calibration, 1, 1, _stream(rng, 2_000, -1.0, 1.0))
    calibration.open_slot(2, pool=0)
    assert _error(calibration, 2, 0, _stream(rng, 2_000, -1.0, 1.0)) < 0.08


def test_another_pool_is_not_touched():
    rng = np.random.default_rng(3)
    calibration = DraftCalibration(3, 3)
    calibration.open_slot(2, pool=2)
    _feed(calibration, 1, 1, _stream(rng, 2_000, -2.0, 1.0))
    assert _error(calibration, 2, 0, _stream(rng, 2_000, 0.0, 1.0)) < 1e-6


def test_a_request_has_an_offset_of_its_own():
    rng = np.random.default_rng(4)
    calibration = DraftCalibration(2, 3)
    for _ in range(10):
        _feed(calibration, 1, 1, _stream(rng, 60, 1.0, 1.0))
        _feed(calibration, 1, 2, _stream(rng, 60, -1.0, 1.0))
    easy, hard = (_stream(rng, 2_000, a, 1.0) for a in (1.0, -1.0))
    assert _error(calibration, 1, 1, easy) < 0.6 * _error(calibration, 1, 0, easy)
    assert _error(calibration, 1, 2, hard) < 0.6 * _error(calibration, 1, 0, hard)


@pytest.mark.parametrize("told", [False, True])
def test_it_is_right_again_after_a_swap(told):
    rng = np.random.default_rng(5)
    calibration = DraftCalibration(2, 3)
    _feed(calibration, 1, 1, _stream(rng, 4_000, 0.5, 1.2))
    if told:
        calibration.shake()
    tokens = 300 if told else 1_200
    _feed(calibration, 1, 2, _stream(rng, tokens, -1.5, 0.7))
    assert _error(calibration, 1, 0, _stream(rng, 2_000, -1.5, 0.7)) < 0.08


def test_it_goes_on_from_its_state_and_refuses_another():
    rng = np.random.default_rng(6)
    first, second = DraftCalibration(2, 3), DraftCalibration(2, 3)
    _feed(first, 1, 1, _stream(rng, 500, -1.0, 1.0))
    second.load(first.state())
    more = _stream(rng, 200, 0.0, 1.0)
    _feed(first, 1, 1, more)
    _feed(second, 1, 1, more)
    assert _error(first, 1, 1, more) == _error(second, 1, 1, more)
    with pytest.raises(ValueError, match=r"calibration must be \(2, 3\), got \(3, 3\)"):
        first.load(DraftCalibration(3, 3).state())


@settings(max_examples=50, deadline=None)
@given(
    said=st.lists(
        st.one_of(st.floats(0.0, 1.0), st.sampled_from([float("nan"), float("inf"), -1.0])),
        min_size=1,
        max_size=60,
    ),
    hit=st.integers(0, 1),
)
def test_whatever_a_drafter_says_predictions_stay_probabilities(said, hit):
    calibration = DraftCalibration(2, 2)
    n = len(said)
    one, depth = np.ones(n, np.int64), np.arange(n) % 5
    for _ in range(30):
        calibration.learn(one, one, depth, np.array(said), np.full(n, hit))
    q = calibration.conditional(one, one, depth, np.array(said))
    assert np.isfinite(q).all() and ((q > 0) & (q < 1)).all()


def test_a_request_that_nobody_knows_teaches_nothing():
    calibration = DraftCalibration(2, 3)
    zero, one = np.zeros(50, np.int64), np.ones(50, np.int64)
    sums = calibration.learn(one, zero, one, np.full(50, 0.9), zero)
    assert sums.sum() == 0.0
    assert calibration.conditional(one, one, one, np.full(50, 0.9)) == pytest.approx(0.9)
