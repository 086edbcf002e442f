"""The select is exact: brute force over every valid set finds nothing better."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.records import Candidates, int_array
from acclimate.controller.select import (
    chain_candidates,
    choose_chains,
    depth_values,
    select,
    verify_lens,
)

curves = st.lists(st.floats(0.0, 30.0), min_size=9, max_size=9)  # any shape, cliffs included


def random_tree(rng, size):
    parent, depth, survival = [], [], []
    for node in range(size):
        p = int(rng.integers(-1, node)) if node else -1
        parent.append(p)
        depth.append(1 if p < 0 else depth[p] + 1)
        survival.append(float(rng.random()) * (1.0 if p < 0 else survival[p]))
    return Candidates(
        int_array([0] * size), int_array(parent), int_array(depth), np.array(survival)
    )


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10_000), curve=curves, price=st.floats(0.0, 2.0))
def test_no_connected_set_beats_the_selection(seed, curve, price):
    tree = random_tree(np.random.default_rng(seed), 8)
    ms = np.array(curve)
    chosen = select(tree.survival, ms, price)
    kept = set(chosen.order[: chosen.count].tolist())
    assert all(tree.parent[node] < 0 or int(tree.parent[node]) in kept for node in kept)

    def value(nodes):
        return sum(tree.survival[list(nodes)]) - price * (ms[len(nodes)] - ms[0])

    best = max(
        value(nodes)
        for size in range(9)
        for nodes in itertools.combinations(range(8), size)
        if all(tree.parent[node] < 0 or tree.parent[node] in nodes for node in nodes)
    )
    assert value(kept) == pytest.approx(best, abs=1e-7 * max(1.0, abs(best)))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    curve=curves,
    price=st.floats(0.0, 4.0),
    weights=st.lists(st.floats(0.01, 30.0), min_size=3, max_size=3),
)
def test_no_connected_set_of_several_weighted_trees_is_worth_more(seed, curve, price, weights):
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, size) for size in (3, 3, 2)]
    request = np.repeat([0, 1, 2], [3, 3, 2])
    first = np.repeat([0, 3, 6], [3, 3, 2])
    parent = np.concatenate([tree.parent for tree in trees])
    parent = np.where(parent < 0, -1, parent + first)
    worth = np.concatenate([tree.survival for tree in trees]) * np.array(weights)[request]
    ms = np.array(curve)
    chosen = select(worth, ms, price)
    kept = set(chosen.order[: chosen.count].tolist())
    assert all(parent[node] < 0 or int(parent[node]) in kept for node in kept)

    def value(nodes):
        return sum(worth[list(nodes)]) - price * (ms[len(nodes)] - ms[0])

    best = max(
        value(nodes)
        for size in range(9)
        for nodes in itertools.combinations(range(8), size)
        if all(parent[node] < 0 or parent[node] in nodes for node in nodes)
    )
    assert value(kept) == pytest.approx(best, abs=1e-7 * max(1.0, abs(best)))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), weighted=st.booleans(), price=st.floats(0.0, 3.0))
def test_one_call_chooses_what_its_parts_choose(seed, weighted, price):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    survival = np.cumprod(rng.random((n, 4)), axis=1)
    shade, slots = rng.uniform(0.5, 1.2, 2), rng.integers(0, 2, n)
    drafts = rng.integers(0, 5, n)
    weights = rng.uniform(0.1, 20.0, n)
    ms = 10.0 + rng.uniform(0.0, 8.0, int(drafts.sum()) + 1)  # any shape
    chosen = choose_chains(
        survival, shade, slots, drafts, ms, price, *([weights] if weighted else [])
    )
    chains = chain_candidates(survival, drafts)
    believed = chains.survival * shade[slots[chains.request]]
    apart = select(believed * weights[chains.request] if weighted else believed, ms, price)
    assert chosen.selection.order.tolist() == apart.order.tolist()
    assert chosen.selection.count == apart.count
    assert chosen.lens.tolist() == verify_lens(chains, apart, apart.count, n).tolist()
    assert chosen.tokens(apart.count) == pytest.approx(believed[apart.order[: apart.count]].sum())


def test_equal_survival_prefers_the_smaller_position():
    chains = chain_candidates(np.ones((2, 3)), np.array([3, 3]))
    chosen = select(chains.survival, np.zeros(7), 0.0)
    assert verify_lens(chains, chosen, 2, 2).tolist() == [1, 1]
    assert verify_lens(chains, chosen, 3, 2).tolist() == [2, 1]


def test_equal_objectives_go_to_fewer_tokens():
    ms = np.array([10.0, 11.0, 12.0])
    assert select(np.array([0.5, 0.5]), ms, 0.5).count == 0
    assert select(np.array([0.5 + 1e-12, 0.5]), ms, 0.5).count == 0


def test_rate_is_no_ranking():
    """K=4 accepts 52.5 % of its drafts, K=2 65.5 %; where time is cheap K=4 earns more."""
    deep, shallow = np.array([0.844, 0.599, 0.385, 0.271]), np.array([0.766, 0.545])
    assert deep.mean() < shallow.mean()
    ms = np.array([6.5, 7.0, 7.3, 7.6, 7.9])
    price = (1 + deep.sum()) / ms[4]
    assert select(deep, ms, price).count == 4


def best_depth(survival, ms):
    """Depth of the best rate, by Dinkelbach's iteration on our own objective."""
    depths = tuple(range(survival.shape[0] + 1))
    price = 1.0 / ms[0]
    for _ in range(50):
        values = depth_values(
            survival[None, :], np.ones((1, survival.shape[0])), depths, ms,
            np.zeros(len(depths)), price, uniform=True,
        )  # fmt: skip
        depth = int(np.argmax(values))
        rate = (1 + survival[:depth].sum()) / ms[depth]
        if abs(rate - price) < 1e-12:
            break
        price = rate
    return depth


@settings(max_examples=200, deadline=None)
@given(
    q=st.lists(st.floats(0.05, 0.99), min_size=5, max_size=5),
    first=st.floats(1.0, 20.0),
    steps=st.lists(st.floats(1.0, 1.6), min_size=5, max_size=5),
    more=st.lists(st.floats(1.0, 1.3), min_size=5, max_size=5),
)
def test_if_every_step_up_costs_relatively_more_the_best_depth_is_nowhere_greater(
    q, first, steps, more
):
    survival = np.cumprod(q)
    cheap = first * np.cumprod([1.0, *steps])
    dear = first * np.cumprod([1.0, *(a * b for a, b in zip(steps, more, strict=True))])
    assert best_depth(survival, dear) <= best_depth(survival, cheap)
