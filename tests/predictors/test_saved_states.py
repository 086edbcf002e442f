"""A learner that was saved and loaded mid-stream goes on bitwise as the one that was not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.integrations.trace_format import pack, unpack
from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.acceptance_codes import CONFIDENCES
from acclimate.predictors.acceptance_mix import AcceptanceMix
from acclimate.predictors.calibration import Calibration
from acclimate.predictors.censored_survival import CensoredSurvival
from acclimate.predictors.common_shift import CommonShift
from acclimate.predictors.draft_length import DraftLength
from acclimate.predictors.drift import SlotDrift
from acclimate.predictors.latency import StepLatency
from acclimate.predictors.prequential import PrequentialChoice
from acclimate.predictors.random_effects import RandomEffectsAcceptance
from acclimate.predictors.shift_detectors import AcceptanceShiftDetector, LatencyShiftDetector

SLOTS, DEPTH, ROWS = 3, 4, 8


def runs(rng):
    """Draw a step's graded runs."""
    n = int(rng.integers(1, 6))
    graded = rng.integers(0, DEPTH + 1, n)
    matched = rng.integers(0, graded + 1)
    return rng.integers(0, SLOTS, n), rng.integers(0, ROWS, n), 0 * graded, graded, matched


class Tables:
    make = staticmethod(lambda: AcceptanceTable(SLOTS, DEPTH))

    @staticmethod
    def feed(learner, rng):
        return learner.learn(*runs(rng)), learner.survival(np.arange(3), np.arange(3))


class Model:
    @staticmethod
    def make():
        model = RandomEffectsAcceptance(SLOTS, DEPTH)
        model.open_slot(1, 0, tenant=1)
        return model

    @staticmethod
    def feed(learner, rng):
        slots, rows, *rest = runs(rng)
        learner.open_request(int(rng.integers(1, ROWS)), int(rng.integers(SLOTS)))
        hints = rng.integers(0, CONFIDENCES, (slots.shape[0], DEPTH))
        covariates = rng.integers(0, 3, (slots.shape[0], 3))
        learned = learner.learn(slots, rows, *rest, hints, covariates)
        return learned, learner.predict(np.arange(3), np.arange(3))


class Mix:
    @staticmethod
    def make():
        mix = AcceptanceMix(SLOTS, DEPTH)
        mix.open_slot(1, 0, tenant=1)
        return mix

    @staticmethod
    def feed(learner, rng):
        return learner.learn(*runs(rng)), learner.survival(np.arange(3), np.arange(3))


class Drift:
    @staticmethod
    def make():
        drift = SlotDrift(SLOTS)
        drift.reserve(ROWS)
        drift.watch(1, np.full(DEPTH, 0.9))
        return drift

    @staticmethod
    def feed(learner, rng):
        step = runs(rng)
        return learner.observe(*step, step[3]), learner.statistic(1)


class Detector:
    make = AcceptanceShiftDetector

    @staticmethod
    def feed(learner, rng):
        learner.update(int(rng.random() < 0.5))
        return learner.drift_detected


class LatencyDetector:
    make = LatencyShiftDetector

    @staticmethod
    def feed(learner, rng):
        learner.update(float(rng.lognormal()))
        return learner.drift_detected


class Common:
    make = staticmethod(lambda: CommonShift(SLOTS, within_steps=50))

    @staticmethod
    def feed(learner, rng):
        return learner.add(int(rng.integers(99)), int(rng.integers(SLOTS)), fell=True, watched=2)


class Survival:
    make = staticmethod(lambda: CensoredSurvival(DEPTH))

    @staticmethod
    def feed(learner, rng):
        verified = rng.integers(1, DEPTH + 1, 3)
        matched = rng.integers(0, verified + 1)
        propensity = rng.uniform(0.1, 1.0, (3, DEPTH))
        learner.learn(np.minimum(matched + 1, verified), matched, propensity)
        return learner.survival


class Choice:
    make = staticmethod(lambda: PrequentialChoice(2))

    @staticmethod
    def feed(learner, rng):
        learner.learn(rng.random((3, 2)), rng.random(3) < 0.5)
        return learner.best


class Scores:
    make = staticmethod(lambda: Calibration(SLOTS))

    @staticmethod
    def feed(learner, rng):
        learner.learn(np.sort(rng.random((SLOTS, 4)), axis=1)[:, ::-1].copy() * 9)
        return learner.means(1)


class Lengths:
    make = staticmethod(lambda: DraftLength(SLOTS, DEPTH))

    @staticmethod
    def feed(learner, rng):
        asked = rng.integers(0, DEPTH + 1, 3)
        learner.learn(rng.integers(0, SLOTS, 3), rng.integers(0, asked + 1), asked)
        return learner.reach(np.arange(SLOTS))


class Latency:
    make = staticmethod(lambda: StepLatency(8, 8 * DEPTH))

    @staticmethod
    def feed(learner, rng):
        n, verified = int(rng.integers(1, 8)), int(rng.integers(0, 8))
        learned = learner.learn(n, verified, latency_ms=float(10 + n + rng.random()))
        return learned, learner.curve(n, 8)


LEARNERS = (
    Tables, Model, Mix, Drift, Detector, LatencyDetector, Common, Survival, Choice, Scores, Lengths,
    Latency,
)  # fmt: skip


def bits(value):
    """Return what was learned or predicted in a form in which equal means bitwise equal."""
    return json.dumps(pack(value if not isinstance(value, list) else [str(v) for v in value]))


@pytest.mark.parametrize("case", LEARNERS, ids=lambda case: case.__name__)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), before=st.integers(0, 60), after=st.integers(1, 30))
def test_it_goes_on_bitwise(case, seed, before, after):
    learner, rng = case.make(), np.random.default_rng(seed)
    for _ in range(before):
        case.feed(learner, rng)
    copy = case.make()
    copy.load(unpack(json.loads(json.dumps(pack(learner.state())))))
    again = np.random.default_rng()
    again.bit_generator.state = rng.bit_generator.state
    for _ in range(after):
        assert bits(case.feed(learner, rng)) == bits(case.feed(copy, again))
    assert bits(learner.state()) == bits(copy.state())


@pytest.mark.parametrize("case", LEARNERS, ids=lambda case: case.__name__)
def test_a_state_of_other_sizes_is_refused(case):
    learner = case.make()
    for name, value in learner.state().items():
        if isinstance(value, np.ndarray):
            wrong = {**learner.state(), name: np.zeros((7, *value.shape), dtype=value.dtype)}
            with pytest.raises(ValueError, match=r"must"):
                learner.load(wrong)


@pytest.mark.parametrize("name", ["pool", "slot_of"])
def test_a_place_outside_an_array_is_refused(name):
    for case in (Tables, Model):
        state = case.make().state()
        if name in state:
            state[name][0] = 10**6
            with pytest.raises(ValueError, match=rf"{name} must be in"):
                case.make().load(state)


def test_a_value_that_is_not_finite_is_refused():
    state = Tables.make().state()
    state["log_odds"][0, 0] = math.nan
    with pytest.raises(ValueError, match="log_odds must be finite"):
        Tables.make().load(state)
