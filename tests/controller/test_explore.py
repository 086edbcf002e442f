"""Probes of depths: while there is hope, within the budget, and rarely where there was none."""

from __future__ import annotations

import numpy as np

from acclimate.controller.explore import Explorer

FRESH = np.zeros(3, dtype=bool)


def tries(explorer, values, doubts, stale=FRESH, *, index=1, steps=2_000, tokens=10):
    """Return how often each depth was tried."""
    counts = np.zeros(len(values), dtype=int)
    for step in range(steps):
        tried = explorer.depth(step, index, np.array(values), np.array(doubts), stale.copy())
        if tried is not None:
            counts[tried] += 1
        explorer.earn(tokens)
    return counts.tolist()


def test_a_depth_is_tried_while_it_could_be_the_best_and_no_longer():
    hope = tries(Explorer(0, 0.02), [0.0, 5.0, 4.0], [1.0, 0.1, 1.0])
    assert hope[:2] == [0, 0]
    assert hope[2] > 100
    assert tries(Explorer(0, 0.02), [0.0, 5.0, 3.0], [1.0, 0.1, 1.0]) == [0, 0, 0]


def test_what_probes_cost_stays_within_their_share():
    explorer = Explorer(0, 0.02)
    tries(explorer, [-1_000.0, 5.0, -15.0], [1.0, 0.1, 50.0])
    assert 0.0 < explorer.spent_tokens <= 10.0 + 0.02 * explorer.earned_tokens


def test_the_hopeless_are_tried_again_when_their_measurement_fades_for_a_fraction_of_it():
    explorer = Explorer(0, 0.02)
    stale = np.array([True, True, True])
    counts = tries(explorer, [-3.0, 5.0, -2.0], [0.0, 0.0, 0.0], stale, steps=20_000)
    assert counts[1] == 0  # what is done all the time needs no probe
    assert counts[2] > 0
    assert explorer.spent_tokens == 0.0
    assert explorer.spent_again_tokens <= 0.02 * 0.025 * explorer.earned_tokens


def test_without_a_share_nothing_is_tried():
    assert tries(Explorer(0, 0.0), [0.0, 5.0, 9.0], [1.0, 1.0, 1.0]) == [0, 0, 0]


def test_looks_cost_half_of_what_probes_may():
    explorer = Explorer(0, 0.02)
    looks = 0
    for _ in range(1000):
        explorer.earn(16)
        looks += explorer.looks(2.0)
    assert looks == 80  # 1 % of 16,000 tokens
    copy = Explorer(0, 0.02)
    copy.load(explorer.state())
    assert not copy.looks(2.0)
    assert all(copy.looks(0.0) for _ in range(10)), "what costs nothing is always allowed"


def test_drafts_of_a_probe_are_taken_once():
    explorer = Explorer(0, 0.02)
    explorer.await_drafts(3)
    copy = Explorer(0, 0.02)
    copy.load(explorer.state())
    for each in (explorer, copy):
        assert each.take_drafts() == 3
        assert each.take_drafts() is None
