"""AdaServe's shape rule and its two passes."""

import msgspec
import numpy as np
import pytest
from tests.experiments.peers.stage import (
    MODEL_DRAFTER,
    NGRAM,
    KnownTruth,
    context,
    f2_time,
    outcome,
    request,
)

from acclimate.controller.records import Candidates, Slo, int_array
from acclimate.experiments.peers.adaserve import AdaServe, Shape

_MS = 1_000_000


def test_the_depth_follows_the_load_alone() -> None:
    peer = AdaServe(MODEL_DRAFTER, shape=Shape(budget_tokens=32, least_depth=1))
    depths = {n: peer.plan(context([0] * n)).draft_depth for n in (1, 5, 9, 31)}
    assert depths == {1: 5, 5: 4, 9: 2, 31: 1}


def _urgent(peer: AdaServe) -> AdaServe:
    """Put request 1 far behind its target, request 2 a little, request 3 has none."""
    peer.admit(request(1, slo=Slo(tpot_s=0.010)))
    peer.admit(request(2, slo=Slo(tpot_s=0.025)))
    peer.admit(request(3))
    peer.plan(context([5, 5, 5], step=1, committed=[1, 1, 1]))
    return peer


def test_needs_are_what_the_targets_ask_of_this_step() -> None:
    peer = _urgent(AdaServe(NGRAM, profile=f2_time()))
    at = context([5, 5, 5], step=2, now_ns=40 * _MS, committed=[3, 3, 3])
    step_s = 0.0104  # the next profiled batch, depth 5
    needs = peer.needs(at, depth=5)
    assert needs[0] == pytest.approx((0.040 + step_s) / 0.010 - 2, abs=0.02)
    assert needs[1] == pytest.approx((0.040 + step_s) / 0.025 - 2, abs=0.02)
    assert needs[2] == 0.0


def test_a_tight_budget_goes_to_the_neediest_on_paper_and_last_in_the_code() -> None:
    at = context([5, 5, 5], step=2, now_ns=60 * _MS, committed=[2, 2, 2])
    shape = Shape(budget_tokens=6)  # three roots and three drafts
    paper = _urgent(AdaServe(NGRAM, shape=shape)).plan(at).verify_lens.tolist()
    code = _urgent(AdaServe(NGRAM, shape=shape, descending=False)).plan(at).verify_lens.tolist()
    assert paper == [3, 0, 0]
    assert code == [2, 1, 0]


def test_what_is_left_is_spent_by_survival() -> None:
    peer = AdaServe(NGRAM, shape=Shape(budget_tokens=3 + 6))
    for number in (1, 2, 3):
        peer.admit(request(number))
    assert peer.plan(context([5, 5, 1])).verify_lens.tolist() == [3, 2, 1]
    assert peer.plan(context([5] * 3, step=2)).verify_lens.tolist() == [2, 2, 2]


def test_nothing_is_learned_of_acceptance() -> None:
    peer = AdaServe(NGRAM)
    at = context([5])
    plan = peer.plan(at)
    for _ in range(500):
        peer.observe(outcome(plan, at, [0]))
    assert peer.plan(at).verify_lens.tolist() == [5]


def test_who_knows_the_truth_needs_no_confidence() -> None:
    truth = KnownTruth([0.9, 0.45, 0.0, 0.0, 0.0])
    peer = AdaServe(NGRAM, shape=Shape(budget_tokens=2 + 4), truth=truth)
    peer.admit(request(1))
    peer.admit(request(2))
    assert peer.name == "adaserve_true"
    assert peer.plan(context([5, 5])).verify_lens.tolist() == [2, 2]


def test_confidence_decides_and_the_truth_corrects_it() -> None:
    plain = context([2, 2])
    candidates = Candidates(
        request=int_array([0, 1, 0, 1]), parent=int_array([-1, -1, 0, 1]),
        depth=int_array([1, 1, 2, 2]), survival=np.array([0.9, 0.6, 0.81, 0.36]),
        confidence=np.array([0.9, 0.6, 0.9, 0.6]),
    )  # fmt: skip
    at = msgspec.structs.replace(plain, candidates=candidates)
    shape = Shape(budget_tokens=2 + 2, least_depth=2)
    assert AdaServe(NGRAM, shape=shape).plan(at).verify_lens.tolist() == [2, 0]
    truth = KnownTruth([0.5, 0.25, 0.1, 0.1, 0.1])
    assert AdaServe(NGRAM, shape=shape, truth=truth).plan(at).verify_lens.tolist() == [1, 1]
