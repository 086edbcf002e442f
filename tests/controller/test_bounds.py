"""What promises leave of a step: against definitions, and against every choice there is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.bounds import StepBounds
from acclimate.controller.externality import longest_steps_ms
from acclimate.controller.reasons import Reason
from acclimate.controller.records import int_array
from acclimate.controller.select import chain_candidates
from acclimate.controller.twin import longest_step_ms, upper_ms
from acclimate.predictors.latency import StepLatency


@settings(max_examples=100, deadline=None)
@given(
    share=st.floats(0.0, 0.5),
    allowance=st.floats(0.0, 20.0),
    seed=st.integers(0, 10_000),
)
def test_no_luck_and_no_length_that_is_allowed_lets_a_request_fall_behind(share, allowance, seed):
    """Steps as long as they may be, tokens as few as can be: the margin never turns negative."""
    rng = np.random.default_rng(seed)
    lead, twin = np.zeros(4), np.zeros(4)
    for _ in range(60):
        plain_ms = rng.uniform(5.0, 50.0)
        margins = lead + allowance + share * twin
        longest = longest_step_ms(margins, plain_ms, share=share)
        step_ms = longest if rng.random() < 0.7 else rng.uniform(plain_ms, longest)
        committed = np.where(rng.random(4) < 0.8, 1.0, rng.integers(1, 6, 4))
        twin += step_ms / plain_ms
        lead += committed - step_ms / plain_ms
        assert (lead + allowance + share * twin >= -1e-6).all()


def test_the_batch_as_a_whole_may_lend_where_one_request_may_not():
    margins = np.array([0.0, 30.0])
    assert longest_step_ms(margins, 10.0, share=0.05) == pytest.approx(10.0 / 0.95)
    assert longest_step_ms(margins, 10.0, share=0.05, aggregate=True) == pytest.approx(160 / 0.95)
    assert longest_step_ms(np.zeros(0), 10.0, share=0.05) == math.inf
    assert longest_step_ms(margins, 10.0, share=1.0) == math.inf


def test_what_was_never_measured_may_take_half_as_much_again():
    model = StepLatency(max_requests=4, max_verified=16)
    for step in range(300):
        model.learn(2, step % 3, latency_ms=10.0 + 2.0 * (step % 3))
    curve = model.curve(2, 8)
    errors = model.errors(2, curve)
    assert np.isfinite(errors[:3]).all()
    assert np.isinf(errors[5:]).all()
    upper = upper_ms(curve, errors, float(curve[0]))
    assert upper[0] == curve[0]
    assert (upper >= curve).all()
    assert upper[8] - curve[0] == pytest.approx(1.5 * (curve[8] - curve[0]))
    assert upper[2] - curve[2] < 0.5
    for m in (0, 1, 2, 8):
        doubt = model.doubt(2, m, float(curve[m]))
        assert errors[m] == (math.inf if doubt is None else pytest.approx(doubt))


def slowly(order, chains, pace, left, longest):
    """The definition of the longest steps, prefix by prefix."""
    result = []
    for m in range(order.size + 1):
        most = longest
        for r in range(pace.size):
            own = [j for j in order[:m] if chains.request[j] == r]
            gain = sum(chains.survival[j] for j in own)
            second = sum((2 * chains.depth[j] - 1) * chains.survival[j] for j in own)
            steps = max(left[r] / (1 + gain), 1.0)
            sure = max(gain - 1.5 * math.sqrt(max(second - gain**2, 0) / steps), 0.0)
            most = min(most, pace[r] * (1 + sure))
        result.append(most)
    return result


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_longest_steps_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    chains = chain_candidates(np.cumprod(rng.random((n, 3)), axis=1), rng.integers(0, 4, n))
    order = np.argsort(-chains.survival, kind="stable")
    pace = np.where(rng.random(n) < 0.3, np.inf, rng.uniform(5.0, 50.0, n))
    left = rng.uniform(1.0, 300.0, n)
    longest = float(rng.choice([np.inf, 30.0]))
    found = longest_steps_ms(
        order, chains.request, chains.depth, chains.survival, pace, left, longest
    )
    assert found.tolist() == pytest.approx(slowly(order, chains, pace, left, longest))


def test_a_neighbour_without_drafts_is_spared_whatever_others_gain():
    sure = chain_candidates(np.array([[1.0, 1.0], [0.0, 0.0]]), int_array([2, 0]))
    pace, left = np.array([10.0, 12.0]), np.array([100.0, 100.0])
    caps = longest_steps_ms(
        np.arange(2), sure.request, sure.depth, sure.survival, pace, left, math.inf
    )
    assert caps.tolist() == [10.0, 12.0, 12.0]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_of_all_numbers_that_are_allowed_the_best_is_found(seed):
    """Cliffs: more drafts can be quicker, and be allowed where fewer are not."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 12))
    upper = np.concatenate([[10.0], rng.uniform(9.0, 30.0, m)])
    gains = np.concatenate([[0.0], rng.normal(size=m)])
    caps = rng.uniform(8.0, 30.0, m + 1)
    none = np.zeros(0)
    bounds = StepBounds(upper, 20.0, math.inf, none, none)
    best = bounds.best_count(gains, bounds.allowed(caps))
    allowed = [k for k in range(m + 1) if k == 0 or upper[k] <= caps[k] * (1 + 1e-9)]
    assert best in allowed
    assert gains[best] == pytest.approx(max(gains[k] for k in allowed))
    assert bounds.reason(m) is (Reason.TWIN if upper[m] > 20.0 else Reason.NEIGHBOURS)


def test_the_depth_for_all_alike_is_the_best_that_is_allowed():
    believed, drafts = np.full((2, 4), 0.9), int_array([4, 3])
    upper = 10.0 + np.arange(9.0)
    bounds = StepBounds(upper, 15.0, math.inf, np.full(2, np.inf), np.zeros(2))
    values = np.array([0.0, 1.0, 3.0, 2.0, 5.0])
    assert bounds.best_depth(believed, drafts, (0, 1, 2, 3, 4), values) == (2, 15.0)
    assert bounds.best_depth(believed, drafts, (0, 1), values[:2]) == (1, 15.0)
    tight = bounds._replace(twin_ms=9.0)
    assert tight.best_depth(believed, drafts, (0, 1, 2), values[:3]) == (0, 9.0)
