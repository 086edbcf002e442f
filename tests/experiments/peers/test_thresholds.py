"""Peers that compare acceptance with a threshold, and the faults that this brings."""

import itertools

import numpy as np
import pytest
from tests.controller.toy_engine import ToyEngine
from tests.experiments.peers.stage import MODEL_DRAFTER, NGRAM, context, f2_time, outcome, request

from acclimate.experiments.peers.base import PeerReason
from acclimate.experiments.peers.request_bands import RequestBands
from acclimate.experiments.peers.tensorrt_llm import EXAMPLE_SCHEDULE, TensorRtLlm
from acclimate.experiments.peers.turbospec import INTERVAL_STEPS, START_ACCEPTANCE, TurboSpec
from acclimate.experiments.simulation.step_time import StepMakeUp


def test_two_rejections_at_cold_start_close_the_gate_for_good() -> None:
    peer = TensorRtLlm(NGRAM, window=2, threshold=0.3)
    for step in range(1, 500):
        at = context([5], step=step)
        plan = peer.plan(at)
        assert plan.depth == (5 if step <= 2 else 0)
        peer.observe(outcome(plan, at, [0 if step <= 2 else 5]))
    assert plan.reason == PeerReason.OFF


def test_a_gate_on_two_samples_blocks_a_healthy_head_in_6_percent_of_starts() -> None:
    rng = np.random.default_rng(0)
    blocked = 0
    for _ in range(2_000):
        peer = TensorRtLlm(NGRAM, {512: 1}, window=2, threshold=0.3)
        for step in (1, 2):
            at = context([5], step=step)
            peer.observe(outcome(peer.plan(at), at, [int(rng.random() < 0.756)]))
        blocked += peer.off
    assert blocked / 2_000 == pytest.approx((1 - 0.756) ** 2, abs=0.015)


def test_the_gate_waits_for_a_full_window_and_depth_0_gives_no_sample() -> None:
    peer = TensorRtLlm(MODEL_DRAFTER, EXAMPLE_SCHEDULE, window=10, threshold=0.3)
    crowd = context([4] * 33)
    plan = peer.plan(crowd)
    assert plan.depth == 0
    for _ in range(20):
        peer.observe(outcome(plan, crowd, [0] * 33))
    assert not peer.off
    for step in range(10):
        at = context([4], step=step + 2)
        peer.observe(outcome(peer.plan(at), at, [0]))
        assert peer.off == (step == 9)


def _flips(low: float, high: float) -> int:
    rng = np.random.default_rng(0)
    peer = RequestBands(NGRAM, low=low, high=high)
    peer.admit(request(1))
    depths = []
    for step in range(1, 400):
        at = context([5], step=step)
        plan = peer.plan(at)
        # Acceptance length 2.0 on average, within half a token most of the time.
        peer.observe(outcome(plan, at, [int(np.clip(np.rint(rng.normal(1.0, 0.5)), 0, 3))]))
        depths.append(plan.depth)
    return sum(a != b for a, b in itertools.pairwise(depths))


def test_without_a_band_the_depth_flips_and_with_one_it_holds() -> None:
    assert _flips(2.0, 2.0) > 60
    assert _flips(1.4, 2.6) <= 2


def test_bands_are_per_request_and_the_deepest_is_drafted() -> None:
    peer = RequestBands(MODEL_DRAFTER)
    for number in (1, 2):
        peer.admit(request(number))
    for step in range(1, 20):
        at = context([3, 3] if step == 1 else [5, 5], step=step)
        plan = peer.plan(at)
        peer.observe(outcome(plan, at, [5, 0]))
    assert plan.verify_lens.tolist() == [5, 3]
    assert plan.draft_depth == 5


def _f2_run(peer: TurboSpec, q: float, batch: int, steps: int = 400) -> TurboSpec:
    table = f2_time()
    engine = ToyEngine(
        peer,
        MODEL_DRAFTER,
        lambda step: (q,) * 5,
        lambda n, m, d: table.step_ms(StepMakeUp(n, m, draft_depth=d)),
        noise=0.0,
        tokens_per_request=10_000,
    )
    engine.run(batch, steps)
    return peer


def test_turbospec_learns_one_acceptance_and_decides_by_goodput() -> None:
    assert TurboSpec(MODEL_DRAFTER).acceptance == START_ACCEPTANCE
    deep = _f2_run(TurboSpec(MODEL_DRAFTER, f2_time()), 0.8, batch=4)
    assert deep.acceptance == pytest.approx(0.8, abs=0.15)
    assert deep.depth >= 4
    assert _f2_run(TurboSpec(MODEL_DRAFTER, f2_time()), 0.2, batch=256).depth == 0


def test_turbospec_changes_its_mind_every_20_steps_only() -> None:
    peer = TurboSpec(MODEL_DRAFTER, f2_time())
    depths = []
    for step in range(1, 101):
        at = context([peer.depth] * 64, step=step)
        plan = peer.plan(at)
        peer.observe(outcome(plan, at, [0] * 64))
        depths.append(plan.depth)
    changes = [i for i, (a, b) in enumerate(itertools.pairwise(depths), 1) if a != b]
    assert changes and all(i % INTERVAL_STEPS == 0 for i in changes)


def test_turbospec_at_depth_0_never_hears_of_better_traffic() -> None:
    peer = _f2_run(TurboSpec(MODEL_DRAFTER, f2_time()), 0.05, batch=64)
    assert peer.depth == 0
    stuck = peer.acceptance
    _f2_run(peer, 0.95, batch=64)
    assert (peer.depth, peer.acceptance) == (0, stuck)
