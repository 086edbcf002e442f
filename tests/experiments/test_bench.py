"""The overhead and soak benches drive the real bridge, loop and policy with a scripted engine."""

import json
from pathlib import Path

import pytest

from acclimate.controller.events import AddEvent, ObserveEvent, PlanEvent, ReportEvent
from acclimate.experiments.bench.overhead import GUARANTEES, promised_labels, run_overhead
from acclimate.experiments.bench.soak import hostile_labels, run_soak
from acclimate.experiments.replay.verify import verify_events
from acclimate.experiments.scripted_scheduler import ScriptedScheduler
from acclimate.integrations.trace_format import decode_line, encode_line


@pytest.mark.parametrize("policy", ["static:0", "static:5", "adaptive"])
def test_every_request_gets_its_whole_output_whatever_is_verified(policy: str) -> None:
    engine = ScriptedScheduler(8, max_depth=5, seed=1, policy=policy, output_tokens=(1, 30))
    for _ in range(200):
        running = list(engine.running)
        engine.step()
        for request in running:
            written = len(request.written)
            assert request.written == request.output[:written]
            assert request.request_id in engine.requests or written == request.max_tokens
    engine.check()
    assert engine.bridge.counters.requests > 20


def test_deeper_verification_gives_more_tokens_per_step() -> None:
    tokens = {}
    for depth in (0, 5):
        engine = ScriptedScheduler(8, max_depth=5, seed=1, policy=f"static:{depth}")
        for _ in range(200):
            engine.step()
        tokens[depth] = engine.tokens
    assert tokens[5] > 1.3 * tokens[0]


def test_what_is_graded_agrees_with_the_scripted_acceptance() -> None:
    engine = ScriptedScheduler(16, max_depth=5, seed=2, policy="static:0")
    graded = matched = 0
    for _ in range(400):
        engine.step()
        for event in engine.queue.take():
            if isinstance(event, ObserveEvent):
                graded += int(event.outcome.drafts.graded.sum())
                matched += int(event.outcome.drafts.matched.sum())
    assert graded > 1_000
    assert 0.55 < matched / graded < 0.85


def test_the_bridge_and_the_adaptive_policy_replay_exactly() -> None:
    engine = ScriptedScheduler(6, max_depth=5, seed=3, output_tokens=(5, 40))
    for _ in range(300):
        engine.step()
    events = [decode_line(encode_line(event)) for event in engine.queue.take()]
    result = verify_events(events, engine.loop.capabilities)  # type: ignore[arg-type]
    assert result.first_difference is None
    assert result.identical == result.compared == 300


def test_decisions_by_promises_can_be_repeated_from_their_events() -> None:
    engine = ScriptedScheduler(
        4, max_depth=5, seed=0, labels=promised_labels, slo=GUARANTEES, output_tokens=(5, 40)
    )
    for _ in range(300):
        engine.step()
    engine.check()
    events = [decode_line(encode_line(event)) for event in engine.queue.take()]
    result = verify_events(events, engine.loop.capabilities)  # type: ignore[arg-type]
    assert result.first_difference is None
    assert result.identical == result.compared == 300
    reports = [event.report for event in events if isinstance(event, ReportEvent)]
    assert reports[-1].classes[0].judged > 0
    assert {tenant.label for tenant in reports[-1].tenants} >= {"t0", "t1", "t2", "t3"}


def test_promises_are_timed_under_names_of_their_own(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run_overhead([2], steps=100, promises=True, json=out)
    names = [figure["name"] for figure in json.loads(out.read_text())["figures"]]
    assert names == ["overhead/2/promises/median_ms", "overhead/2/promises/p99_ms"]


def test_overhead_figures(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run_overhead([1, 4], steps=100, json=out)
    figures = {figure["name"]: figure for figure in json.loads(out.read_text())["figures"]}
    assert list(figures) == [
        "overhead/1/median_ms",
        "overhead/1/p99_ms",
        "overhead/4/median_ms",
        "overhead/4/p99_ms",
    ]
    assert figures["overhead/4/median_ms"]["n"] == 100
    assert figures["overhead/4/p99_ms"]["value"] >= figures["overhead/4/median_ms"]["value"] > 0


def test_hostile_labels_stay_bounded() -> None:
    engine = ScriptedScheduler(
        4, max_depth=5, seed=0, output_tokens=(1, 4), labels=hostile_labels, policy="static:2"
    )
    for _ in range(500):
        engine.step()
    engine.check()
    events = engine.queue.take()
    labels = [event.request for event in events if isinstance(event, AddEvent)]
    assert len(labels) > 500
    assert all(len(label.domain) <= 64 and label.domain.isprintable() for label in labels)
    assert engine.bridge.status()["live_requests"] <= 4
    assert engine.bridge.status()["rejected_metadata"] > 100
    for event in events:
        if isinstance(event, (AddEvent, PlanEvent)):
            encode_line(event)


def test_soak_figures(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    run_soak(steps=2_000, json=out)
    figures = {figure["name"]: figure for figure in json.loads(out.read_text())["figures"]}
    assert figures["soak/memory_growth_mib"]["value"] < 50
    assert figures["soak/requests"]["value"] > 1_000
