"""Filling rows up to the widest: what a place costs is learned, and wide trees pay for it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.records import int_array
from acclimate.controller.row_filling import RowFilling, places_filled
from acclimate.controller.select import select

NONE = np.zeros(0)


def objective(sizes, survival, request, curve, price, place_ms):
    """Worth of each request's best so many nodes, less the price of their step."""
    count, worth = sum(sizes), 0.0
    for r, size in enumerate(sizes):
        worth += float(np.sort(survival[request == r])[::-1][:size].sum())
    places = len(sizes) * max(sizes) - count
    return worth - price * (curve[count] - curve[0] + place_ms * places)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.lists(st.integers(0, 4), min_size=2, max_size=4),
    place_ms=st.floats(0.01, 1.0),
    price=st.floats(0.05, 1.0),
)
def test_the_choice_is_the_best_of_all_widths_and_counts(seed, sizes, place_ms, price):
    rng = np.random.default_rng(seed)
    request = np.repeat(np.arange(len(sizes)), sizes)
    survival = np.concatenate([NONE, *(np.sort(rng.random(size))[::-1] for size in sizes)])
    curve = 10.0 + np.concatenate([[0.0], rng.uniform(-0.2, 1.5, survival.size).cumsum()])
    filling = RowFilling(max_requests=8)
    filling.scale[0] = place_ms
    found = filling.limit(request, survival, NONE, curve, price, len(sizes))
    chosen = select(found.believed, found.curve, price)
    count = chosen.count
    best = max(
        objective(some, survival, request, curve, price, place_ms)
        for some in itertools.product(*(range(size + 1) for size in sizes))
    )
    assert chosen.gains[count] == pytest.approx(best, abs=1e-9)
    taken = np.bincount(request[chosen.order[:count]], minlength=len(sizes))
    places = len(sizes) * int(taken.max()) - count
    assert found.curve[count] == pytest.approx(curve[count] + place_ms * places)


@pytest.mark.parametrize("place_ms", [0.0, 0.15])
def test_what_a_place_costs_is_learned_beside_nodes_and_through_stalls(place_ms):
    rng, filling = np.random.default_rng(1), RowFilling(max_requests=16)
    for _ in range(800):
        n = int(rng.choice([2, 8, 16]))
        nodes = int(rng.integers(0, 4 * n))
        places = int(rng.integers(0, 2 * n) + nodes // 2)  # wide where many are chosen
        beyond = place_ms * places + 3.0 * rng.normal() + 400.0 * (rng.random() < 0.02)
        filling.learn(n, nodes, places, beyond - filling.ms(places), node_ms=1.3)
    assert filling.place_ms == pytest.approx(place_ms, abs=0.04)


def test_a_place_never_costs_more_than_a_node():
    filling = RowFilling(max_requests=8)
    for step in range(200):
        filling.learn(4, 8, step % 20, 5.0 * (step % 20) - filling.ms(step % 20), node_ms=0.7)
    assert filling.place_ms == 0.7


def test_one_request_fills_nothing_up():
    filling = RowFilling(max_requests=8)
    filling.scale[0] = 0.5
    one = np.array([0.9, 0.8])
    same = filling.limit(int_array([0, 0]), one, NONE, np.array([9.0, 9.5, 10.0]), 0.5, 1)
    assert same.believed is one
    assert places_filled(None, 4) == 0
