"""vLLM's two rules, on their documented examples and their reported fault."""

import runpy
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.experiments.peers.stage import MODEL_DRAFTER, context, f2_time, outcome, request

from acclimate.controller.records import Capabilities, int_array
from acclimate.controller.select import chain_candidates
from acclimate.experiments.peers.acceptance_estimator import REFIT_STEPS, AcceptanceEstimator
from acclimate.experiments.peers.base import PeerReason
from acclimate.experiments.peers.token_cost import TokenCost
from acclimate.experiments.peers.vllm_adaptive_verification import VllmAdaptiveVerification
from acclimate.experiments.peers.vllm_dynamic import VllmDynamic
from acclimate.experiments.simulation.table_time import TableTime

_COLLAPSE = [(1, 4, 2), (5, 512, 0)]  # vllm#49548


def test_gaps_and_the_tail_inherit_and_the_engine_caps() -> None:
    engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    peer = VllmDynamic(engine, [(1, 8, 9), (12, 16, 1)])
    assert [peer.scheduled_depth(n) for n in (1, 8, 9, 11, 12, 16, 17)] == [4, 4, 4, 4, 1, 1, 1]


@pytest.mark.parametrize("schedule", [[], [(2, 4, 1)], [(1, 4, 1), (4, 5, 0)], [(1, 2, -1)]])
def test_a_broken_schedule_is_refused(schedule: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match="schedule must"):
        VllmDynamic(MODEL_DRAFTER, schedule)


@cache
def _installed_rule() -> Callable[[list[tuple[int, int, int]], int, int], list[int]]:
    """Return the engine's own reading of a schedule, without importing the engine."""
    engine = find_spec("vllm")
    if engine is None or not engine.submodule_search_locations:
        pytest.skip("vllm is not installed")
    path = Path(engine.submodule_search_locations[0]) / "v1/spec_decode/dynamic/utils.py"
    rule = runpy.run_path(str(path))["build_dynamic_sd_schedule_lookup"]
    return cast("Callable[[list[tuple[int, int, int]], int, int], list[int]]", rule)


@settings(max_examples=30, deadline=None)
@given(
    widths=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=5),
    depths=st.lists(st.integers(0, 7), min_size=5, max_size=5),
)
def test_the_schedule_is_read_as_the_installed_engine_reads_it(
    widths: list[tuple[int, int]], depths: list[int]
) -> None:
    schedule: list[tuple[int, int, int]] = []
    first = 1
    for (gap, width), depth in zip(widths, depths, strict=False):
        start = first + (gap if schedule else 0)
        schedule.append((start, start + width - 1, depth))
        first = start + width
    dense = _installed_rule()(schedule, 64, 5)
    peer = VllmDynamic(MODEL_DRAFTER, schedule)
    assert [peer.scheduled_depth(n) for n in range(1, 65)] == dense[1:]


def test_a_prompt_that_joins_four_decodes_collapses_the_depth() -> None:
    peer = VllmDynamic(MODEL_DRAFTER, _COLLAPSE)
    for number in range(1, 5):
        peer.admit(request(number))
    depths = [
        peer.plan(context([2] * 4, step=step, prefill_tokens=20 * (step % 2))).draft_depth
        for step in range(1, 9)
    ]
    assert depths == [0, 2] * 4


def test_every_prompt_of_the_step_counts() -> None:
    peer = VllmDynamic(MODEL_DRAFTER, [(1, 3, 5), (4, 4, 3), (5, 9, 1)])
    for number in (1, 2, 3, 4):
        peer.admit(request(number))
    assert peer.plan(context([0, 0], step=1)).depth == 5
    assert peer.plan(context([5, 5], step=2, prefill_tokens=20)).depth == 5
    assert peer.plan(context([5, 5], step=3, prefill_tokens=40)).depth == 3


def test_without_confidence_all_drafts_are_verified_and_it_says_so() -> None:
    peer = VllmAdaptiveVerification(MODEL_DRAFTER, f2_time())
    plan = peer.plan(context([5, 3, 0]))
    assert plan.verify_lens.tolist() == [5, 3, 0]
    assert plan.reason == PeerReason.NO_CONFIDENCE


def test_the_estimator_finds_slope_and_intercepts_in_a_few_refits() -> None:
    rng = np.random.default_rng(0)
    estimator = AcceptanceEstimator(max_depth=3)
    slope, intercepts = 1.0, np.array([0.5, 0.0, -1.0])
    for _ in range(10 * REFIT_STEPS):
        features = estimator.features(rng.uniform(0.05, 0.95, (16, 3)))
        q = 1.0 / (1.0 + np.exp(-slope * features - intercepts))
        right = rng.random((16, 3)) < q
        runs = np.where(right.all(1), 3, np.argmin(right, axis=1))
        verified = int_array([3] * 16)
        estimator.learn(features, estimator.predict(features), verified, runs)
        estimator.end_step()
    assert estimator.slope[0] == pytest.approx(slope, abs=0.1)
    assert estimator.intercepts == pytest.approx(intercepts, abs=0.15)


def test_the_estimator_moves_every_100_steps_and_half_way_on_50_observations() -> None:
    estimator = AcceptanceEstimator(max_depth=1)
    features = np.zeros((1, 1))
    for step in range(1, REFIT_STEPS + 1):
        predicted = estimator.predict(features)
        if step <= 50:
            estimator.learn(features, predicted, int_array([1]), int_array([1]))
        estimator.end_step()
        if step < REFIT_STEPS:
            assert estimator.intercepts[0] == -0.2
    p = 1.0 / (1.0 + np.exp(0.2))
    full_step = 50 * (1.0 - p) / (50 * p * (1.0 - p) + 1e-3)
    assert estimator.intercepts[0] == pytest.approx(-0.2 + 0.5 * full_step)
    assert estimator.slope[0] == pytest.approx(0.5)


def test_costs_are_a_staircase_up_to_the_captured_sizes() -> None:
    cost = TokenCost(1, TableTime([1, 512, 1, 512], [0, 0, 1, 1], [10.0, 520.0, 11.0, 1040.0]))
    curve = cost.curve(requests=8, drafts=16, prefill_tokens=0, depth=1)
    assert np.unique(curve).size == 3  # padded to 8, 16 and 24 tokens
    assert curve[1] == curve[8]


def test_the_budget_trims_what_the_step_cannot_pay() -> None:
    peer = VllmAdaptiveVerification(MODEL_DRAFTER, f2_time())
    at = context([5] * 256)
    sure, poor = np.full((256, 5), 0.999), np.full((256, 5), 0.2).cumprod(axis=1)
    assert peer._budget(at, sure) > peer._budget(at, poor) == 0
    few = context([5])
    assert peer._budget(few, sure[:1]) == 5


def test_sure_drafts_are_verified_and_doubtful_ones_are_not() -> None:
    peer = VllmAdaptiveVerification(MODEL_DRAFTER, f2_time())
    n = 128
    sure = np.where(np.arange(n) < 8, 1.0 - 1e-9, 1e-9)
    chain = chain_candidates(np.ones((n, 5)), int_array([5] * n))
    confident = msgspec.structs.replace(chain, confidence=sure[chain.request])
    for step in (1, 2):  # the budget of the second step knows what the first was unsure of
        at = msgspec.structs.replace(context([5] * n, step=step), candidates=confident)
        plan = peer.plan(at)
        peer.observe(outcome(plan, at, [5] * 8 + [0] * (n - 8)))
    assert plan.reason == PeerReason.RULE
    assert plan.verify_lens[:8].tolist() == [5] * 8
    assert plan.verify_lens[8:].sum() < n // 10


def test_late_and_foreign_verdicts_teach_nothing() -> None:
    peer = VllmAdaptiveVerification(MODEL_DRAFTER, f2_time())
    at = context([5, 5])
    plan = peer.plan(at)
    peer.observe(outcome(plan, at, [2, 3]))
    assert peer.estimator.counts.sum() == 0  # no confidence was there, so nothing was predicted
