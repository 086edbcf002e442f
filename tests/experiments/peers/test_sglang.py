"""SGLang's two rules, on their thresholds, intervals and windows."""

import math

import pytest
from tests.experiments.peers.stage import context, f2_time, outcome

from acclimate.controller.records import Capabilities
from acclimate.experiments.peers.base import moved
from acclimate.experiments.peers.sglang_adaptive import (
    EMA_WEIGHT,
    FIRST_TIERS,
    INTERVAL_BATCHES,
    WARM_UP_BATCHES,
    SglangAdaptive,
)
from acclimate.experiments.peers.sglang_throughput import WINDOW_BATCHES, SglangThroughput
from acclimate.experiments.peers.turbospec import EMA_WEIGHT as TURBOSPEC_WEIGHT

_ENGINE = Capabilities(max_depth=7, depths=(0, 1, 2, 3, 4, 5, 6, 7))


def _serve(peer: SglangAdaptive | SglangThroughput, runs: list[int], steps: int) -> list[int]:
    depths = []
    for step in range(1, steps + 1):
        at = context([peer.depth] * len(runs), step=step)
        plan = peer.plan(at)
        peer.observe(outcome(plan, at, runs))
        depths.append(plan.depth)
    return depths


@pytest.mark.parametrize(("weight", "updates"), [(EMA_WEIGHT, 10.3), (TURBOSPEC_WEIGHT, 14.2)])
def test_the_averages_reach_90_percent_when_the_facts_say(weight: float, updates: float) -> None:
    average, count = 0.0, 0
    while average < 0.9:
        average, count = moved(average, 1.0, weight), count + 1
    assert count == math.ceil(updates)
    assert math.log(0.1) / math.log(1.0 - weight) == pytest.approx(updates, abs=0.05)


def test_the_first_move_waits_for_warm_up_and_interval() -> None:
    peer = SglangAdaptive(_ENGINE)
    depths = _serve(peer, [0], 40)
    first = depths.index(1)
    assert depths[:first] == [7] * (WARM_UP_BATCHES + INTERVAL_BATCHES)
    assert set(depths[first:]) == {1}  # the tier of one request has no 0


def test_full_acceptance_climbs_back() -> None:
    peer = SglangAdaptive(_ENGINE)
    _serve(peer, [0], 40)
    assert _serve(peer, [7], 60)[-1] == 7


def test_thresholds_are_half_a_token_below_the_candidates() -> None:
    slot = SglangAdaptive(_ENGINE).slot(1)
    for average, depth in [(4.26, 7), (4.25, 5), (2.25, 3), (0.25, 1), (0.5, 1), (0.51, 3)]:
        slot.average = average
        slot._move()
        assert slot.depth == depth, average


def test_depth_0_probes_and_falls_back() -> None:
    peer = SglangAdaptive(_ENGINE)
    depths = _serve(peer, [0] * 32, 60)
    assert {0, 1} == set(depths[20:])


def test_the_largest_tier_never_speculates_and_tiers_keep_their_own_average() -> None:
    peer = SglangAdaptive(_ENGINE)
    assert set(_serve(peer, [7] * 64, 30)) == {0}
    assert peer.slot(1).average == 6.0
    assert SglangAdaptive(_ENGINE, FIRST_TIERS).slot(64).candidates == [1, 3, 7]


def test_throughput_scores_survival_against_the_profile() -> None:
    engine = Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5))
    peer = SglangThroughput(engine, f2_time())
    depths = _serve(peer, [5], 40)
    assert set(depths) == {5}
    assert peer.expected_tokens(5) == 6.0
    depths = _serve(peer, [0], 60)
    # The window of 20 must empty, and a decision falls only every 10 batches.
    assert depths[-1] == 1 and depths[5] == 5
    assert peer.expected_tokens(1) == 1.0


def test_throughput_has_no_zero_and_so_loses_in_a_large_batch() -> None:
    engine = Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5))
    peer = SglangThroughput(engine, f2_time())
    assert set(_serve(peer, [0] * 128, 60)[40:]) == {1}


def test_throughput_waits_for_full_windows() -> None:
    engine = Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5))
    depths = _serve(SglangThroughput(engine, f2_time()), [0], 30)
    assert depths.index(1) == WINDOW_BATCHES


def test_positions_without_data_are_extrapolated() -> None:
    engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    peer = SglangThroughput(engine, f2_time())
    assert peer.expected_tokens(2) is None
    peer._windows[0].append(0.8)
    assert peer.expected_tokens(2) == pytest.approx(2.6)
    peer._windows[1].append(0.4)
    assert peer.expected_tokens(4) == pytest.approx(1 + 0.8 + 0.4 + 0.2 + 0.2 * (0.25**0.5) ** 1)
