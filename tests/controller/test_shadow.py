"""In shadow mode the engine's own rule acts, and the account says what the plans would have made."""

from __future__ import annotations

import json

import numpy as np
import pytest

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import EventQueue, ObserveEvent, PlanEvent, ReportEvent
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities
from acclimate.experiments.replay.command import run_replay
from acclimate.experiments.replay.verify import verify_events
from acclimate.experiments.simulation.acceptance import DrawnDrafts
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.regimes import Regime
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.workload import Workload
from acclimate.integrations.trace_format import SCHEMA, TraceHeader, encode_line
from tests.integrations.headers import engine_header

ENGINE = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), free_drafts=True, hindsight=True)
# A saturated engine: every verified token costs as much as a decoded one.
TABLE = TableTime([1, 1, 64, 64], [0, 4, 0, 4], [10.0, 12.0, 20.0, 60.0])
SURVIVAL = (0.6, 0.35, 0.2, 0.1)


def run(policy, *, shadow, concurrency=32, reach=(0.9, 0.6, 0.4, 0.3)):
    config = ControlConfig(policy=policy, shadow=shadow)
    clock = SimulatedClock()
    loop = ControlLoop(build_policy(config, ENGINE), ENGINE, config, clock_ns=clock)
    queue = EventQueue(capacity=100_000)
    loop.attach(queue)
    work = Workload.closed(192, prompt_tokens=16, output_tokens=100)
    drafts = DrawnDrafts([Regime.of_survival(SURVIVAL, reach=reach)], (0,), work.domain_of)
    engine = SimulatedEngine(loop, work, drafts, TABLE, clock, concurrency=concurrency)
    record = engine.run()
    return record, loop, queue.take()


def speed(record):
    steps = record.steps
    alone = np.asarray(steps.prefill_tokens) == 0
    tokens = np.asarray(steps.committed)[alone].sum()
    return tokens / np.asarray(steps.duration_ms)[alone].sum()


def test_the_engines_own_rule_acts_and_decisions_are_recorded():
    record, loop, events = run("static:1", shadow=True)
    stock, _, _ = run("static:4", shadow=False)
    assert record.totals.steps == stock.totals.steps
    plans = [event.decision for event in events if isinstance(event, PlanEvent)]
    outcomes = [event.outcome for event in events if isinstance(event, ObserveEvent)]
    assert len(plans) == loop.counters.shadow_steps > 100
    assert max(plan.verify_lens.max(initial=0) for plan in plans) == 1
    assert all(outcome.stock for outcome in outcomes)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_predicted_gain_is_the_measured_one(depth):
    shadowed, loop, _ = run(f"static:{depth}", shadow=True)
    acting, _, _ = run(f"static:{depth}", shadow=False)
    assert loop.shadow.speed_ratio == pytest.approx(speed(acting) / speed(shadowed), rel=0.05)


def test_the_adaptive_policy_in_the_shadow_sees_that_less_is_more():
    _, loop, events = run("adaptive", shadow=True)
    assert loop.shadow.speed_ratio > 1.05
    reports = [event.report for event in events if isinstance(event, ReportEvent)]
    assert reports[-1].shadow.steps > 0
    assert loop.counters.probes == 0
    assert verify_events(events, ENGINE).holds


def test_where_the_engine_always_verifies_the_same_nothing_is_claimed():
    always = (1.0, 1.0, 1.0, 1.0)
    shadowed, loop, _ = run("static:0", shadow=True, reach=always)
    acting, _, _ = run("static:0", shadow=False, reach=always)
    assert loop.shadow.unknown_steps > 100
    # The last drafts of requests are shorter: in the end that tells what fewer take.
    assert loop.shadow.speed_ratio == pytest.approx(speed(acting) / speed(shadowed), rel=0.08)


def test_the_account_is_read_from_the_trace(tmp_path, capsys):
    _, loop, events = run("static:0", shadow=True)
    header = TraceHeader(
        schema=SCHEMA,
        trace="shadow",
        segment=0,
        acclimate_version="0",
        started="now",
        engine=engine_header(ENGINE),
    )
    path = tmp_path / "trace.jsonl"
    with path.open("wb") as file:
        file.write(encode_line(header))
        file.writelines(encode_line(event) for event in events)
    assert run_replay(path, verify=False, json=tmp_path / "out.json")
    assert "in the shadow: over" in capsys.readouterr().out
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    told = {f["name"]: f["value"] for f in figures}["shadow/speed_ratio"]
    assert told == pytest.approx(loop.shadow.speed_ratio, rel=0.1)


def test_without_shadow_there_is_no_account():
    _, loop, events = run("static:1", shadow=False)
    assert loop.shadow is None and loop.status()["shadow_speed_ratio"] is None
    assert all(e.report.shadow is None for e in events if isinstance(e, ReportEvent))


def test_a_reload_ends_the_shadow():
    _, loop, _ = run("static:1", shadow=True)
    loop.reload(ControlConfig(policy="static:1"))
    assert loop.shadow is None
