"""Drift detectors: soon, seldom wrong, one alarm per change, and the same after a reload."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import checks

from acclimate.predictors.common_shift import CommonShift
from acclimate.predictors.drift import SlotDrift, alarm_every_tokens
from acclimate.predictors.shift_detectors import AcceptanceShiftDetector, LatencyShiftDetector
from acclimate.predictors.shift_latency import LatencyDrift

DETECTORS = [AcceptanceShiftDetector(), LatencyShiftDetector()]


def alarms(detector, values, **options):
    found = []
    for t, value in enumerate(values):
        detector.update(value, **options)
        if detector.drift_detected:
            found.append(t)
    return found


def bernoulli(seed, before, after, change=2_000, tokens=4_000):
    draws = np.random.default_rng(seed).random(tokens)
    return (draws < np.where(np.arange(tokens) < change, before, after)).astype(int)


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda d: type(d).__name__)
def test_river_checks_that_apply_to_drift_detectors(detector):
    # The checks on data sets are for learners of features; River yields none for a detector.
    assert detector._unit_test_skips() == {"check_tags"}
    checks.check_estimator(detector)


@pytest.mark.parametrize(
    ("before", "after", "known_tokens"),
    [(0.8, 0.5, 26), (0.8, 0.6, 49), (0.6, 0.8, 58), (0.7, 0.6, 170)],
)
def test_delay_is_near_that_of_a_cusum_that_knows_both_rates(before, after, known_tokens):
    delays = []
    for seed in range(20):
        found = alarms(AcceptanceShiftDetector(), bernoulli(seed, before, after))
        after_change = [t - 1_999 for t in found if t >= 2_000]
        if found and found[0] >= 2_000:
            delays.append(after_change[0])
    assert len(delays) >= 15
    # The yardstick is at half as many tokens between false alarms, and seeds are few.
    assert np.median(delays) < 2.2 * known_tokens


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.95])
def test_one_threshold_holds_for_all_rates(rate):
    stable = [
        alarms(AcceptanceShiftDetector(), bernoulli(seed, rate, rate, tokens=1_000))
        for seed in range(40)
    ]
    assert sum(map(bool, stable)) <= 5  # 2 are expected


def test_an_alarm_tells_the_change_and_comes_once():
    detector, whole = AcceptanceShiftDetector(), []
    for t, value in enumerate(bernoulli(1, 0.8, 0.3)):
        detector.update(value)
        if detector.drift_detected:
            whole.append((t, detector.shift))
    ((t, shift),) = whole
    assert abs(t + 1 - shift.tokens_since - 2_000) < 15
    assert shift.before == pytest.approx(0.8, abs=0.05)
    assert shift.after == pytest.approx(0.3, abs=0.15)
    assert shift.statistic > detector.threshold
    assert detector.reference == pytest.approx(0.3, abs=0.05)


def test_requests_of_their_own_rate_are_no_shift():
    rng = np.random.default_rng(5)
    named, nameless = AcceptanceShiftDetector(), AcceptanceShiftDetector()
    counts = {"named": 0, "nameless": 0}
    for request in range(60):
        rate = rng.beta(7.0, 3.0)
        for value in (rng.random(100) < rate).astype(int):
            named.update(value, group=request)
            nameless.update(value)
            counts["named"] += named.drift_detected
            counts["nameless"] += nameless.drift_detected
    assert counts["named"] <= 1
    assert counts["nameless"] >= 10


def test_what_a_moving_prediction_misses_from_the_start_is_no_shift():
    rng = np.random.default_rng(2)
    detector = AcceptanceShiftDetector()
    found = []
    for t in range(4_000):
        predicted = (0.9, 0.6, 0.3)[t // 100 % 3]
        odds = predicted / (1.0 - predicted) * (1.5 if t < 3_000 else 0.4)
        true = odds / (1.0 + odds)
        detector.update(int(rng.random() < true), expected=predicted)
        found += [t] * detector.drift_detected
    assert len(found) == 1
    assert 3_000 <= found[0] < 3_120


def test_counts_tell_what_single_outcomes_tell():
    rng = np.random.default_rng(3)
    singles, counts = AcceptanceShiftDetector(), AcceptanceShiftDetector()
    noticed = {}
    for t in range(500):
        outcomes = (rng.random(8) < (0.8 if t < 300 else 0.5)).astype(int)
        for value in outcomes:
            singles.update(value)
            if singles.drift_detected:
                noticed.setdefault("singles", t)
        counts.update(int(outcomes.sum()), trials=8)
        if counts.drift_detected:
            noticed.setdefault("counts", t)
    assert 300 <= noticed["singles"] <= 310
    assert abs(noticed["counts"] - noticed["singles"]) <= 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 2, 0.5])
def test_what_is_no_outcome_is_counted_and_changes_nothing(value):
    detector = AcceptanceShiftDetector()
    alarms(detector, bernoulli(0, 0.8, 0.8, tokens=200))
    before = detector.state()
    detector.update(value)
    after = detector.state()
    assert after.pop("ignored") == before.pop("ignored") + 1
    assert all(
        np.array_equal(after["drift"][name], before["drift"][name]) for name in before["drift"]
    )
    latency = LatencyShiftDetector()
    latency.update(-1.0)
    latency.update(math.nan)
    assert latency.ignored == 2


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, 1_200), seed=st.integers(0, 5))
def test_what_follows_a_reload_is_bitwise_the_same(cut, seed):
    values = bernoulli(seed, 0.8, 0.4, change=1_000, tokens=1_200)
    whole, first, second = (AcceptanceShiftDetector(max_groups=4) for _ in range(3))
    for t, value in enumerate(values):
        whole.update(value, group=t // 50)
    for t, value in enumerate(values[:cut]):
        first.update(value, group=t // 50)
    second.load(first.state())
    for t, value in enumerate(values[cut:], start=cut):
        second.update(value, group=t // 50)
    assert second.statistic == whole.statistic
    assert second.shift == whole.shift
    assert second.reference == whole.reference


def test_a_state_of_another_shape_is_an_error():
    with pytest.raises(ValueError, match="reference must be of 2 slots"):
        SlotDrift(2).load(SlotDrift(3).state())
    with pytest.raises(ValueError, match="version must be 1, got 2"):
        AcceptanceShiftDetector().load({"version": 2})


def test_memory_stays_flat_however_many_groups_come():
    detector = AcceptanceShiftDetector(max_groups=8)
    sizes = []
    for t in range(3_000):
        detector.update(t % 2, group=f"request-{t}")
        if t in (100, 2_999):
            sizes.append(len(pickle.dumps(detector.state())))
    assert sizes[1] <= sizes[0] + 64


def test_wall_clock_sets_the_threshold_and_delay_grows_with_its_logarithm():
    assert alarm_every_tokens(1.0, 5_000.0) == 432e6
    with pytest.raises(ValueError, match="alarms_per_day must be positive"):
        alarm_every_tokens(0.0, 1.0)
    values = bernoulli(4, 0.8, 0.5)
    often = alarms(AcceptanceShiftDetector(alarm_every=2e4), values)
    seldom = alarms(AcceptanceShiftDetector(alarm_every=4.32e8), values)
    assert 2_000 <= often[0] <= seldom[0] < often[0] + 120


@pytest.mark.parametrize("factor", [1.5, 0.7, 1.25])
def test_steps_that_change_their_duration_are_noticed_and_stalls_are_not(factor):
    rng = np.random.default_rng(8)
    ratios = rng.lognormal(sigma=0.05, size=2_000)
    ratios[rng.random(2_000) < 0.02] *= 10.0
    ratios[1_500:] *= factor
    detector = LatencyShiftDetector()
    (found,) = alarms(detector, 20.0 * ratios, expected=20.0)
    assert 1_500 <= found < 1_530
    assert detector.shift.after == pytest.approx(factor, rel=0.15)
    again = LatencyDrift()
    again.load(detector.state()["drift"])
    assert again.statistic == detector.statistic


def test_one_slot_is_watched_beside_many_and_a_declared_change_starts_afresh():
    drift = SlotDrift(n_slots=3)
    drift.reserve(4)
    for slot in (0, 1):
        drift.watch(slot, np.array([0.8, 0.8]))
    rng = np.random.default_rng(6)
    found = []

    def serve(rates):
        for number, rate in enumerate(rates):
            row = number + 1
            drift.open_request(row)
            right = int(np.argmin(np.append(rng.random(2) < rate, False)))
            graded = min(right + 1, 2)
            one = np.array([row])
            found.extend(
                drift.observe(
                    one - 1,
                    one,
                    start=one * 0,
                    graded=np.array([graded]),
                    matched=np.array([right]),
                    fresh=np.array([graded]),
                )
            )

    for step in range(1_200):
        serve((0.8, 0.8 if step < 600 else 0.4, 0.1))
    assert [slot for slot, _ in found] == [1]
    drift.restart()
    assert [drift.statistic(slot) for slot in range(3)] == [0.0, 0.0, 0.0]


def test_all_slots_that_fall_make_one_alert():
    common = CommonShift(4, within_steps=100)
    assert [common.add(step, step, fell=True, watched=3) for step in (1, 2, 3)] == [
        False,
        False,
        True,
    ]
    again = CommonShift(4, within_steps=100)
    again.load(common.state())
    for one in (common, again):
        assert not one.add(4, 0, fell=True, watched=3)
        assert not one.add(400, 1, fell=True, watched=3)
        assert not one.add(401, 2, fell=False, watched=3)


def test_predictions_of_single_tokens_may_vary_widely_if_each_is_of_its_own():
    rng, drift = np.random.default_rng(0), SlotDrift(1)
    drift.watch(0, np.array([0.5]))
    chances = 1.0 / (1.0 + np.exp(-rng.normal(0.4, 1.5, 10_000)))
    alarms = [drift.update(0, int(rng.random() < p), 1, p, row=-1) for p in chances]
    assert not any(alarms)
