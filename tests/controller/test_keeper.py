"""Promises in the adaptive policy: who gets drafts, what steps may take, and who is slowed by whom."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.guard import plan_fault
from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
    Capabilities,
    RequestInfo,
    Slo,
    StepContext,
    int_array,
)
from acclimate.predictors.latency import StepLatency
from tests.controller.toy_engine import ToyEngine

FREE = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), free_drafts=True, hindsight=True)
DRAFTER = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
UNIFORM = Capabilities(max_depth=4, depths=(0, 2, 4), uniform_only=True, hindsight=True)
CODE, PROSE = (0.95,) * 4, (0.1,) * 4


def busy_ms(n, m, d):
    """Verifying costs as much as it can earn in a mixed batch."""
    return 10.0 + 0.7 * m


def mixed(number):
    return CODE if number % 2 else PROSE


def policy_of(engine=FREE, **slo):
    return AdaptivePolicy(ControlConfig.read({"slo": slo}), engine)


def toy(policy, engine=FREE, *, about=None, acceptance_of=mixed, latency_ms=busy_ms, **more):
    return ToyEngine(
        policy, engine, lambda step: CODE, latency_ms, noise=0.0, about=about or kind,
        acceptance_of=acceptance_of, **more,
    )  # fmt: skip


def kind(number):
    return {"domain": "code" if number % 2 else "prose"}


def at(requests, *, now_ns=0, committed=None, waiting=0, drafts=4, prompt_tokens=0):
    n = len(requests)
    return StepContext(
        step=1, now_ns=now_ns, waiting_prompts=waiting, prefill_forecast_tokens=prompt_tokens,
        requests=int_array(requests), drafts=int_array([drafts] * n),
        committed=int_array(committed or [1] * n), context_tokens=int_array([30] * n),
        tokens_left=int_array([200] * n),
    )  # fmt: skip


# --- without promises ------------------------------------------------------------------------------


def test_labels_alone_change_no_decision():
    """Tenants and classes without targets are accounted for, and nothing more."""
    plain, named = policy_of(), policy_of(base_tokens=2.0, externality=True)
    label = {"tenant": "a", "slo_class": "batch"}
    runs = [
        toy(plain, seed=3).run(4, 150),
        toy(named, seed=3, about=lambda number: {**kind(number), **label}).run(4, 150),
    ]
    lens = [[plan.verify_lens.tolist() for plan in run.plans] for run in runs]
    assert lens[0] == lens[1]
    assert runs[0].plans[-1].price_tokens_per_s == runs[1].plans[-1].price_tokens_per_s
    assert not named.keeper.active


def test_importance_that_all_share_changes_nothing():
    usual, important = policy_of(), policy_of()
    runs = [
        toy(usual, seed=4).run(4, 120),
        toy(important, seed=4, about=lambda n: {**kind(n), "importance": 3.0}).run(4, 120),
    ]
    assert important.keeper.active
    lens = [[plan.verify_lens.tolist() for plan in run.plans] for run in runs]
    assert lens[0] == lens[1]


def test_requests_that_were_there_before_the_first_promise_are_accounted_for_from_then_on():
    policy = policy_of(externality=False)

    def about(number):
        return {**kind(number), "tenant": "late"} if number > 6 else kind(number)

    run = toy(policy, about=about, tokens_per_request=60)
    run.run(4, 5)
    assert policy.report().tenants == ()
    copy = policy_of()
    copy.load(policy.state())
    run.run(4, 80)
    assert sum(tenant.alive for tenant in policy.report().tenants) == 4
    copy.admit(RequestInfo(request=99, prompt_tokens=5, max_tokens=9, tenant="b"))
    assert [(t.label, t.alive) for t in copy.report().tenants] == [("", 4), ("b", 1)]


# --- weights and price -----------------------------------------------------------------------------


def learned(policy, latency_ms=busy_ms):
    toy(policy, latency_ms=latency_ms, acceptance_of=lambda n: (0.8,) * 4).run(4, 200)
    return policy


def lens_of(policy, debtor_ms, **slo):
    """Lens of two alike, of which the first got its first token so long ago."""
    numbers = [9001, 9002]
    for number, target in zip(numbers, (slo, {}), strict=True):
        policy.admit(RequestInfo(
            request=number, prompt_tokens=20, max_tokens=400, domain="toy", arrival_ns=0,
            slo=Slo(**target) if target else None))  # fmt: skip
    policy.plan(at(numbers))
    return policy.plan(at(numbers, now_ns=int(debtor_ms * 1e6), committed=[2, 2])).verify_lens


def test_who_owes_gets_drafts_before_others():
    steep = lambda n, m, d: 10.0 + 2.0 * m
    first, second = lens_of(learned(policy_of(externality=False), steep), 400.0, tpot_s=0.02)
    assert first > second


def test_the_delay_of_a_debtor_without_drafts_is_in_the_price():
    policy = learned(policy_of(externality=False))
    for number, slo in ((9001, Slo(tpot_s=0.02)), (9002, None)):
        policy.admit(RequestInfo(
            request=number, prompt_tokens=20, max_tokens=400, domain="toy", arrival_ns=0, slo=slo))  # fmt: skip
    policy.plan(at([9001, 9002]))
    context = at([9001, 9002], now_ns=int(400e6), committed=[2, 2], drafts=0)
    plan = policy.plan(context)
    rate = policy.price.tokens_per_ms(2, 2 / 10.0)
    owed = 0.4 / 0.02 - 1.0
    assert plan.price_tokens_per_s == pytest.approx(1e3 * rate + 2.0 * owed / 0.02, rel=0.01)


def test_a_long_prompt_in_the_step_does_not_make_a_target_look_lost():
    policy = learned(policy_of())
    policy.admit(RequestInfo(
        request=9001, prompt_tokens=20, max_tokens=400, arrival_ns=0, slo=Slo(tpot_s=0.02)))  # fmt: skip
    policy.plan(at([9001]))
    latency = StepLatency(max_requests=8, max_verified=32)
    for step in range(400):
        tokens = 10 * (step % 31)
        latency.learn(1, 0, latency_ms=10.0 + tokens, prefill_tokens=tokens)
    rows, curve = policy.beliefs.rows.find(int_array([9001])), np.full(5, 10.0 + 300.0)
    owing = []
    for tokens in (300, 0):
        context = at([9001], now_ns=int(100e6), committed=[2], prompt_tokens=tokens)
        terms = policy.keeper.terms(context, rows, np.zeros((1, 4)), curve, latency)
        owing.append(float(terms.weights[0]))
    assert owing == [1.0 + 4.0, 1.0]


def test_a_waiting_prompt_raises_the_price_as_its_deadline_comes():
    policy = learned(policy_of(externality=False))
    policy.admit(RequestInfo(request=9001, prompt_tokens=20, max_tokens=400, arrival_ns=0))
    policy.admit(RequestInfo(
        request=9002, prompt_tokens=20, max_tokens=400, arrival_ns=0, slo=Slo(ttft_s=0.2)))  # fmt: skip
    prices = [
        policy.plan(at([9001], now_ns=int(1e6 * ms), waiting=1)).price_tokens_per_s
        for ms in (10, 150, 250)
    ]
    assert prices[1] - prices[0] == pytest.approx((0.15 - 0.01) / 0.2 / 0.2)
    # Too late: it waits like any other.
    rate = policy.price.tokens_per_ms(1, 0.1, 1)
    assert prices[2] == pytest.approx(1e3 * rate, rel=0.05)


# --- the twin --------------------------------------------------------------------------------------


def worst_lag(engine, **slo):
    """Return the largest lag behind a twin, as a share beyond B, and speed over plain decoding."""
    run = toy(policy_of(engine, **slo), engine, seed=5, tokens_per_request=150)
    tally = run.run(4, 900)
    lags = [(1e3 * s / 10.0 - 149 - 8.0) / (1e3 * s / 10.0) for s in run.seconds.values()]
    return max(lags), tally.rate / 0.4


@pytest.mark.parametrize("engine", [FREE, DRAFTER, UNIFORM], ids=["free", "drafter", "uniform"])
def test_with_the_guarantee_nobody_falls_behind_the_engine_without_speculation(engine):
    unguarded, gain = worst_lag(engine)
    kept, guarded_gain = worst_lag(engine, twin="per_request", eta=0.05)
    assert unguarded > 0.1
    assert kept <= 0.052
    assert guarded_gain > 1.0
    assert guarded_gain < gain or engine is UNIFORM  # there its caution happens to pay


def test_the_batch_as_a_whole_gains_while_one_request_loses():
    lag, gain = worst_lag(FREE, twin="aggregate", eta=0.0)
    assert lag > 0.1
    assert gain > worst_lag(FREE, twin="per_request", eta=0.0)[1]


def test_a_step_that_the_twin_forbids_says_so():
    tally = toy(policy_of(twin="per_request", eta=0.0, lag_tokens=0.0)).run(4, 100)
    reasons = {plan.reason for plan in tally.plans}
    assert Reason.TWIN in reasons
    assert sum(tally.verified[50:]) == 0


def test_a_step_whose_outcome_is_not_there_yet_counts_at_its_worst():
    policy = policy_of(twin="per_request", eta=0.0, lag_tokens=500.0)
    run = toy(policy)
    run.run(4, 100)
    context = at(run._alive, now_ns=run.now_ns)

    def longest_ms():
        return policy.keeper.bounds(
            policy.keeper.terms(context, rows, np.zeros((4, 4)), curve, latency), curve, latency,
            draft_ms=0.0).twin_ms  # fmt: skip

    latency = policy.beliefs.latency
    rows, curve = policy.beliefs.rows.find(context.requests), latency.curve(4, 16)
    before = longest_ms()
    policy.keeper.note(101, 12.0, 10.0)
    assert before - longest_ms() == pytest.approx(0.2 * curve[0], rel=0.01)


def test_a_step_whose_outcome_never_comes_is_not_held_against_requests_for_ever():
    policy = policy_of(twin="per_request", eta=0.0, lag_tokens=500.0)
    run = toy(policy)
    run.run(4, 100)
    for step in range(-5, 0):  # no token was scheduled, an outcome was lost, the policy held back
        policy.keeper.note(step, 40.0, 10.0)
    run.run(4, 1)
    assert policy.keeper.state()["lag"] == []


# --- neighbours ------------------------------------------------------------------------------------


def assistant(number):
    """Half the requests are prose that must be written at 12 ms a token."""
    more = {} if number % 2 else {"slo": Slo(tpot_s=0.012), "slo_class": "gold", "max_tokens": 150}
    return {**kind(number), "tenant": "batch" if number % 2 else "chat", **more}


def missed_share(policy):
    run = toy(
        policy, seed=6, about=assistant, tokens_per_request=150,
        latency_ms=lambda n, m, d: 10.0 + 1.2 * m,
    )  # fmt: skip
    tally = run.run(4, 900)
    tight = [s / 149 for number, s in run.seconds.items() if number % 2 == 0]
    return np.mean(np.array(tight) > 0.012 + 1e-9), tally


def test_speculation_of_others_breaks_no_promise_that_could_be_kept():
    harmed, freely = missed_share(policy_of(externality=False, base_tokens=1000.0))
    spared, bound = missed_share(policy_of(externality=True, base_tokens=1000.0))
    assert harmed > 0.5
    assert spared == 0.0
    assert Reason.NEIGHBOURS in {plan.reason for plan in bound.plans}
    assert 1.0 < bound.rate / 0.4 < freely.rate / 0.4


def test_no_step_takes_more_than_half_of_what_a_waiting_prompt_has_left():
    policy = learned(policy_of())
    for number, slo in ((9001, None), (9002, Slo(ttft_s=0.2))):
        policy.admit(RequestInfo(
            request=number, prompt_tokens=20, max_tokens=400, domain="toy", arrival_ns=0, slo=slo))  # fmt: skip
    relaxed = policy.plan(at([9001], now_ns=0, waiting=1))
    assert relaxed.verify_lens.sum() == 4
    pressed = policy.plan(at([9001], now_ns=int(175e6), waiting=1))
    assert pressed.reason is Reason.NEIGHBOURS
    assert 0 < pressed.verify_lens.sum() < 4
    assert pressed.predicted_latency_ns <= 12.5e6


def test_a_target_that_drafts_alone_can_meet_is_met_by_drafts():
    """8 ms a token where a plain step takes 10: no neighbour's peace may stand in the way."""

    def about(number):
        return {"domain": "code", "slo": Slo(tpot_s=0.008), "max_tokens": 150}

    run = toy(policy_of(), about=about, acceptance_of=lambda n: CODE, tokens_per_request=150)
    run.run(2, 500)
    late = list(run.seconds.items())[4:]
    assert all(s / 149 <= 0.008 for _, s in late)


def test_whatever_is_promised_every_plan_is_valid():
    rng = np.random.default_rng(8)
    for engine in (FREE, DRAFTER, UNIFORM):
        policy = policy_of(engine, twin="per_request", fairness=5.0)

        def about(number):
            if rng.random() < 0.3:
                return {"tenant": f"t{number % 3}"}
            targets = 10.0 ** rng.uniform(-4, 3, 3)
            return {
                "tenant": f"t{number % 3}",
                "importance": float(rng.uniform(0.1, 5.0)),
                "slo": Slo(ttft_s=targets[0], tpot_s=targets[1], e2e_s=targets[2]),
            }

        run = toy(policy, engine, about=about, tokens_per_request=20)
        original = policy.plan

        def checked(context, original=original, engine=engine):
            plan = original(context)
            assert plan_fault(plan, context, engine) is None
            return plan

        policy.plan = checked
        run.run(lambda step: 1 + step % 5, 150)


# --- tenants ---------------------------------------------------------------------------------------


def test_fairness_takes_drafts_from_the_tenant_that_is_ahead():
    def about(number):
        return {"domain": "code", "tenant": "greedy" if number % 4 else "modest"}

    work = {}
    for fairness in (0.0, 20.0):
        policy = policy_of(fairness=fairness)
        run = toy(
            policy, about=about, acceptance_of=lambda n: (0.7,) * 4, tokens_per_request=100,
            latency_ms=lambda n, m, d: 10.0 + 1.0 * m,
        )  # fmt: skip
        run.run(4, 400)
        by = {tenant.label: tenant for tenant in policy.report().tenants}
        work[fairness] = by["greedy"].verified_tokens / by["modest"].verified_tokens
    assert work[20.0] < 0.8 * work[0.0]


def test_reports_tell_classes_tenants_and_who_slows_whom():
    _, _ = missed_share(policy := policy_of(externality=False, base_tokens=1000.0))
    report = policy.report()
    (gold,) = [c for c in report.classes if c.label == "gold"]
    assert gold.judged > 5
    assert gold.tpot_missed > 0.5 * gold.judged
    assert gold.twin_tokens > 0.0
    assert gold.least_lead_tokens < 0.0
    by = {tenant.label: tenant for tenant in report.tenants}
    assert by["batch"].verified_tokens > 5 * by["chat"].verified_tokens
    assert by["batch"].imposed_ms > by["batch"].suffered_ms
    assert by["chat"].suffered_ms > by["chat"].imposed_ms
    assert (report.delays[0].by, report.delays[0].on) == ("batch", "chat")


def test_of_two_trust_domains_neither_learns_from_the_other():
    policy = policy_of()

    def about(number):
        return {"domain": "same", "tenant": "same", "trust_domain": "red" if number % 2 else "blue"}

    toy(policy, about=about).run(4, 400)
    red, blue = (
        policy.beliefs.slots.place(
            RequestInfo(request=-n, prompt_tokens=1, max_tokens=9, **about(n))
        ).slot
        for n in (1, 2)
    )
    assert red != blue
    q = policy.beliefs.acceptance.predict_slots()
    assert q[red][0] > 0.85
    assert q[blue][0] < 0.3


# --- states ----------------------------------------------------------------------------------------


def test_a_policy_that_goes_on_from_a_state_plans_the_same():
    slo = {"twin": "per_request", "fairness": 1.0}
    policy, copy = policy_of(**slo), policy_of(**slo)
    run = toy(policy, about=assistant, tokens_per_request=60)
    run.run(4, 200)
    copy.load(policy.state())
    context = at(run._alive, now_ns=run.now_ns)
    assert copy.plan(context).verify_lens.tolist() == policy.plan(context).verify_lens.tolist()
    assert copy.keeper.report() == policy.keeper.report()


def test_a_snapshot_from_before_there_were_promises_still_loads():
    policy = policy_of()
    state = policy.state()
    del state["keeper"]
    policy.load(state)
    assert policy.plan(at([1])).verify_lens.shape == (1,)
