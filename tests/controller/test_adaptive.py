"""The adaptive policy against figures with known right answers, on a toy engine."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.beliefs import TIME_SIGNAL
from acclimate.controller.config import ControlConfig
from acclimate.controller.reasons import Reason
from acclimate.controller.records import Capabilities
from acclimate.controller.slot_watch import COMMON_SIGNAL, SLOT_SIGNAL
from acclimate.controller.static import StaticPolicy
from tests.controller.toy_engine import ToyEngine

# Milliseconds per step against (batch, K): Llama-3.1-8B with an EAGLE head, vllm#32374.
DEPTHS = (0, 1, 3, 5)
STEP_MS = {
    1: (6.52, 7.37, 8.84, 10.33),
    4: (6.60, 7.47, 8.98, 10.40),
    16: (6.90, 7.85, 9.52, 11.20),
    64: (7.77, 9.66, 13.50, 16.83),
    256: (14.49, 27.14, 41.85, 57.40),
}
SURVIVAL = {
    "good": (0.681, 0.391, 0.204, 0.101, 0.051),
    "better": (0.76, 0.54, 0.39, 0.28, 0.21),
    "poor": (0.17, 0.15, 0.12, 0.01, 0.01),
}


def conditional(survival):
    return tuple(b / a for a, b in itertools.pairwise((1.0, *survival)))


def table_latency(row):
    return lambda n, m, d: float(np.interp(m / n, DEPTHS, row))


def uniform_engine(**more):
    return Capabilities(max_depth=5, depths=DEPTHS, uniform_only=True, **more)


def usual_depth(tally):
    held = [plan.depth for plan in tally.plans]
    return max(set(held), key=held.count)


@pytest.mark.parametrize("batch", STEP_MS)
@pytest.mark.parametrize("survival", SURVIVAL)
def test_best_depth_table(survival, batch):
    """F2: the chosen K's true throughput is at least 98 % of the best (95 % below a 7 % gain)."""
    s, row = SURVIVAL[survival], STEP_MS[batch]
    true = [(1 + sum(s[:k])) / ms for k, ms in zip(DEPTHS, row, strict=True)]
    engine = uniform_engine(hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(policy, engine, lambda step: conditional(s), table_latency(row), seed=1)
    steps = 600 if batch < 100 else 300
    toy.run(batch, steps)
    chosen = usual_depth(toy.run(batch, steps))
    floor = 0.98 if max(true) / true[0] > 1.07 else 0.95
    assert true[DEPTHS.index(chosen)] >= floor * max(true)


def test_survival_is_not_multiplied_again():
    """[.681, .391, .204] at K=3 is an acceptance length of 2.276; multiplied twice 2.002."""
    s = SURVIVAL["good"]
    engine = Capabilities(max_depth=3, depths=(0, 3), uniform_only=True, hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(policy, engine, lambda step: conditional(s[:3]), lambda n, m, d: 8.0, seed=2)
    toy.run(4, 400)
    predicted = [p.predicted_tokens / 4 for p in toy.run(4, 400).plans]
    assert np.mean(predicted) == pytest.approx(2.276, abs=0.08)


def test_the_survival_fixture_keeps_the_best_depth_at_three():
    """The fault this guards against would lower the best K for batch 1 to 16 from 3 to 1."""
    s = SURVIVAL["good"]
    for batch in (1, 4, 16):
        rates = [(1 + sum(s[:k])) / ms for k, ms in zip(DEPTHS, STEP_MS[batch], strict=True)]
        assert DEPTHS[int(np.argmax(rates))] == 3


@pytest.mark.parametrize("hindsight", [True, False])
def test_no_switch_is_one_way(hindsight):
    """Rejections at a cold start, then every draft is right: the policy must come back."""
    engine = uniform_engine(hindsight=hindsight)
    policy = AdaptivePolicy(ControlConfig(), engine)
    latency = table_latency(STEP_MS[64])
    toy = ToyEngine(policy, engine, lambda step: (0.0 if step < 300 else 1.0,) * 5, latency, seed=3)
    assert usual_depth(toy.run(64, 290)) == 0
    toy.run(64, 2500)
    assert usual_depth(toy.run(64, 300)) == 5


def test_a_drafter_that_does_not_pay_is_asked_for_nothing_and_looked_at_now_and_then():
    """A draft pass that takes a sixth of a step: not even its first token is free."""
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(
        policy, engine, lambda step: (0.15 if step < 2500 else 0.9,) * 4,
        lambda n, m, d: 60.0 + 1.2 * m + 0.6 * n * min(d, 1) + (5.0 + 0.4 * n) * max(d - 1, 0),
        seed=6,
    )  # fmt: skip
    toy.run(16, 500)
    poor = toy.run(16, 2000)
    drafted = np.array([plan.draft_depth for plan in poor.plans])
    assert 0.005 < (drafted > 0).mean() < 0.15
    assert poor.rate > 0.98 * 16 / 60.0, "of what an engine without drafts makes"
    toy.run(16, 1000)
    assert np.median([plan.draft_depth for plan in toy.run(16, 300).plans]) >= 2


def test_noise_at_the_threshold_does_not_flip_the_depth():
    """Mean acceptance length near 2.0 ± 0.5, where K=3 and K=5 earn the same."""
    rng = np.random.default_rng(4)
    noise = rng.uniform(0.25, 0.75, 5000)
    engine = Capabilities(max_depth=5, depths=(3, 5), uniform_only=True, hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(
        policy, engine, lambda step: (noise[step],) * 5, lambda n, m, d: 8 + 0.09 * m / n, seed=5
    )
    tally = toy.run(8, 4000)
    seconds = tally.milliseconds / 1000
    assert tally.switches <= 0.5 * seconds


def test_a_prefill_joining_four_decodes_does_not_collapse_throughput():
    """vllm#49548: a schedule with an edge between 4 and 5 thrashed; ours is keyed on decodes."""
    engine = Capabilities(max_depth=2, depths=(0, 1, 2), uniform_only=True, hindsight=True)

    def latency(n, m, d):
        return 9.0 + 0.3 * n + 0.5 * m + (2.0 if n > 4 and m else 0.0)

    rates = {}
    for name, policy in {
        "k0": StaticPolicy(0, engine),
        "k2": StaticPolicy(2, engine),
        "adaptive": AdaptivePolicy(ControlConfig(), engine),
    }.items():
        toy = ToyEngine(policy, engine, lambda step: (0.8, 0.7), latency, seed=6)
        toy.run(lambda step: 4 + step % 2, 300)
        tally = toy.run(lambda step: 4 + step % 2, 1500)
        rates[name] = tally.rate
    assert tally.switches <= tally.milliseconds / 1000
    assert rates["adaptive"] >= 0.98 * max(rates.values())


def test_ragged_selection_beats_every_static_depth_where_requests_differ():
    engine = Capabilities(max_depth=8, depths=tuple(range(9)), free_drafts=True, hindsight=True)

    def length(rng):
        return int(rng.integers(1, 9)) if rng.random() < 0.35 else 0

    def rate(policy, batch):
        toy = ToyEngine(
            policy, engine, lambda step: (0.6, 0.7, *(0.8,) * 6),
            lambda n, m, d: 14 + 0.8 * n + (0.4 + 0.02 * n) * m, seed=7, length=length,
        )  # fmt: skip
        toy.run(batch, 200)
        return toy.run(batch, 1200).rate

    for batch in (1, 16):
        static = max(rate(StaticPolicy(k, engine), batch) for k in (0, 1, 3, 8))
        assert rate(AdaptivePolicy(ControlConfig(), engine), batch) >= 0.98 * static


def test_k0_is_visited_until_it_is_measured_within_the_budget():
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), free_drafts=True, hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(policy, engine, lambda step: (0.9,) * 4, lambda n, m, d: 20 + 0.1 * m, seed=8)
    tally = toy.run(4, 600)
    assert policy.beliefs.latency.evidence(4, 0) >= 3
    measured = policy.beliefs.latency.curve(4, 0, draft_depth=4)
    assert measured[0] == pytest.approx(20.0, rel=0.03)
    assert policy.explorer.spent_tokens <= 0.02 * tally.tokens + 10
    assert {p.reason for p in tally.plans if p.explored} == {Reason.PROBE}


def test_marginal_tokens_earn_their_price():
    engine = Capabilities(max_depth=8, depths=tuple(range(9)), free_drafts=True, hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(policy, engine, lambda step: (0.6,) * 8, lambda n, m, d: 20 + 0.75 * m, seed=9)
    toy.run(8, 1500)
    assert policy.audit.gain(8) > 0


def test_a_seed_repeats_a_run_and_a_state_continues_it():
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), hindsight=True)

    def start(policy):
        return ToyEngine(
            policy, engine, lambda step: (0.7,) * 4, lambda n, m, d: 15 + 0.5 * m + 0.1 * n * d,
            seed=10,
        )  # fmt: skip

    def decisions(tally):
        return [(p.depth, p.draft_depth, p.verify_lens.tolist(), p.explored) for p in tally.plans]

    first, second = (start(AdaptivePolicy(ControlConfig(seed=4), engine)) for _ in range(2))
    assert decisions(first.run(6, 150)) == decisions(second.run(6, 150))
    state = first.policy.state()
    first.policy = AdaptivePolicy(ControlConfig(seed=4), engine)
    first.policy.load(state)
    assert decisions(first.run(6, 150)) == decisions(second.run(6, 150))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    dwell_s=st.sampled_from([0.05, 0.2, 1.0]),
    uniform=st.booleans(),
    hindsight=st.booleans(),
    free=st.booleans(),
    depths=st.sampled_from([(0, 1, 2, 3, 4), (0, 2, 4), (1, 4), (0,)]),
)
def test_depths_are_allowed_and_held_for_the_dwell(seed, dwell_s, uniform, hindsight, free, depths):
    engine = Capabilities(
        max_depth=4, depths=depths, uniform_only=uniform, hindsight=hindsight, free_drafts=free
    )
    config = ControlConfig.read({"switch": {"dwell_s": dwell_s}, "seed": seed})
    policy = AdaptivePolicy(config, engine)
    rng = np.random.default_rng(seed)
    q = rng.random((400, 4))
    toy = ToyEngine(
        policy, engine, lambda step: tuple(q[step // 10]),
        lambda n, m, d: 10 + n + (0.2 + 0.1 * n) * m, seed=seed,
    )  # fmt: skip
    held_since, held, now_ns = None, None, 0
    for step in range(150):
        tally = toy.run(1 + (step // 40) * 3, 1)
        plan = tally.plans[0]
        assert 0 <= plan.draft_depth <= 4
        assert plan.depth in depths
        assert plan.explored or (plan.verify_lens <= plan.depth).all()
        if plan.depth != held:
            assert held is None or now_ns - held_since >= dwell_s * 1e9
            held, held_since = plan.depth, now_ns
        now_ns = toy.now_ns


class _TwoDomains(AdaptivePolicy):
    """Labels every other request otherwise."""

    def admit(self, request):
        super().admit(msgspec.structs.replace(request, domain="ab"[request.request % 2]))


def test_when_all_domains_fall_one_more_alarm_says_so():
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), free_drafts=True, hindsight=True)
    policy = _TwoDomains(ControlConfig(), engine)
    toy = ToyEngine(
        policy, engine, lambda step: (0.9 if step < 800 else 0.3,) * 4,
        lambda n, m, d: 20 + 0.3 * m, seed=5,
    )  # fmt: skip
    alarms = toy.run(8, 1200).alarms
    assert {alarm.label for alarm in alarms if alarm.signal == SLOT_SIGNAL} == {"a", "b"}
    assert [alarm.signal for alarm in alarms].count(COMMON_SIGNAL) == 1


def test_detectors_go_on_where_a_snapshot_left_them():
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), free_drafts=True, hindsight=True)
    alarms = []
    for cut in (None, 830):
        toy = ToyEngine(
            AdaptivePolicy(ControlConfig(), engine), engine,
            lambda step: (0.9 if step < 800 else 0.5,) * 4, lambda n, m, d: 20 + 0.3 * m, seed=5,
        )  # fmt: skip
        found = toy.run(2, cut or 1_200).alarms
        if cut is not None:
            state = toy.policy.state()
            toy.policy = AdaptivePolicy(ControlConfig(), engine)
            toy.policy.load(state)
            found += toy.run(2, 1_200 - cut).alarms
        alarms.append(found)
    assert alarms[0]
    assert alarms[0] == alarms[1]


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("after", [0.9, 0.5])
def test_a_shift_is_noticed_and_nothing_else(batch, after):
    """Against a frozen reference: residuals of a predictor that learns on would vanish."""
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), free_drafts=True, hindsight=True)
    policy = AdaptivePolicy(ControlConfig(), engine)
    toy = ToyEngine(
        policy, engine, lambda step: (0.9 if step < 800 else after,) * 4,
        lambda n, m, d: 20 + 0.3 * m, seed=5,
    )  # fmt: skip
    alarms = toy.run(batch, 1600).alarms
    if after == 0.9:
        assert not alarms
    else:
        # One request alone may have changed its mind: that takes longer to tell from a shift.
        assert 800 < alarms[0].step < (1000 if batch == 8 else 1200)
        assert alarms[0].label == "toy"
        assert alarms[0].after < alarms[0].before
        assert 0 < alarms[0].tokens_since <= alarms[0].graded_tokens
        assert alarms[0].statistic > 10.0  # log of the tokens between false alarms


def test_a_throttled_engine_is_one_alarm_of_step_times():
    engine = Capabilities(max_depth=4, depths=tuple(range(5)), free_drafts=True, hindsight=True)
    policy, slow = AdaptivePolicy(ControlConfig(), engine), [1.0]
    toy = ToyEngine(
        policy, engine, lambda step: (0.7,) * 4,
        lambda n, m, d: slow[0] * (20 + 0.5 * m), seed=7, noise=0.04,
    )  # fmt: skip
    assert not any(a.signal == TIME_SIGNAL for a in toy.run(8, 400).alarms)
    slow[0] = 1.6
    alarms = [a for a in toy.run(8, 200).alarms if a.signal == TIME_SIGNAL]
    assert [a.slot for a in alarms] == [-1]
    assert alarms[0].after == pytest.approx(1.6, rel=0.1)
    assert alarms[0].steps_since is not None and alarms[0].steps_since < 40
    assert policy.beliefs.latency.curve(8, 0)[0] == pytest.approx(32.0, rel=0.06)
