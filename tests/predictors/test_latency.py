"""Step latency: cliffs, stalls, a measured k0, and no dead ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from acclimate.predictors.latency import StepLatency


def feed(model, cell, n, m, steps, rng, **more):
    for _ in range(steps):
        noisy = cell(n, m) * math.exp(0.02 * rng.normal())
        model.learn(n, m, latency_ms=noisy, **more)


def test_a_visited_k0_is_measured_not_extrapolated():
    """Mostly speculating steps on a curve that bends: the line through them misses k0 by 2 ms."""
    model, rng = StepLatency(16, 128), np.random.default_rng(0)

    def curve(n, m):
        return 26.0 if m == 0 else 28.2 + 0.75 * m

    for _ in range(60):
        for m in (3, 5, 6, 8, 10):
            feed(model, curve, 13, m, 1, rng)
        feed(model, curve, 13, 0, 1, rng)
    assert model.curve(13, 10)[0] == pytest.approx(26.0, abs=0.5)


def test_cliffs_that_are_not_monotone_are_kept():
    """Padding to captured sizes: 48 tokens can cost more than 64."""
    model, rng = StepLatency(16, 128), np.random.default_rng(1)
    cost = {16: 10.0, 20: 11.0, 24: 40.0, 32: 12.0}
    for _ in range(80):
        for m, ms in cost.items():
            model.learn(8, m, latency_ms=ms * math.exp(0.02 * rng.normal()))
    curve = model.curve(8, 32)
    assert curve[24] > 30.0
    assert curve[32] < 16.0


def test_a_stall_is_ignored_and_a_slow_engine_believed():
    model, rng = StepLatency(8, 64), np.random.default_rng(2)
    feed(model, lambda n, m: 20.0, 4, 4, 200, rng)
    for _ in range(5):
        model.learn(4, 4, latency_ms=200.0)
        feed(model, lambda n, m: 20.0, 4, 4, 20, rng)
    assert model.stalls == 5
    assert model.curve(4, 4)[4] == pytest.approx(20.0, rel=0.05)
    feed(model, lambda n, m: 60.0, 4, 4, 600, rng)  # throttled for good
    assert model.curve(4, 4)[4] == pytest.approx(60.0, rel=0.1)


def test_a_stall_among_the_first_steps_does_not_stick():
    model, rng = StepLatency(8, 64), np.random.default_rng(20)
    for m in (4, 8, 8, 4, 8, 4):
        model.learn(4, m, latency_ms=200.0 if m == 8 and model.steps == 1 else 20.0)
    feed(model, lambda n, m: 20.0, 4, 4, 100, rng)
    assert model.curve(4, 8)[8] == pytest.approx(20.0, rel=0.1)


def test_a_slow_cell_seen_three_times_is_kept_and_a_lone_stall_is_not():
    def curve_after(slow_steps):
        model, rng = StepLatency(8, 64), np.random.default_rng(21)
        feed(model, lambda n, m: 20.0, 4, 4, 100, rng)
        feed(model, lambda n, m: 20.0, 4, 12, 10, rng)
        feed(model, lambda n, m: 80.0, 4, 12, slow_steps, rng)
        return model.curve(4, 12)

    assert curve_after(1)[12] == pytest.approx(20.0, rel=0.1)
    assert curve_after(3)[12] > 50.0
    assert curve_after(3)[4] == pytest.approx(20.0, rel=0.1)


def test_a_cell_keeps_what_was_measured_while_others_are_served():
    """A k0 that the line through other cells misses by half, not visited for ten windows."""
    model, rng = StepLatency(8, 64, window_steps=150.0), np.random.default_rng(22)

    def curve(n, m):
        return 10.0 if m == 0 else 24.0 + 0.5 * m

    for _ in range(6):
        for m in (0, 4, 8, 12):
            feed(model, curve, 4, m, 1, rng)
    feed(model, curve, 4, 4, 1_500, rng)
    assert model.evidence(4, 0) < 0.2
    assert model.curve(4, 0)[0] == pytest.approx(10.0, abs=2.5)


def test_doubt_shrinks_with_visits_and_is_unknown_before_the_third():
    model, rng = StepLatency(8, 64), np.random.default_rng(23)
    feed(model, lambda n, m: 20.0, 4, 4, 2, rng)
    assert model.doubt(4, 4, 20.0) is None
    feed(model, lambda n, m: 20.0, 4, 4, 7, rng)
    assert model.doubt(4, 4, 20.0) == pytest.approx(20.0 * 0.05 / 3.0, rel=0.1)
    assert model.doubt(4, 5, 20.0) is not None  # a draft more or less is no other cell


def test_sampled_rows_prefill_and_context_are_features():
    model, rng = StepLatency(16, 128), np.random.default_rng(3)
    for _ in range(600):
        n, m = int(rng.integers(1, 17)), int(rng.integers(0, 30))
        p, c, s = (
            int(rng.integers(0, 2) * 100),
            int(rng.integers(500, 5000)),
            int(rng.integers(0, n + 1)),
        )
        ms = 12.0 + 0.5 * n + 0.4 * m + 0.2 * p + 1e-3 * c + 1.0 * s
        model.learn(n, m, latency_ms=ms, prefill_tokens=p, context_tokens=c, sampled_rows=s)
    base = model.curve(8, 8, context_tokens=2000)[8]
    assert model.curve(8, 8, context_tokens=2000, sampled_rows=8)[8] - base == pytest.approx(
        8, abs=2
    )
    assert model.prefill(100) == pytest.approx(20.0, rel=0.15)


def test_drafting_and_verifying_are_told_apart_where_they_vary_apart():
    model, rng = StepLatency(8, 64), np.random.default_rng(4)
    for _ in range(800):
        m, d = int(rng.integers(0, 20)), int(rng.integers(0, 6))
        model.learn(4, m, latency_ms=15.0 + 0.5 * m + 0.3 * 4 * d, draft_depth=d)
    assert model.drafting(4, np.array([5.0])) == pytest.approx(6.0, rel=0.2)


def drafted_ms(n, d):
    """An EAGLE-like drafter: a head over the vocabulary per token, a layer per further pass."""
    return 0.6 * n * min(d, 1) + (5.0 + 0.4 * n) * max(d - 1, 0)


def test_passes_first_and_further_tokens_of_drafts_have_prices_of_their_own():
    model, rng = StepLatency(16, 128), np.random.default_rng(6)
    for _ in range(3000):
        n, d = int(rng.choice([1, 4, 8, 16])), int(rng.integers(0, 4))
        m = int(rng.integers(0, 2 * n + 1))
        ms = (40.0 + n + 0.8 * m + drafted_ms(n, d)) * math.exp(0.02 * rng.normal())
        model.learn(n, m, latency_ms=ms, draft_depth=d)
    for n in (1, 16):
        said = model.drafting(n, np.array([0.0, 1.0, 2.0, 3.0]))
        assert said == pytest.approx([drafted_ms(n, d) for d in range(4)], abs=1.0, rel=0.1)


def test_a_first_pass_that_is_run_anyway_costs_nothing():
    model, rng = StepLatency(16, 128), np.random.default_rng(7)
    for _ in range(1000):
        d = int(rng.integers(0, 4))
        model.learn(8, 4, latency_ms=30.0 + 3.0 * max(d, 1) + 0.2 * rng.normal(), draft_depth=d)
    assert model.drafting(8, np.array([1.0, 3.0])) == pytest.approx([0.0, 6.0], abs=0.5)


def test_a_table_with_one_price_for_drafts_is_read():
    model, rng = StepLatency(8, 64), np.random.default_rng(8)
    for step in range(400):
        m = int(rng.integers(0, 20))
        model.learn(4, m, latency_ms=15.0 + 0.5 * m + 0.1 * (step % 3), draft_depth=8)
    state = model.state()
    old = [0, 1, 2, 3, 4, 5, 7]  # further tokens of drafts are the ones that were counted
    early = {
        **state,
        "theta": state["theta"][old],
        "moment": state["moment"][old],
        "gram": state["gram"][np.ix_(old, old)],
        "load_sums": state["load_sums"][:, [*old, *(9 + np.array(old)), 18, 19]],
        "cells": state["cells"][:, :, [*old, 9]],
    }
    copy = StepLatency(8, 64)
    copy.load(early)
    copy.check()
    before = model.curve(4, 20, draft_depth=8)
    assert copy.curve(4, 20, draft_depth=8) == pytest.approx(before, rel=0.04)


def test_where_drafts_come_anyway_their_time_is_part_of_every_step():
    priced, rng = StepLatency(8, 64), np.random.default_rng(9)
    plain = StepLatency(8, 64, prices_drafting=False)
    for _ in range(400):
        n, m = int(rng.choice([1, 4])), int(rng.integers(0, 20))
        ms = (15.0 + 2.0 * n + 0.5 * m) * math.exp(0.02 * rng.normal())
        for model in (priced, plain):
            model.learn(n, m, latency_ms=ms, draft_depth=8)
    assert plain.curve(4, 10)[[0, 10]] == pytest.approx([23.0, 28.0], rel=0.02)
    assert (plain.curve(4, 10, draft_depth=8) == plain.curve(4, 10)).all()
    assert not plain.drafting(4, np.arange(9.0)).any()
    # A state from before they were told apart: its drafts' share of a step is not lost.
    other = StepLatency(8, 64, prices_drafting=False)
    other.load(priced.state())
    other.check()
    assert other.curve(4, 10)[[0, 10]] == pytest.approx([23.0, 28.0], rel=0.02)


def test_save_and_load_gives_the_same_bits():
    model, rng = StepLatency(8, 64), np.random.default_rng(5)
    feed(model, lambda n, m: 20.0 + m, 4, 3, 50, rng)
    copy = StepLatency(8, 64)
    copy.load(model.state())
    for each in (model, copy):
        each.learn(4, 5, latency_ms=26.0)
    assert (model.curve(4, 20) == copy.curve(4, 20)).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_duration_must_be_positive_and_finite(bad):
    with pytest.raises(ValueError, match="latency_ms must be positive and finite, got"):
        StepLatency(8, 64).learn(1, 0, latency_ms=bad)


def coverage(model, curve, rng, *, cells, sigma, of_mean):
    inside = []
    for n, m in cells:
        low, high = model.interval(n, m, of_mean=of_mean)
        for _ in range(1 if of_mean else 100):
            # The mean of what is log-normal lies above its median.
            noise = 0.5 * sigma**2 if of_mean else sigma * rng.normal()
            ms = curve(n, m) * math.exp(noise)
            inside.append(low[m] <= ms <= high[m])
    return float(np.mean(inside))


@pytest.mark.parametrize("sigma", [0.05, 0.15])
def test_intervals_hold_as_many_steps_as_they_promise(sigma):
    def curve(n, m):
        return 20.0 + 0.3 * n + 0.4 * m + (6.0 if m == 0 else 0.0)

    steps, means, hidden = [], [], []
    for seed in range(12):
        rng, model = np.random.default_rng(seed), StepLatency(16, 128)
        seen = [(n, n * k) for n in (1, 4, 8, 16) for k in (0, 1, 3, 5)]
        for _ in range(20):
            for n, m in seen:
                model.learn(n, m, latency_ms=curve(n, m) * math.exp(sigma * rng.normal()))
        unseen = [(n, n * k) for n in (4, 8, 12, 16) for k in (2, 4)]
        steps.append(coverage(model, curve, rng, cells=seen, sigma=sigma, of_mean=False))
        means.append(coverage(model, curve, rng, cells=seen, sigma=sigma, of_mean=True))
        hidden.append(coverage(model, curve, rng, cells=unseen, sigma=sigma, of_mean=True))
    assert 0.86 < np.mean(steps) < 0.97
    assert np.mean(means) > 0.85
    assert np.mean(hidden) > 0.85


def test_an_interval_narrows_where_steps_were_measured_and_only_there():
    model, rng = StepLatency(16, 64), np.random.default_rng(30)
    feed(model, lambda n, m: 20.0 + m, 4, 4, 30, rng)
    feed(model, lambda n, m: 20.0 + m, 4, 0, 30, rng)
    low, high = model.interval(4, 8, of_mean=True)
    assert high[4] - low[4] < 0.2 * (high[8] - low[8])
    wide_low, wide_high = model.interval(4, 8, level=0.99, of_mean=True)
    assert (wide_low <= low).all() and (wide_high >= high).all() and (low > 0.0).all()
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got 1\.0"):
        model.interval(4, 8, level=1.0)


def test_sizes_that_an_engine_pads_to_are_read_and_not_discovered():
    def curve(n, m):
        tokens = n + m
        return next((s for s in (8, 16, 32) if tokens <= s), 1.5 * tokens)

    told, rng = StepLatency(16, 64, capture_sizes=(8, 16, 32)), np.random.default_rng(31)
    for _ in range(40):
        for m in (0, 6, 14, 30, 40):
            feed(told, curve, 4, m, 1, rng)
    seen = told.curve(4, 44)
    assert [seen[m] for m in (2, 4)] == pytest.approx([seen[0]] * 2)
    assert [seen[m] for m in (5, 12)] == pytest.approx([16.0] * 2, rel=0.02)
    assert [seen[m] for m in (13, 20, 28)] == pytest.approx([32.0] * 3, rel=0.02)
    assert seen[40] == pytest.approx(66.0, rel=0.02)  # beyond the largest, no graph
    with pytest.raises(ValueError, match="capture_sizes must be ascending and positive"):
        StepLatency(4, 4, capture_sizes=(4, 2))
