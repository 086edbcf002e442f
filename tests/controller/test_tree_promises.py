"""Promises on an engine of trees: who gets nodes, what steps may take, and nothing without promises."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.guard import plan_fault
from acclimate.controller.loop import ControlLoop
from acclimate.controller.reasons import Reason
from acclimate.controller.records import Capabilities, Slo
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.synthetic import Meaning, SyntheticTarget, SyntheticText

FREE = Capabilities(
    max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3, free_drafts=True, hindsight=True
)
DRAFTER = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3, hindsight=True)
BLIND = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3)
CHEAP = TableTime([1, 1, 8, 8], [0, 12, 0, 96], [20.0, 24.0, 24.0, 84.0])
COSTLY = TableTime([1, 1, 8, 8], [0, 12, 0, 96], [20.0, 44.0, 24.0, 144.0])
ETA, ALLOWED_TOKENS = 0.02, 4.0
DOMAINS = {"sure": Meaning(sureness=3.0), "unsure": Meaning(intercept=-6.0, sureness=-0.5)}


class Watched:
    """Keeps a policy's plans, and checks each."""

    def __init__(self, policy, engine, step_time):
        self.policy, self.engine, self.step_time = policy, engine, step_time
        self.plans, self.kept = [], Counter()
        self.twin, self.wrote, self.worst_lag = Counter(), Counter(), 0.0

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def plan(self, context):
        plan = self.policy.plan(context)
        assert plan_fault(plan, context, self.engine) is None
        self.plans.append(plan)
        if context.candidates is not None and plan.kept is not None:
            owners = context.requests[context.candidates.request[plan.kept]]
            self.kept.update(owners.tolist())
        return plan

    def observe(self, outcome):
        n = outcome.decode_requests
        twin = outcome.latency_ns / 1e6 / self.step_time.step_ms(StepMakeUp(n, 0))
        for number, tokens in zip(outcome.requests.tolist(), outcome.committed, strict=True):
            self.twin[number] += twin
            self.wrote[number] += int(tokens)
            lag = (1.0 - ETA) * self.twin[number] - self.wrote[number]
            self.worst_lag = max(self.worst_lag, lag)
        return self.policy.observe(outcome)


def serve(about, *, engine=FREE, requests=60, batch=4, tokens=40, step_time=CHEAP, **slo):
    """Serve requests of alternating domains, and return the policy and the engine."""
    config = ControlConfig.read({"slo": slo})
    policy = Watched(TreePolicy(config, engine), engine, step_time)
    text, clock = SyntheticText(DOMAINS, seed=3), SimulatedClock()
    target = SyntheticTarget(text, step_time, clock, max_requests=batch)
    loop = ControlLoop(policy, engine, config, clock_ns=clock, log=pytest.fail)
    served = TreeEngine(target, loop, text, nodes=12, seed=1)
    domains = [tuple(DOMAINS)[number % 2] for number in range(requests)]
    served.run(
        [
            TreeRequest(
                prompt=text.prompt(domain, number), max_tokens=tokens, domain=domain,
                **about(number),
            )
            for number, domain in enumerate(domains)
        ]
    )  # fmt: skip
    return policy, served


def chosen(policy):
    return [plan.kept.tolist() for plan in policy.plans]


def test_labels_and_importance_that_all_share_change_no_decision():
    plain, _ = serve(lambda number: {})
    named, _ = serve(lambda number: {"tenant": "a"}, base_tokens=2.0)
    important, _ = serve(lambda number: {"importance": 3.0})
    assert chosen(plain) == chosen(named) == chosen(important)
    assert not plain.keeper.active and not named.keeper.active
    assert [(t.label, t.alive) for t in named.report().tenants] == [("a", 0)]


def test_nodes_go_to_those_whose_tokens_count_for_more():
    usual, _ = serve(lambda number: {})
    weighed, _ = serve(lambda number: {"importance": 4.0 if number % 2 else 1.0})
    shares = []
    for policy in (usual, weighed):
        odd = sum(count for number, count in policy.kept.items() if number % 2 == 0)
        shares.append(odd / sum(policy.kept.values()))
    assert shares[1] > 1.3 * shares[0]  # numbers begin at 1: even ones are of odd prompts


# --- the twin --------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [FREE, DRAFTER, BLIND], ids=["free", "drafter", "blind"])
def test_nobody_falls_behind_the_engine_that_verifies_nothing(engine):
    """Trees of sure requests make unsure ones wait, unless that is forbidden."""
    long = {"requests": 16, "tokens": 150, "engine": engine, "step_time": COSTLY}
    freely, fast = serve(lambda number: {}, **long)
    guarded, kept = serve(
        lambda number: {}, twin="per_request", eta=ETA, lag_tokens=ALLOWED_TOKENS, **long
    )
    assert freely.worst_lag > ALLOWED_TOKENS
    assert guarded.worst_lag <= ALLOWED_TOKENS
    plain_ns = 150 * 4 * 1e6 * COSTLY.step_ms(StepMakeUp(4, 0))
    assert fast.tally.time_ns < kept.tally.time_ns < plain_ns
    assert Reason.TWIN in {plan.reason for plan in guarded.plans}


# --- targets ---------------------------------------------------------------------------------------


def missed(policy, served, target_s):
    tight = [one for one in served.finished.values() if one.request.slo is not None]
    assert tight
    return [
        one for one in tight
        if (one.last_ns - one.first_ns) / 1e9 / (one.committed - 1) > target_s
    ]  # fmt: skip


def test_trees_of_others_break_no_target_that_could_be_kept():
    """The unsure ones must get a token every 22.5 ms, where a plain step takes 21.7."""

    def about(number):
        return {"slo": Slo(tpot_s=0.0225)} if number % 2 else {}

    long = {"requests": 16, "tokens": 120, "base_tokens": 1000.0}
    freely, fast = serve(about, externality=False, **long)
    bound, kept = serve(about, externality=True, **long)
    assert missed(freely, fast, 0.0225)
    assert not missed(bound, kept, 0.0225)
    assert Reason.NEIGHBOURS in {plan.reason for plan in bound.plans}
    assert sum(bound.kept.values()) > 0


def test_whatever_is_promised_plans_are_valid_and_go_on_from_a_state():
    rng = np.random.default_rng(8)

    def about(number):
        targets = 10.0 ** rng.uniform(-4, 3, 3)
        slo = Slo(ttft_s=targets[0], tpot_s=targets[1], e2e_s=targets[2])
        return {"slo": slo, "importance": float(rng.uniform(0.1, 5.0)), "tenant": f"t{number % 3}"}

    for engine in (FREE, DRAFTER, BLIND):
        policy, _ = serve(about, engine=engine, requests=12, twin="per_request", fairness=5.0)
        config = ControlConfig.read({"slo": {"twin": "per_request", "fairness": 5.0}})
        copy = TreePolicy(config, engine)
        copy.load(policy.state())
        assert copy.report() == policy.report()
        assert {one.label for one in policy.report().tenants} == {"t0", "t1", "t2"}
    old = TreePolicy(ControlConfig(), FREE)
    state = old.state()
    TreePolicy(ControlConfig(), FREE).load({k: v for k, v in state.items() if k != "keeper"})
