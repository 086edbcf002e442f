"""The loop never hurts: late, raising and lying policies cost steps, never the engine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import (
    ConfigEvent,
    EventQueue,
    GapEvent,
    GuardEvent,
    PlanEvent,
    SnapshotEvent,
)
from acclimate.controller.loop import ControlLoop
from acclimate.controller.reasons import Stock
from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.controller.static import StaticPolicy

ENGINE = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
SECOND = 1_000_000_000


class Clock:
    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns


class Moody(StaticPolicy):
    """Does what its mood says."""

    def __init__(self, clock):
        super().__init__(2, ENGINE)
        self.clock = clock
        self.mood = "good"
        self.observed = 0

    def plan(self, context):
        if self.mood == "raise":
            raise RuntimeError("out of mood")
        if self.mood == "late":
            self.clock.now_ns += 5 * SECOND
        plan = super().plan(context)
        broken = {
            "too deep": {"verify_lens": plan.verify_lens + 9},
            "negative": {"verify_lens": plan.verify_lens - 9},
            "short": {"verify_lens": plan.verify_lens[:-1]},
            "float": {"verify_lens": plan.verify_lens * 1.0},
            "depth": {"draft_depth": 99},
            "cap": {"depth": -1},
            "step": {"step": 77},
        }.get(self.mood)
        if not broken:
            return plan
        fields = {name: getattr(plan, name) for name in StepPlan.__struct_fields__}
        return StepPlan(**{**fields, **broken})

    def observe(self, outcome):
        self.observed += 1
        if self.mood == "raise in observe":
            raise ValueError("no")
        if self.mood == "late in observe":
            self.clock.now_ns += SECOND
        return ()


@pytest.fixture
def stage():
    clock, lines = Clock(), []
    policy = Moody(clock)
    loop = ControlLoop(policy, ENGINE, ControlConfig(), clock_ns=clock, log=lines.append)
    return clock, policy, loop, lines


def context(step):
    two = int_array([1, 2])
    return StepContext(
        step=step, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0, requests=two,
        drafts=int_array([4, 1]), committed=two, context_tokens=two, tokens_left=two + 20,
    )  # fmt: skip


def outcome(step):
    none = int_array()
    columns = dict.fromkeys(DraftOutcomes.__struct_fields__, none)
    return StepOutcome(
        step=step, now_ns=step, latency_ns=None, decode_requests=0, verified_tokens=0,
        prefill_tokens=0, context_tokens=0, sampled_rows=0, draft_depth=0, requests=none,
        committed=none, drafts=DraftOutcomes(**columns),
    )  # fmt: skip


@pytest.mark.parametrize("mood", ["late", "late in observe"])
def test_a_late_return_makes_the_next_step_stock_and_no_more(stage, mood):
    _, policy, loop, lines = stage
    policy.mood = mood
    assert loop.plan(context(1)) is not None
    loop.observe(outcome(1))
    policy.mood = "good"
    assert loop.plan(context(2)) is None
    assert loop.status()["blocked_by"] == Stock.LATE
    assert loop.plan(context(3)) is not None
    assert len(lines) == 1
    assert loop.counters.late_calls == 1


@pytest.mark.parametrize(
    "mood", ["raise", "too deep", "negative", "short", "float", "depth", "cap", "step"]
)
def test_a_fault_backs_off_ten_seconds_then_twice_as_long(stage, mood):
    clock, policy, loop, lines = stage
    policy.mood = mood
    assert loop.plan(context(1)) is None
    assert len(lines) == 1
    clock.now_ns += 10 * SECOND - 1
    assert loop.plan(context(2)) is None
    clock.now_ns += 1
    assert loop.plan(context(3)) is None  # it came back, and failed again
    assert len(lines) == 2
    policy.mood = "good"
    clock.now_ns += 20 * SECOND - 1
    assert loop.plan(context(4)) is None
    clock.now_ns += 1
    assert loop.plan(context(5)).verify_lens.tolist() == [2, 1]
    assert loop.counters.faults == 2


def test_after_five_faults_only_a_reload_brings_it_back(stage):
    clock, policy, loop, _ = stage
    policy.mood = "raise"
    for step in range(5):
        loop.plan(context(step))
        clock.now_ns += 1000 * SECOND
    policy.mood = "good"
    assert loop.plan(context(9)) is None
    assert loop.status()["blocked_by"] == Stock.DISABLED
    loop.reload(ControlConfig(policy="static:1"))
    assert loop.plan(context(10)).verify_lens.tolist() == [1, 1]


def test_a_fault_a_month_is_forgiven(stage):
    clock, policy, loop, _ = stage
    for step in range(20):
        policy.mood = "raise"
        assert loop.plan(context(step)) is None
        policy.mood = "good"
        clock.now_ns += 30 * 24 * 3600 * SECOND
        assert loop.plan(context(step)) is not None


def test_a_failed_observe_is_a_fault_and_the_policy_is_left_alone_meanwhile(stage):
    clock, policy, loop, _ = stage
    policy.mood = "raise in observe"
    loop.observe(outcome(1))
    loop.observe(outcome(2))
    assert policy.observed == 1
    clock.now_ns += 11 * SECOND
    policy.mood = "good"
    loop.plan(context(3))
    loop.observe(outcome(3))
    assert policy.observed == 2


def test_an_engine_that_disobeys_is_a_violation(stage):
    _, _, loop, lines = stage
    loop.violation("drafted 4 where 2 were asked")
    assert loop.plan(context(1)) is None
    assert "drafted 4" in lines[0]
    assert loop.counters.violations == 1


def test_what_an_engine_did_to_plans_of_before_is_no_further_violation(stage):
    clock, _, loop, lines = stage
    for detail in ("more verified than planned", "more accepted than verified", "so again, late"):
        loop.violation(detail)
    assert loop.counters.violations == 3 and len(lines) == 1
    clock.now_ns += 10 * SECOND
    assert loop.plan(context(1)) is not None


def test_a_reload_with_a_bad_policy_leaves_the_old_one_in_force(stage):
    _, policy, loop, _ = stage
    with pytest.raises(ValueError, match=r"depth must be in \[0, 4\], got 9"):
        loop.reload(ControlConfig(policy="static:9"))
    assert loop.policy is policy
    assert loop.config_version == 1


def test_events_begin_with_configuration_and_state_and_count_up(stage):
    clock, policy, loop, _ = stage
    queue = EventQueue()
    loop.attach(queue)
    loop.plan(context(1))
    policy.mood = "raise"
    loop.plan(context(2))
    clock.now_ns += 10 * SECOND
    policy.mood = "good"
    loop.plan(context(3))
    events = queue.take()
    kinds = [type(event) for event in events]
    assert kinds[:3] == [ConfigEvent, SnapshotEvent, PlanEvent]
    assert kinds[3:] == [GuardEvent, GuardEvent, SnapshotEvent, PlanEvent]
    assert [event.stock for event in events if isinstance(event, GuardEvent)] == ["error", None]
    assert [event.seq for event in events] == sorted({event.seq for event in events})


def test_an_overflow_is_a_counted_gap_followed_by_the_state(stage):
    _, _, loop, _ = stage
    queue = EventQueue(capacity=10)
    loop.attach(queue)
    for step in range(30):
        loop.plan(context(step))
    assert queue.lost == 22
    queue.take()
    loop.plan(context(31))
    loop.plan(context(32))
    gap, config, snapshot, plan = queue.take()
    assert isinstance(gap, GapEvent)
    assert gap.lost == 23
    assert isinstance(config, ConfigEvent)
    assert isinstance(snapshot, SnapshotEvent)
    assert plan.context.step == 32
    assert loop.status()["lost_events"] == 23


@settings(max_examples=60, deadline=None)
@given(
    moods=st.lists(
        st.sampled_from(
            ["good", "raise", "late", "too deep", "float", "raise in observe", "late in observe"]
        ),
        max_size=30,
    ),
    waits=st.lists(st.floats(0, 400), max_size=30),
)
def test_whatever_a_policy_does_a_plan_is_valid_or_none(moods, waits):
    clock = Clock()
    policy = Moody(clock)
    loop = ControlLoop(policy, ENGINE, ControlConfig(), clock_ns=clock)
    for step, (mood, wait) in enumerate(zip(moods, waits, strict=False)):
        policy.mood = mood
        plan = loop.plan(context(step))
        if plan is not None:
            assert (plan.verify_lens <= np.array([4, 1])).all()
        loop.observe(outcome(step))
        clock.now_ns += int(wait * SECOND)
    counters = loop.counters
    assert counters.stock_steps <= counters.steps
