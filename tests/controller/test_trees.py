"""Arithmetic of trees, the guard on chosen nodes, and the policy that chooses them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.config import ControlConfig
from acclimate.controller.guard import plan_fault
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    DraftOutcomes,
    NodeOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.controller.tree_policy import TreePolicy
from acclimate.controller.trees import first_chain, kept_fault, path_survival, sibling_ranks

ENGINE = Capabilities(
    max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3, free_drafts=True, hindsight=True
)
LEAN = ControlConfig.read({"learn": {"probe_share": 0.0}})


def forest(rng: np.random.Generator, sizes: list[int], max_depth: int = 4) -> Candidates:
    """Return random trees, parents first, with confidences of siblings that add up to 1 at most."""
    request, parent, depth, said = [], [], [], []
    for r, size in enumerate(sizes):
        begin = len(parent)
        for node in range(size):
            above = [-1, *(begin + i for i in range(node) if depth[begin + i] < max_depth)]
            p = int(rng.choice(above))
            request.append(r)
            parent.append(p)
            depth.append(1 if p < 0 else depth[p] + 1)
            said.append(float(rng.random()) / 3.0)
    survival = path_survival(int_array(request), int_array(parent), np.array(said), len(sizes))
    return Candidates(
        int_array(request), int_array(parent), int_array(depth), survival, np.array(said)
    )


def context(tree: Candidates, n: int, *, step: int = 1, waiting: int = 0) -> StepContext:
    deepest = int_array(
        [max((int(d) for d in tree.depth[tree.request == r]), default=0) for r in range(n)]
    )
    return StepContext(
        step=step,
        now_ns=step * 10_000_000,
        waiting_prompts=waiting,
        prefill_forecast_tokens=0,
        requests=int_array(range(1, n + 1)),
        drafts=deepest,
        committed=int_array([10] * n),
        context_tokens=int_array([50] * n),
        tokens_left=int_array([100] * n),
        candidates=tree,
    )


def outcome(at: StepContext, plan: StepPlan, accepted: np.ndarray, ms: float) -> StepOutcome:
    """Return what comes of a plan if these candidates are on the paths that are committed."""
    tree = at.candidates
    assert tree is not None and plan.kept is not None
    n = at.requests.shape[0]
    verified = np.zeros_like(tree.parent)
    verified[plan.kept] = 1
    graded = np.array([p < 0 or accepted[p] for p in tree.parent], dtype=np.int64)
    none = np.zeros(n, dtype=np.int64)
    committed = np.bincount(tree.request, weights=accepted * verified, minlength=n) + 1
    return StepOutcome(
        step=at.step,
        now_ns=at.now_ns + int(ms * 1e6),
        latency_ns=int(ms * 1e6),
        decode_requests=n,
        verified_tokens=int(plan.kept.size),
        prefill_tokens=0,
        context_tokens=50 * n,
        sampled_rows=0,
        draft_depth=plan.draft_depth,
        requests=at.requests,
        committed=committed.astype(np.int64),
        drafts=DraftOutcomes(
            request=at.requests, drafted_by=none, verified_by=none, proposed=none, verified=none,
            accepted=none, start=none, graded=none, matched=none, fresh=none,
        ),
        nodes=NodeOutcomes(
            request=tree.request, parent=tree.parent, depth=tree.depth,
            confidence=tree.confidence, verified=verified, graded=graded, accepted=accepted,
        ),
    )  # fmt: skip


def admitted(n: int, config: ControlConfig = LEAN) -> TreePolicy:
    policy = TreePolicy(config, ENGINE)
    for number in range(1, n + 1):
        policy.admit(RequestInfo(request=number, prompt_tokens=9, max_tokens=100, domain="toy"))
    return policy


def draw_path(rng: np.random.Generator, tree: Candidates, q: np.ndarray) -> np.ndarray:
    """Draw which candidates the target takes, at most one child of each node."""
    accepted = np.zeros_like(tree.parent)
    families: dict[tuple[int, int], list[int]] = {}
    for j in range(tree.parent.shape[0]):
        families.setdefault((int(tree.request[j]), int(tree.parent[j])), []).append(j)
    for (_, parent), children in families.items():
        if parent < 0 or accepted[parent]:
            luck = rng.random()
            for child in children:
                luck -= q[child]
                if luck < 0:
                    accepted[child] = 1
                    break
    return accepted


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_survival_never_rises_and_siblings_share_one(seed):
    rng = np.random.default_rng(seed)
    tree = forest(rng, [6, 0, 5])
    q = rng.random(11)
    survival = path_survival(tree.request, tree.parent, q, 3)
    above = np.where(tree.parent < 0, 1.0, survival[tree.parent])
    assert (survival <= above + 1e-12).all()
    for parent in range(11):
        assert survival[tree.parent == parent].sum() <= survival[parent] + 1e-9


def test_the_first_chain_follows_first_children():
    #   0 ── 2 ── 4      request 0; request 1 has 5 ── 6 and a sibling 7
    #   1    3
    request = int_array([0, 0, 0, 0, 0, 1, 1, 1])
    parent = int_array([-1, -1, 0, 0, 2, -1, 5, -1])
    depth = int_array([1, 1, 2, 2, 3, 1, 2, 1])
    assert first_chain(request, parent, depth, int_array([9, 9])).tolist() == [0, 2, 4, 5, 6]
    assert first_chain(request, parent, depth, int_array([1, 0])).tolist() == [0]
    assert sibling_ranks(request, parent, 2).tolist() == [0, 1, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize("kept", [[1], [2, 0], [0, 0], [-1], [3]])
def test_the_guard_refuses_nodes_without_parents_or_order(kept):
    tree = Candidates(int_array([0] * 3), int_array([-1, 0, 0]), int_array([1, 2, 2]), np.ones(3))
    assert kept_fault(int_array(kept), tree) is not None
    at = context(tree, 1)
    plan = StepPlan(
        step=1, draft_depth=4, verify_lens=int_array([0]), depth=4, reason="rule",
        kept=int_array(kept),
    )  # fmt: skip
    assert plan_fault(plan, at, ENGINE) is not None


def test_the_guard_refuses_a_shape_that_the_engine_lacks():
    plan = StepPlan(
        step=1, draft_depth=4, draft_width=4, verify_lens=int_array([]), depth=4, reason="rule"
    )
    at = context(forest(np.random.default_rng(0), []), 0)
    assert plan_fault(plan, at, ENGINE) == "draft_width must be in [1, 3], got 4"
    for floor in (-0.1, 1.5, float("nan")):
        plan = StepPlan(
            step=1, draft_depth=4, draft_floor=floor, verify_lens=int_array([]), depth=4,
            reason="rule",
        )  # fmt: skip
        assert plan_fault(plan, at, ENGINE) == f"draft_floor must be in [0, 1], got {floor}"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_every_plan_is_one_that_the_guard_lets_pass(seed, sizes):
    rng = np.random.default_rng(seed)
    policy = admitted(len(sizes))
    for step in range(1, 6):
        at = context(forest(rng, sizes), len(sizes), step=step)
        plan = policy.plan(at)
        assert plan_fault(plan, at, ENGINE) is None
        tree = at.candidates
        hits = draw_path(rng, tree, tree.confidence)
        policy.observe(outcome(at, plan, hits, ms=10.0 + 0.5 * plan.kept.size))


def test_it_verifies_less_when_nodes_cost_more():
    counts = {}
    for node_ms in (0.05, 1.0, 8.0):
        rng = np.random.default_rng(1)
        policy, kept = admitted(2), []
        for step in range(1, 300):
            at = context(forest(rng, [8, 8]), 2, step=step)
            plan = policy.plan(at)
            kept.append(plan.kept.size)
            tree = at.candidates
            hits = draw_path(rng, tree, tree.confidence)
            # Other counts must be seen for a slope: now and then a whole tree is verified.
            if step % 10 == 0:
                plan = StepPlan(
                    step=step, draft_depth=4, verify_lens=at.drafts, depth=4, reason="rule",
                    kept=np.arange(16),
                )  # fmt: skip
            policy.observe(outcome(at, plan, hits, ms=10.0 + node_ms * plan.kept.size))
        counts[node_ms] = float(np.mean(kept[200:]))
    assert counts[0.05] > 2.0 * counts[1.0] and counts[1.0] > counts[8.0]


def test_a_drafter_that_is_too_sure_is_corrected():
    rng = np.random.default_rng(2)
    policy = admitted(4)
    for step in range(1, 800):
        at = context(forest(rng, [6] * 4), 4, step=step)
        plan, tree = policy.plan(at), at.candidates
        hits = draw_path(rng, tree, 0.4 * tree.confidence)
        policy.observe(outcome(at, plan, hits, ms=10.0))
    at = context(forest(rng, [6] * 4), 4, step=800)
    believed = policy.beliefs.survival(at, at.candidates)
    truth = path_survival(
        at.candidates.request, at.candidates.parent, 0.4 * at.candidates.confidence, 4
    )
    assert np.abs(believed - truth).mean() < 0.35 * np.abs(at.candidates.survival - truth).mean()
    report = policy.report().slots
    (slot,) = [one for one in report if one.label == "toy"]
    assert abs(slot.predicted - slot.seen) < 0.02


def test_it_goes_on_from_its_state():
    rng = np.random.default_rng(3)
    policy = admitted(3, ControlConfig(seed=5))
    for step in range(1, 60):
        at = context(forest(rng, [7] * 3), 3, step=step)
        plan, tree = policy.plan(at), at.candidates
        policy.observe(outcome(at, plan, draw_path(rng, tree, tree.confidence), ms=9.0 + step % 3))
    other = TreePolicy(ControlConfig(seed=5), ENGINE)
    other.load(policy.state())
    for step in range(60, 80):
        at = context(forest(rng, [7] * 3), 3, step=step)
        plan, again = policy.plan(at), other.plan(at)
        assert plan.kept.tolist() == again.kept.tolist()
        assert plan.price_tokens_per_s == again.price_tokens_per_s
        tree = at.candidates
        one = outcome(at, plan, draw_path(rng, tree, tree.confidence), ms=9.0)
        policy.observe(one)
        other.observe(one)


def test_a_drafter_with_a_price_drafts_as_much_as_is_chosen():
    engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), max_width=3)
    policy = TreePolicy(LEAN, engine)
    policy.admit(RequestInfo(request=1, prompt_tokens=9, max_tokens=100))
    tree = Candidates(
        int_array([0, 0, 0]), int_array([-1, -1, 0]), int_array([1, 1, 2]),
        np.array([0.9, 0.02, 0.01]), np.array([0.9, 0.02, 0.011]),
    )  # fmt: skip
    for step in range(1, 300):
        at = context(tree, 1, step=step)
        plan = policy.plan(at)
        policy.observe(outcome(at, plan, int_array([1, 0, 0]), ms=10.0 + 2.0 * plan.kept.size))
    assert plan.kept.tolist() == [0]
    assert (plan.draft_depth, plan.draft_width) == (2, 2)
    assert 0.3 < plan.draft_floor < 0.9, "the nodes of .02 and .01 are never worth their time"
    policy.admit(RequestInfo(request=2, prompt_tokens=9, max_tokens=100))
    busier = policy.plan(context(forest(np.random.default_rng(0), [3, 3]), 2, step=300))
    assert (busier.draft_depth, busier.draft_width) == (4, 3), "each load has a shape of its own"
    assert busier.draft_floor == 0.0
