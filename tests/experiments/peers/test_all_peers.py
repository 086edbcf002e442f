"""What holds for every arm: its plans are valid, and a saved state goes on as the original."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.experiments.peers.stage import ENGINES, NGRAM, KnownTruth, outcome

from acclimate.controller.config import ControlConfig
from acclimate.controller.guard import plan_fault
from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Capabilities,
    Change,
    IntArray,
    RequestInfo,
    Slo,
    StepContext,
    StepPlan,
    int_array,
)
from acclimate.controller.select import chain_candidates
from acclimate.experiments.arms import arm_follows, arm_names, arm_policy
from acclimate.experiments.peers.base import Peer

_TRUTH = KnownTruth((0.8, 0.6, 0.4, 0.3, 0.2), change_points_ns=(200_000_000,))
_ARMS = (*arm_names(), "k3")


def _context(
    rng: np.random.Generator, step: int, drafts: IntArray, now_ns: int, confident: bool
) -> StepContext:
    n = drafts.shape[0]
    candidates = None
    if confident:
        chain = chain_candidates(np.ones((n, 5)), drafts)
        sure = rng.uniform(size=chain.request.shape[0])
        candidates = msgspec.structs.replace(chain, confidence=sure)
    return StepContext(
        step=step,
        now_ns=now_ns,
        waiting_prompts=int(rng.integers(0, 3)),
        prefill_forecast_tokens=int(rng.integers(0, 2) * rng.integers(0, 200)),
        requests=int_array(range(1, n + 1)),
        drafts=drafts,
        committed=int_array([step] * n),
        context_tokens=int_array([20 + step] * n),
        tokens_left=int_array([1_000] * n),
        candidates=candidates,
    )


class _Drive:
    """Lets a policy serve random steps, on a clock and draws of its own."""

    def __init__(self, policy: Policy, engine: Capabilities, seed: int, confident: bool) -> None:
        self.policy, self.engine, self.confident = policy, engine, confident
        self.rng = np.random.default_rng(seed)
        self.step, self.now_ns, self.drafted, self.alive = 0, 0, 0, 0

    def go(self, steps: int) -> list[StepPlan]:
        """Serve so many steps, and return the plans."""
        return [self._one() for _ in range(steps)]

    def _one(self) -> StepPlan:
        self.step += 1
        n = int(self.rng.integers(0, 5)) * int(self.rng.integers(1, 4))
        for number in range(self.alive + 1, n + 1):
            slo = Slo(tpot_s=0.02) if number % 2 else None
            self.policy.admit(
                RequestInfo(request=number, prompt_tokens=20, max_tokens=9_000, slo=slo)
            )
        for number in range(n + 1, self.alive + 1):
            self.policy.forget(number)
        self.alive = n
        most = self.engine.max_depth if self.engine.free_drafts else self.drafted
        drafts = self.rng.integers(0, most + 1, n)
        at = _context(self.rng, self.step, drafts, self.now_ns, self.confident)
        plan = self.policy.plan(at)
        assert plan_fault(plan, at, self.engine) is None
        if self.engine.uniform_only:
            cap = plan.verify_lens.max(initial=0)
            assert plan.verify_lens.tolist() == np.minimum(at.drafts, cap).tolist()
        if self.engine.asks_for_depth and isinstance(self.policy, Peer):
            assert plan.draft_depth in self.engine.depths
        self.drafted = plan.draft_depth
        runs = self.rng.integers(0, 6, n)
        latency_ms = 5.0 + 0.2 * float(plan.verify_lens.sum()) + float(self.rng.uniform())
        self.policy.observe(outcome(plan, at, runs.tolist(), latency_ms=latency_ms))
        self.now_ns += int(1e6 * latency_ms)
        if self.step % 37 == 0:
            self.policy.declare(Change(kind="draft"))
            self.policy.report()
        return plan


@pytest.mark.parametrize("arm", _ARMS)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    engine=st.sampled_from(ENGINES),
    profiled=st.booleans(),
    confident=st.booleans(),
)
def test_plans_are_valid_and_a_saved_state_goes_on_alike(
    arm: str, seed: int, engine: Capabilities, profiled: bool, confident: bool
) -> None:
    truth = _TRUTH if profiled or arm in ("oracle", "clairvoyant") else None
    policy = arm_policy(arm, ControlConfig(), engine, truth)
    drive = _Drive(policy, engine, seed, confident)
    drive.go(60)
    plain = msgspec.json.decode(msgspec.json.encode(policy.state(), enc_hook=np.ndarray.tolist))
    other = arm_policy(arm, ControlConfig(), engine, truth if arm == "oracle" else _TRUTH)
    other.load(plain)
    twin = _Drive(other, engine, 0, confident)
    twin.rng.bit_generator.state = drive.rng.bit_generator.state
    twin.step, twin.now_ns = drive.step, drive.now_ns
    twin.drafted, twin.alive = drive.drafted, drive.alive
    for a, b in zip(drive.go(40), twin.go(40), strict=True):
        assert (a.draft_depth, a.depth, str(a.reason)) == (b.draft_depth, b.depth, str(b.reason))
        assert a.verify_lens.tolist() == b.verify_lens.tolist()


@pytest.mark.parametrize("arm", arm_names())
def test_every_arm_is_a_policy_by_its_name_and_says_what_it_follows(arm: str) -> None:
    policy = arm_policy(arm, ControlConfig(), NGRAM, _TRUTH)
    assert isinstance(policy, Policy)
    assert policy.name == {"k0": "static:0"}.get(arm, arm)
    assert bool(arm_follows(arm)) == (arm not in ("k0", "adaptive"))


@pytest.mark.parametrize(
    ("arm", "complaint"),
    [
        ("turbospeck", "arm must be kN"),
        ("k6", r"depth must be in \[0, 5\], got 6"),
        ("oracle", "must be given the truth"),
        ("clairvoyant", "must be given the truth"),
        ("no_such_module:build", "must be importable"),
    ],
)
def test_what_is_no_arm_is_refused(arm: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        arm_policy(arm, ControlConfig(), NGRAM)


def test_an_arm_may_be_code_of_ones_own() -> None:
    arm = "acclimate.experiments.peers.request_bands:build"
    assert arm_policy(arm, ControlConfig(), NGRAM).name == "request_bands"
