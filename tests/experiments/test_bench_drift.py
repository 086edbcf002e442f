"""The drift bench: streams as they should be, figures named and finite, and the known yardstick."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from acclimate.experiments.bench import drift, drift_peers
from acclimate.experiments.bench.drift_streams import (
    first_order_limit,
    independent,
    known_threshold,
    live_like,
    shift_pairs,
    watch_acclimate,
    watch_known,
)


@pytest.mark.parametrize(("before", "after", "tokens"), [(0.8, 0.6, 88), (0.7, 0.6, 408)])
def test_first_order_limit_is_that_of_the_facts(before, after, tokens):
    assert round(first_order_limit(before, after)) == tokens


def test_the_cusum_that_knows_both_rates_takes_the_known_delay():
    threshold = known_threshold(np.random.default_rng(0), 0.8, 0.6, 10_000.0, 1_000_000)
    watch = watch_known(0.8, 0.6, threshold)
    delays = []
    for seed in range(200):
        found = watch(independent(np.random.default_rng(seed), 0.8, 0.6, 2_000, 4_000), 2_000)
        delays.append(found[-1] - 1_999)
    assert np.median(delays) == pytest.approx(49, abs=6)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_live_like_tokens_are_of_requests_with_rates_of_their_own(concurrency):
    rng = np.random.default_rng(1)
    stream = live_like(rng, 0.7, 0.7, 0, 200_000, concurrency=concurrency)
    sizes = np.bincount(stream.request)
    rates = np.bincount(stream.request, stream.accepted) / sizes
    whole = sizes >= 50
    assert stream.accepted.mean() == pytest.approx(0.7, abs=0.02)
    # Variance of Beta(7, 3), and the sampling noise of about a hundred tokens.
    assert rates[whole].var() == pytest.approx(0.21 / 11 + 0.0019, rel=0.15)
    assert sizes.max() <= 150


def test_pairs_are_apart_and_repeat():
    pairs = list(shift_pairs(np.random.default_rng(3), 20))
    assert pairs == list(shift_pairs(np.random.default_rng(3), 20))
    assert all(abs(a - b) >= 0.15 and 0.05 <= min(a, b) <= max(a, b) <= 0.95 for a, b in pairs)


def test_an_alarm_before_the_change_is_counted_apart():
    def watch(stream, change):
        return [10, change + 4] if stream.accepted[0] else [change + 9]

    def draw(rng, tokens):
        return independent(rng, 0.3, 0.3, 0, tokens)

    found = drift.delays(drift_peers.Peer("known", watch), draw, 0, 100, 50)
    assert 0.15 < found.early_share < 0.5
    assert set(found.tokens) == {10.0}
    assert found.missed == 0


def test_figures_are_named_and_finite(tmp_path: Path, monkeypatch):
    few = [p for p in drift_peers.peers() if p.name in ("adwin", "do_nothing", "always_fire")]
    monkeypatch.setattr(drift, "peers", lambda: few)
    for name, value in {
        "_RANDOM_PAIRS": 1,
        "RATES": (0.8,),
        "_LIVE_RATES": (0.7,),
        "NAMED_PAIRS": ((0.8, 0.5),),
        "_KNOWN_TOKENS": 100_000,
        "_STABLE_TOKENS": 5_000,
    }.items():
        monkeypatch.setattr(drift, name, value)
    out = tmp_path / "drift.json"
    drift.run_drift(json=out, seeds=5)
    figures = {f["name"]: f["value"] for f in json.loads(out.read_text())["figures"]}
    assert all(value is not None and math.isfinite(value) for value in figures.values())
    assert figures["drift/do_nothing/p0.8/arl_tokens"] == 3 * 5 * 5_000
    assert figures["drift/always_fire/p0.8/alarm_share"] == 1.0
    assert figures["drift/0.8-0.5/always_fire/median_delay_tokens"] == 1.0
    assert figures["drift/0.8-0.5/do_nothing/miss_share"] == 1.0
    for name in (
        "drift/0.8-0.5/acclimate/median_delay_tokens",
        "drift/0.8-0.5/acclimate/miss_share",
        "drift/0.8-0.5/known_cusum/median_delay_tokens",
        "drift/live/c1/acclimate/alarm_share",
        "drift/live/c8/adwin/alarm_share",
    ):
        assert name in figures


def test_ours_is_told_requests_apart():
    stream = live_like(np.random.default_rng(2), 0.7, 0.7, 0, 5_000, concurrency=1)
    assert len(watch_acclimate(stream, 5_000)) <= 1
