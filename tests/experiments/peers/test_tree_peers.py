"""Peers for engines of trees: each rule by a case with a known answer, all by the guard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from acclimate.controller.guard import plan_fault
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    RequestInfo,
    Slo,
    StepContext,
    int_array,
)
from acclimate.controller.trees import path_survival
from acclimate.experiments.peers.adaserve import Shape
from acclimate.experiments.peers.adaserve_tree import AdaServeTree, WidthRule
from acclimate.experiments.peers.bastion_tree import BastionTree, greedy_stop
from acclimate.experiments.peers.eagle2_tree import Eagle2Tree
from acclimate.experiments.peers.sequoia_tree import SequoiaTree, best_static_tree
from acclimate.experiments.peers.static_tree import StaticTree
from acclimate.experiments.simulation.table_time import TableTime

ENGINE = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3)
CHAINS = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
MAKERS = (
    lambda engine: StaticTree(engine, depth=3, width=2, nodes=5),
    SequoiaTree,
    lambda engine: Eagle2Tree(engine, nodes=4),
    BastionTree,
    AdaServeTree,
    lambda engine: AdaServeTree(engine, descending=False),
)


def bushes(n: int, seed: int = 0) -> Candidates:
    """Return for each request a full tree two deep and two wide, and a chain below its best leaf."""
    rng = np.random.default_rng(seed)
    shape = [(-1, 1), (-1, 1), (0, 2), (0, 2), (1, 2), (1, 2), (2, 3), (6, 4)]
    request, parent, depth, said = [], [], [], []
    for r in range(n):
        begin = len(parent)
        for above, level in shape:
            request.append(r)
            parent.append(above if above < 0 else begin + above)
            depth.append(level)
            said.append(float(rng.uniform(0.05, 0.5)))
    survival = path_survival(int_array(request), int_array(parent), np.array(said), n)
    return Candidates(
        int_array(request), int_array(parent), int_array(depth), survival, np.array(said)
    )


def context(tree: Candidates | None, n: int, *, now_ns: int = 0, committed: int = 1) -> StepContext:
    return StepContext(
        step=1,
        now_ns=now_ns,
        waiting_prompts=0,
        prefill_forecast_tokens=0,
        requests=int_array(range(1, n + 1)),
        drafts=int_array([4 if tree is not None else 0] * n),
        committed=int_array([committed] * n),
        context_tokens=int_array([20] * n),
        tokens_left=int_array([50] * n),
        candidates=tree,
    )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_every_plan_passes_the_guard(make, n):
    peer = make(ENGINE)
    for at in (context(bushes(n), n), context(None, n)):
        plan = peer.plan(at)
        assert plan_fault(plan, at, ENGINE) is None
    again = make(ENGINE)
    again.load(peer.state())
    at = context(bushes(n, seed=1), n)
    assert again.plan(at).kept.tolist() == peer.plan(at).kept.tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_an_engine_of_chains_is_refused(make):
    with pytest.raises(ValueError, match="max_width must be >= 2, got 1"):
        make(CHAINS)


def test_adaserve_drafts_by_load_alone():
    peer = AdaServeTree(
        ENGINE, shape=Shape(budget_tokens=32, least_depth=1), widths=WidthRule(budget=12)
    )
    shapes = {n: peer.plan(context(bushes(n), n)) for n in (1, 5, 9, 13)}
    found = {n: (plan.draft_depth, plan.draft_width) for n, plan in shapes.items()}
    assert found == {1: (4, 3), 5: (4, 2), 9: (2, 1), 13: (1, 1)}


def test_adaserve_spends_its_budget_on_the_needy_first():
    peer = AdaServeTree(ENGINE, shape=Shape(budget_tokens=2 + 4, least_depth=4))
    peer.admit(RequestInfo(request=1, prompt_tokens=9, max_tokens=50))
    peer.admit(RequestInfo(request=2, prompt_tokens=9, max_tokens=50, slo=Slo(tpot_s=0.01)))
    tree = bushes(2)
    peer.plan(context(tree, 2))  # the first token of each
    plan = peer.plan(context(tree, 2, now_ns=100_000_000, committed=2))
    assert tree.request[plan.kept].tolist() == [1, 1, 1, 1]


def test_sequoias_tree_is_the_best_of_its_size():
    rates, nodes, depth = [0.5, 0.3, 0.1], 5, 3
    _, worth = best_static_tree(rates, nodes=nodes, depth=depth)
    everything = [
        path
        for length in range(1, depth + 1)
        for path in itertools.product(range(3), repeat=length)
    ]

    def value(path):
        return float(np.prod([rates[rank] for rank in path]))

    def whole(paths):
        return all(
            (len(p) == 1 or p[:-1] in paths) and (p[-1] == 0 or (*p[:-1], p[-1] - 1) in paths)
            for p in paths
        )

    likely = sorted(everything, key=value, reverse=True)[:14]
    best = max(
        sum(map(value, chosen))
        for chosen in itertools.combinations(likely, nodes)
        if whole(set(chosen))
    )
    assert sum(worth) == pytest.approx(best)


def test_sequoias_size_follows_the_step_time():
    dear = TableTime([1, 1, 1], [0, 1, 64], [10.0, 14.0, 266.0])
    cheap = TableTime([1, 1, 1], [0, 1, 64], [10.0, 10.01, 10.64])
    sizes = [len(SequoiaTree(ENGINE, profile=time).paths) for time in (dear, cheap)]
    assert sizes[0] <= 2 and sizes[1] > 40


def test_sequoia_wants_falling_rates():
    with pytest.raises(ValueError, match="rank_acceptance must fall"):
        SequoiaTree(ENGINE, rank_acceptance=(0.2, 0.5))


def test_eagle_keeps_as_many_nodes_of_every_request():
    tree = bushes(3)
    plan = Eagle2Tree(ENGINE, nodes=4).plan(context(tree, 3))
    assert np.bincount(tree.request[plan.kept]).tolist() == [4, 4, 4]
    for r in range(3):
        own = np.flatnonzero(tree.request == r)
        kept = np.isin(own, plan.kept)
        assert tree.survival[own[kept]].min() >= tree.survival[own[~kept]].max()


def test_bastion_stops_before_a_cliff_and_does_not_look_behind_it():
    survival = np.array([0.9, 0.8, 0.7, 0.6])
    assert greedy_stop(survival, np.array([10.0, 10.1, 10.2, 10.3, 10.4]), 1) == 4
    # The second node costs a cliff; the two behind it would be nearly free.
    assert greedy_stop(survival, np.array([10.0, 10.1, 20.0, 20.0, 20.0]), 1) == 1


def test_bastion_verifies_less_in_company():
    time = TableTime([1, 8, 1, 8], [0, 0, 8, 8], [10.0, 12.0, 12.0, 40.0])
    alone, crowd = (
        BastionTree(ENGINE, profile=time).plan(context(bushes(n), n)).kept.size / n for n in (1, 8)
    )
    assert alone > crowd


def test_a_static_box_is_a_box():
    tree = bushes(1)
    plan = StaticTree(ENGINE, depth=2, width=1).plan(context(tree, 1))
    assert plan.kept.tolist() == [0, 2] and plan.verify_lens.tolist() == [2]
    assert StaticTree(ENGINE, depth=0, width=1).plan(context(tree, 1)).kept.size == 0
