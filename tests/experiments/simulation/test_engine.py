"""The simulated engine: known answers, and invariants under every kind of load."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import Event, EventQueue, ObserveEvent, PlanEvent, PreemptEvent
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, Change, StepOutcome, StepPlan
from acclimate.controller.reports import Alarm
from acclimate.controller.static import StaticPolicy
from acclimate.experiments.arrivals import poisson_arrivals
from acclimate.experiments.replay.verify import verify_events
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.acceptance import (
    ConfidentDrafts,
    DrawnDrafts,
)
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.engine import SimulatedEngine, simulate
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.recorded_drafts import RecordedDrafts
from acclimate.experiments.simulation.regimes import Regime
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.workload import Workload
from acclimate.integrations.trace_format import decode_line, encode_line

F2_MS = [
    *(6.52, 7.37, 8.84, 10.33),
    *(6.60, 7.47, 8.98, 10.40),
    *(6.90, 7.85, 9.52, 11.20),
    *(7.77, 9.66, 13.50, 16.83),
    *(14.49, 27.14, 41.85, 57.40),
]
F2 = TableTime(np.repeat([1, 4, 16, 64, 256], 4), np.tile([0, 1, 3, 5], 5), F2_MS)
SURVIVAL = (0.681, 0.391, 0.204, 0.101, 0.051)


def capabilities(max_depth: int = 5, **changes: Any) -> Capabilities:
    given: dict[str, Any] = {"free_drafts": True, "hindsight": True, **changes}
    return Capabilities(max_depth=max_depth, depths=tuple(range(max_depth + 1)), **given)


def drafts_for(work: Workload, *, spread: float = 0.0, seed: int = 0) -> DrawnDrafts:
    regime = Regime.of_survival(SURVIVAL, spread=spread)
    return DrawnDrafts([regime], (0,) * len(work.domain), work.domain_of, seed=seed)


def logged(
    policy: str,
    engine: Capabilities,
    work: Workload,
    drafts: Any = None,
    **changes: Any,
) -> tuple[Run, list[Event], SimulatedEngine]:
    """Run with every event kept."""
    config = ControlConfig(policy=policy)
    clock = SimulatedClock()
    lines: list[str] = []
    loop = ControlLoop(
        build_policy(config, engine), engine, config, clock_ns=clock, log=lines.append
    )
    queue = EventQueue(capacity=10**6)
    loop.attach(queue)
    simulated = SimulatedEngine(loop, work, drafts or drafts_for(work), F2, clock, **changes)
    run = simulated.run()
    assert lines == []
    return run, queue.take(), simulated


def contexts(events: Sequence[Event]) -> list[PlanEvent]:
    return [event for event in events if isinstance(event, PlanEvent)]


def outcomes(events: Sequence[Event]) -> list[StepOutcome]:
    return [event.outcome for event in events if isinstance(event, ObserveEvent)]


@pytest.mark.parametrize(("batch", "gain"), [(1, 1.68), (4, 1.67), (16, 1.65)])
def test_speedups_of_the_published_table(batch: int, gain: float) -> None:
    """Depth 3 on F2 gains what (1 + S1 + S2 + S3) / T(3) says, at every batch."""
    work = Workload.closed(batch * max(2, 48 // batch), prompt_tokens=1, output_tokens=400)
    engine = capabilities()
    speeds = []
    for depth in (0, 3):
        run = simulate(
            StaticPolicy(depth, engine), engine, work, drafts_for(work), F2, concurrency=batch
        )
        assert run.steps is not None
        full = (run.steps.decode_requests == batch) & (run.steps.prefill_tokens == 0)
        speeds.append(run.steps.committed[full].sum() / run.steps.duration_ms[full].sum())
    assert speeds[1] / speeds[0] == pytest.approx(gain, rel=0.02)


def test_every_policy_meets_the_same_luck() -> None:
    work = Workload.closed(50, prompt_tokens=1, output_tokens=40)
    drafts = drafts_for(work, spread=0.7)
    rows = np.arange(50)
    together = drafts.draw(rows, np.full(50, 7), 1.0)
    alone = [drafts.draw(rows[r : r + 1], np.array([7]), 99.0) for r in range(50)]
    assert together[1].tolist() == [int(run[0]) for _, run in alone]


def test_what_is_logged_can_be_verified() -> None:
    """A simulated run is a trace like any other: every decision can be recomputed."""
    work = Workload.closed(24, prompt_tokens=30, output_tokens=60, domain=("code", "chat", "prose"))
    engine = capabilities()
    run, events, _ = logged("adaptive", engine, work, concurrency=4)
    result = verify_events(events, engine)
    assert result.holds, result.first_difference
    assert result.decisions == run.totals.steps


def test_confidence_survives_the_trace() -> None:
    """What a policy saw of the drafter's confidence is in the log, bit by bit."""
    work = Workload.closed(6, prompt_tokens=5, output_tokens=30)
    drafts = ConfidentDrafts([Regime.of_survival(SURVIVAL, scatter=1.0)], (0,), work.domain_of)
    engine = capabilities()
    _, events, _ = logged("adaptive", engine, work, drafts, concurrency=2)
    read = [decode_line(encode_line(event)) for event in events]
    for before, after in zip(contexts(events), contexts(read), strict=True):  # type: ignore[arg-type]
        sure, told = before.context.candidates, after.context.candidates
        assert sure is not None and told is not None and told.confidence is not None
        assert (sure.confidence == told.confidence).all()
    assert verify_events(read, engine).holds  # type: ignore[arg-type]


def test_grading_in_hindsight_agrees_with_the_luck() -> None:
    """Every graded draft is known as far as its run, whatever was verified of it."""
    work = Workload.closed(6, prompt_tokens=5, output_tokens=80)
    engine = capabilities()
    drafts = drafts_for(work)
    _, events, _ = logged("static:1", engine, work, drafts, concurrency=3)
    graded, matched, fresh = 0, 0, 0
    for outcome in outcomes(events):
        rows = outcome.drafts
        n = outcome.requests.shape[0]
        assert (rows.request[:n] == outcome.requests).all()
        assert ((rows.graded - rows.matched >= 0) & (rows.graded - rows.matched <= 1)).all()
        graded += int(rows.graded.sum())
        matched += int(rows.matched.sum())
        fresh += int(rows.fresh.sum())
    # Conditional acceptance, pooled: tokens right over tokens whose fate is known.
    expected = sum(SURVIVAL) / (1 + sum(SURVIVAL[:-1]))
    assert matched / graded == pytest.approx(expected, abs=0.06)
    assert fresh < graded


def test_stop_inside_an_accepted_block() -> None:
    """An answer that ends before its limit keeps nothing behind its end."""
    work = Workload.closed(1, prompt_tokens=3, output_tokens=4)
    roomy = Workload(
        **{
            **{name: getattr(work, name) for name in work.__slots__},
            "max_tokens": np.array([100]),
        }
    )
    engine = capabilities(max_depth=2)
    sure = DrawnDrafts([Regime.of_survival([1.0, 1.0])], (0,), roomy.domain_of)
    run, events, _ = logged("static:2", engine, roomy, sure, concurrency=1)
    last = outcomes(events)[-1]
    assert run.tokens.tolist() == [4]
    assert last.drafts.accepted.tolist() == [2] and last.committed.tolist() in ([1], [2], [3])
    exact = simulate(StaticPolicy(2, engine), engine, work, sure, F2, concurrency=1)
    assert exact.totals.verified <= run.totals.verified


def test_open_loop_waits_for_nobody_and_idles_between() -> None:
    work = Workload.open(np.array([0.0, 0.001, 50.0]), prompt_tokens=10, output_tokens=20)
    engine = capabilities()
    run, events, _ = logged("static:0", engine, work)
    assert run.arrival_s.tolist() == [0.0, 0.001, 50.0]
    # The first step of the idle engine took its own time and no more.
    assert max(outcome.latency_ns or 0 for outcome in outcomes(events)) < 50e6
    assert run.ttft_s[2] == pytest.approx(run.ttft_s[0], rel=0.2)
    assert run.ended_s > 50.0


def test_prompts_come_in_chunks_within_the_budget() -> None:
    work = Workload.open(np.zeros(3), prompt_tokens=100, output_tokens=5)
    limits = EngineLimits(token_budget=64, max_num_seqs=2)
    run, events, _ = logged("static:2", capabilities(), work, limits=limits)
    made = outcomes(events)
    assert max(o.prefill_tokens + o.decode_requests + o.verified_tokens for o in made) <= 64
    assert sum(o.prefill_tokens for o in made) == 300
    forecasts = [event.context.prefill_forecast_tokens for event in contexts(events)]
    actual = [outcome.prefill_tokens for outcome in made]
    # The forecast leaves room for all drafts at hand, of which the plan then verifies two.
    assert (forecasts[:3], actual[:3]) == ([64, 64, 60], [64, 64, 61])
    assert run.finished.all()


def test_the_last_loses_its_place_and_computes_anew() -> None:
    work = Workload.closed(6, prompt_tokens=40, output_tokens=60)
    limits = EngineLimits(kv_blocks=14, block_tokens=16)
    run, events, engine = logged("static:3", capabilities(), work, limits=limits, concurrency=4)
    lost = [event for event in events if isinstance(event, PreemptEvent)]
    assert len(lost) == engine.preemptions > 0
    assert run.tokens.tolist() == [60] * 6
    assert run.totals.prefill_tokens > 6 * 40
    with pytest.raises(ValueError, match=r"kv_blocks must hold the longest request of 100 tokens"):
        logged("static:0", capabilities(), work, limits=EngineLimits(kv_blocks=6))


def test_drafts_are_made_as_asked_one_step_earlier() -> None:
    work = Workload.closed(3, prompt_tokens=5, output_tokens=40)
    engine = capabilities(free_drafts=False)
    _, events, _ = logged("static:2", engine, work, concurrency=1)
    at_hand = {int(d) for event in contexts(events) for d in event.context.drafts}
    assert at_hand <= {0, 1, 2}
    for outcome in outcomes(events):
        known = outcome.drafts.drafted_by >= 0
        assert (outcome.drafts.drafted_by[known] < outcome.step).all()


def test_drafts_may_be_short_or_missing() -> None:
    work = Workload.closed(40, prompt_tokens=5, output_tokens=50)
    regime = Regime.of_survival([0.9, 0.8], reach=[0.5, 0.2])
    drafts = DrawnDrafts([regime], (0,), work.domain_of)
    engine = capabilities(max_depth=2)
    _, events, _ = logged("static:2", engine, work, drafts, concurrency=4)
    proposed = np.concatenate([o.drafts.proposed[: o.requests.shape[0]] for o in outcomes(events)])
    assert (proposed >= 1).mean() == pytest.approx(0.5, abs=0.05)
    assert (proposed >= 2).mean() == pytest.approx(0.2, abs=0.05)


def test_recorded_drafts_are_exact() -> None:
    """With the draft at every offset on record, any depth gives its tokens without a model."""
    work = Workload.closed(1, prompt_tokens=2, output_tokens=9)
    length = np.array([0, 2, 2, 2, 0, 0, 2, 2, 0])
    run_length = np.array([0, 2, 0, 1, 0, 0, 1, 0, 0])
    drafts = RecordedDrafts(np.array([0]), length, run_length, max_depth=2)
    engine = capabilities(max_depth=2)
    run, events, _ = logged("static:2", engine, work, drafts, concurrency=1)
    # First token; then 2 + bonus, none, none, 1 + bonus, none.
    assert [int(o.committed.sum()) for o in outcomes(events)] == [0, 3, 1, 1, 2, 1]
    assert run.totals.accepted == 3


def test_confidence_reaches_the_policy() -> None:
    seen: list[tuple[float, int]] = []

    class Watcher(StaticPolicy):
        def plan(self, context: Any) -> StepPlan:
            if context.candidates is not None and context.candidates.request.size:
                assert context.candidates.request.size == context.drafts.sum()
                first = context.candidates.depth == 1
                seen.extend((c, 0) for c in context.candidates.confidence[first])
            return super().plan(context)

    work = Workload.closed(20, prompt_tokens=5, output_tokens=60)
    regime = Regime.of_survival([0.7, 0.5], spread=0.5, scatter=1.0)
    drafts = ConfidentDrafts([regime], (0,), work.domain_of)
    engine = capabilities(max_depth=2)
    simulate(Watcher(2, engine), engine, work, drafts, F2, concurrency=4)
    assert np.mean([c for c, _ in seen]) == pytest.approx(0.7, abs=0.03)


def test_an_asynchronous_engine_tells_one_step_later() -> None:
    order: list[tuple[str, int]] = []

    class Watcher(StaticPolicy):
        def plan(self, context: Any) -> StepPlan:
            order.append(("plan", context.step))
            return super().plan(context)

        def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
            order.append(("observe", outcome.step))
            return super().observe(outcome)

    work = Workload.closed(2, prompt_tokens=5, output_tokens=6)
    engine = capabilities(max_depth=1, asynchronous=True, hindsight=False)
    drafts = DrawnDrafts([Regime.of_survival([0.5])], (0,), work.domain_of)
    run = simulate(Watcher(1, engine), engine, work, drafts, F2, concurrency=1)
    assert run.finished.all()
    assert order[:4] == [("plan", 1), ("plan", 2), ("observe", 1), ("plan", 3)]
    observed = [step for what, step in order if what == "observe"]
    assert observed == list(range(1, run.totals.steps + 1))


def test_a_declared_change_reaches_the_policy_in_time() -> None:
    declared: list[str] = []

    class Watcher(StaticPolicy):
        def declare(self, change: Change) -> None:
            declared.append(change.kind)

    work = Workload.closed(4, prompt_tokens=5, output_tokens=60)
    engine = capabilities()
    changes = [(0.1, Change(kind="draft")), (1e9, Change(kind="model"))]
    simulate(Watcher(1, engine), engine, work, drafts_for(work), F2, concurrency=1, changes=changes)
    assert declared == ["draft"]


def test_a_failing_policy_is_no_result() -> None:
    class Broken(StaticPolicy):
        def plan(self, context: Any) -> StepPlan:
            raise KeyError("lost")

    work = Workload.closed(2, prompt_tokens=5, output_tokens=6)
    engine = capabilities()
    with pytest.raises(RuntimeError, match="must not fail in a simulation, got: error: plan"):
        simulate(Broken(1, engine), engine, work, drafts_for(work), F2, concurrency=1)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    depth=st.integers(0, 5),
    seats=st.integers(1, 6),
    budget=st.integers(1, 40),
    blocks=st.none() | st.integers(10, 20),
    concurrency=st.none() | st.integers(1, 8),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_nothing_is_lost_under_any_limits(
    seed: int,
    depth: int,
    seats: int,
    budget: int,
    blocks: int | None,
    concurrency: int | None,
    flags: tuple[bool, bool, bool],
) -> None:
    """All tokens are written, counts agree, and the engine is empty at the end."""
    rng = np.random.default_rng(seed)
    n = 12
    work = Workload.open(
        poisson_arrivals(n, 20.0, rng),
        prompt_tokens=rng.integers(1, 60, n),
        output_tokens=rng.integers(1, 30, n),
    )
    engine = capabilities(free_drafts=flags[0], hindsight=flags[1], asynchronous=flags[2])
    limits = EngineLimits(max_num_seqs=seats, token_budget=budget, kv_blocks=blocks)
    run, events, simulated = logged(
        f"static:{depth}", engine, work, limits=limits, concurrency=concurrency
    )
    assert run.tokens.tolist() == work.output_tokens.tolist()
    assert run.totals.committed + run.totals.first_tokens == work.tokens
    assert simulated.in_system == 0
    made = outcomes(events)
    assert len(made) == run.totals.steps == len(contexts(events))
    for event, outcome in zip(contexts(events), made, strict=True):
        context = event.context
        assert (context.requests == outcome.requests).all()
        assert (context.drafts <= np.maximum(context.tokens_left - 1, 0)).all()
        assert (outcome.drafts.accepted <= outcome.drafts.verified).all()
        assert outcome.verified_tokens == int(
            outcome.drafts.verified[: outcome.requests.shape[0]].sum()
        )
        spent = outcome.decode_requests + outcome.verified_tokens + outcome.prefill_tokens
        assert 0 < spent <= budget
    ends = [outcome.now_ns for outcome in made]
    assert all(a < b for a, b in itertools.pairwise(ends))


def test_prompts_first_makes_decoding_wait() -> None:
    work = Workload.open(np.array([0.0, 0.05]), prompt_tokens=40, output_tokens=20)
    limits = EngineLimits(prefill_first=True, token_budget=64)
    table = TableTime([1, 1], [0, 1], [10.0, 12.0], prefill_ms_per_token=1.0)
    engine = Capabilities(max_depth=1, depths=(0, 1))
    drafts = DrawnDrafts([Regime.of_survival([1.0])], (0,), work.domain_of)
    run = simulate(StaticPolicy(1, engine), engine, work, drafts, table, limits=limits)
    assert run.tokens.tolist() == [20, 20] and run.steps is not None
    prompts = run.steps.prefill_tokens > 0
    assert (run.steps.decode_requests[prompts] == 0).all()
    beside = simulate(StaticPolicy(1, engine), engine, work, drafts, table)
    assert (
        beside.steps is not None
        and (beside.steps.decode_requests[beside.steps.prefill_tokens > 0] > 0).any()
    )


def test_a_draft_model_runs_once_even_if_nothing_is_asked() -> None:
    work = Workload.closed(1, prompt_tokens=1, output_tokens=11)
    table = TableTime([1, 1], [0, 1], [10.0, 14.0], draft_share=0.5)
    engine = Capabilities(max_depth=1, depths=(0, 1))
    drafts = DrawnDrafts([Regime.of_survival([1.0])], (0,), work.domain_of)

    def seconds(passes: int) -> float:
        limits = EngineLimits(least_draft_passes=passes)
        return simulate(
            StaticPolicy(0, engine), engine, work, drafts, table, limits=limits, concurrency=1
        ).duration_s

    assert seconds(1) - seconds(0) == pytest.approx(0.022)
