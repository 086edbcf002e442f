"""The demo's stream, its measures and its report, on made-up passes."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import (
    AddEvent,
    Event,
    FreeEvent,
    ObserveEvent,
    PlanEvent,
)
from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    int_array,
)
from acclimate.experiments.demo.analysis import Speeds, headroom
from acclimate.experiments.demo.arms import ArmRun, differing_jobs
from acclimate.experiments.demo.learning import relive
from acclimate.experiments.demo.picture import draw
from acclimate.experiments.demo.prompts import PROMPTS
from acclimate.experiments.demo.report import Findings, figures, print_report
from acclimate.experiments.demo.stream import BEFORE, Stream, build_stream
from acclimate.integrations.vllm.closed_loop import ClosedLoopRun, Job, JobResult, Phase, StepRecord

ENGINE = Capabilities(max_depth=2, depths=(0, 1, 2), free_drafts=True, hindsight=True)
LOAD = 2
RIGHT = {"old": 0.9, "new": 0.1, "code": 0.8}


def small_stream() -> Stream:
    jobs = [
        Job(f"{i:02d}", (1,), 40, label="code" if i % 2 else "chat",
            truth="code" if i % 2 else ("old" if i < 20 else "new"))
        for i in range(40)
    ]  # fmt: skip
    return Stream((Phase(LOAD, tuple(jobs)),), shift="20", sequel=Phase(LOAD, ()))


def make_run(arm: str, number: int, policy: Policy, stream: Stream) -> ArmRun:
    """Let pairs of requests run for ten steps each; a step takes 10 ms and 2 ms per draft."""
    rng = np.random.default_rng(number)
    run = ClosedLoopRun([], [])
    events: list[Event] = []
    step, now_ns = 0, number * 10**12
    jobs = stream.jobs
    for first in range(0, len(jobs), LOAD):
        pair = list(jobs[first : first + LOAD])
        numbers = [number * 1000 + first + i for i in range(LOAD)]
        for job, request in zip(pair, numbers, strict=True):
            info = RequestInfo(request=request, prompt_tokens=9, max_tokens=40, domain=job.label)
            policy.admit(info)
            events.append(AddEvent(0, info))
            run.results.append(JobResult(job, 0.0, token_ids=[1, 2, 3]))
        for _ in range(10):
            step += 1
            context = StepContext(
                step=step, now_ns=now_ns, waiting_prompts=0, prefill_forecast_tokens=0,
                requests=int_array(numbers), drafts=int_array([2] * LOAD),
                committed=int_array([5] * LOAD), context_tokens=int_array([20] * LOAD),
                tokens_left=int_array([30] * LOAD),
            )  # fmt: skip
            plan = policy.plan(context)
            fate = np.array([rng.random(2) < RIGHT[job.truth] for job in pair])
            matched = int_array(np.cumprod(fate, axis=1).sum(axis=1))
            accepted = np.minimum(matched, plan.verify_lens)
            graded = np.minimum(matched + 1, 2)
            latency_ns = int(1e6 * (10 + 2 * plan.verify_lens.sum()))
            now_ns += latency_ns
            ones = int_array([step] * LOAD)
            outcome = StepOutcome(
                step=step, now_ns=now_ns, latency_ns=latency_ns, decode_requests=LOAD,
                verified_tokens=int(plan.verify_lens.sum()), prefill_tokens=0, context_tokens=40,
                sampled_rows=0, draft_depth=2, requests=int_array(numbers), committed=accepted + 1,
                drafts=DraftOutcomes(
                    request=int_array(numbers), drafted_by=ones - 1, verified_by=ones,
                    proposed=int_array([2] * LOAD), verified=plan.verify_lens, accepted=accepted,
                    start=int_array([0] * LOAD), graded=graded, matched=matched, fresh=graded,
                ),
            )  # fmt: skip
            events += [PlanEvent(0, context, plan), ObserveEvent(0, outcome)]
            policy.observe(outcome)
            tokens = int(accepted.sum()) + LOAD
            run.steps.append(StepRecord(0, LOAD, latency_ns / 1e9, tokens, first_tokens=0))
        for request in numbers:
            policy.forget(request)
            events.append(FreeEvent(0, request))
    return ArmRun(arm, number, run, events)


@pytest.fixture(scope="module")
def found() -> Findings:
    stream = small_stream()
    arms = {f"k{k}": build_policy(ControlConfig(policy=f"static:{k}"), ENGINE) for k in range(3)}
    arms["adaptive"] = adaptive = build_policy(ControlConfig(), ENGINE)
    runs = [make_run(arm, n, policy, stream) for n in range(3) for arm, policy in arms.items()]
    own = [run for run in runs if run.arm == "adaptive"]
    return Findings(
        speeds=Speeds.of(runs, stream),
        headroom=headroom(runs, stream),
        learning=relive(build_policy(ControlConfig(), ENGINE), own, stream),
        slots={slot.label: slot for slot in adaptive.report().slots},
        marginal_gain={LOAD: 0.1},
        jobs=len(stream.jobs),
        differing=tuple(differing_jobs(runs)),
    )


def test_half_of_the_traffic_declares_chat_and_shifts_halfway() -> None:
    stream = build_stream(lambda messages: (1,), seed=3)
    chat = [job for job in stream.jobs if job.label == "chat"]
    others = [job for job in stream.jobs if job.label != "chat"]
    assert len(chat) == len(others)
    assert all(job.label == job.truth for job in others)
    assert {job.truth for job in others} == set(PROMPTS)
    where = [job.key for job in chat].index(stream.shift)
    assert where == len(chat) // 2
    assert {job.truth for job in chat[:where]} == set(BEFORE)
    assert {job.truth for job in chat[where:]} == {"prose"}


def test_the_stream_follows_from_its_seed() -> None:
    one, same, other = (build_stream(lambda m: tuple(map(ord, m[0]["content"])), seed=seed)
                        for seed in (1, 1, 2))  # fmt: skip
    assert one == same
    assert one != other


def test_every_domain_has_prompts_of_its_own() -> None:
    prompts = [prompt for domain in PROMPTS.values() for prompt in domain]
    assert len(PROMPTS) >= 5
    assert all(len(domain) >= 12 for domain in PROMPTS.values())
    assert len(set(prompts)) == len(prompts)


def test_the_fastest_fixed_depth_is_found(found: Findings) -> None:
    # Half of the traffic is accepted at .8, a quarter at .9, a quarter at .1: depth 2 earns most.
    speeds = found.speeds
    assert speeds.static_arms == ("k0", "k1", "k2")
    assert speeds.median("k0") == pytest.approx(200, rel=1e-6)
    assert speeds.best_static() == "k2"


def test_hindsight_picks_a_depth_per_domain(found: Findings) -> None:
    assert found.headroom.depths["new", LOAD] == 0
    assert found.headroom.depths["code", LOAD] == 2
    assert found.headroom.ratio > found.speeds.median("k2") / found.speeds.median("k0")


def test_the_shift_is_followed(found: Findings) -> None:
    learning = found.learning
    assert len(learning.shifts_s) == 3
    assert learning.rounds_s[0] < learning.shifts_s[0] < learning.rounds_s[1]
    late = [token for token in learning.of("chat") if token.shifted]
    assert np.mean([token.right for token in late]) == pytest.approx(0.1, abs=0.06)
    assert late[-1].predicted < 0.5


def test_figures_carry_the_agreed_names(found: Findings) -> None:
    names = {figure.name for figure in figures(found, np.random.default_rng(0))}
    assert {
        "demo/ratio/adaptive/k0",
        "demo/ratio/adaptive/best_static",
        f"demo/ratio/adaptive/k0/c{LOAD}",
        f"demo/ratio/adaptive/best_static/c{LOAD}",
        "demo/headroom",
        f"demo/marginal_gain/c{LOAD}",
        "demo/tokens_to_recover",
        "demo/brier/chat",
        "demo/brier/code",
    } <= names


def test_the_report_says_everything(found: Findings) -> None:
    console = Console(file=StringIO(), width=160)
    print_report(found, figures(found, np.random.default_rng(0)), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("learned", "seen", "k0", "headroom", "margin", "first round", "40 of 40 jobs"):
        assert part in text


def test_the_picture_is_drawn(found: Findings, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(found.learning, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_stalls_and_prompts_do_not_count_as_speed() -> None:
    steps = [StepRecord(0, 1, 0.01, 1, 0)] * 9
    steps += [StepRecord(0, 1, 1.0, 1, 0), StepRecord(0, 1, 0.2, 1, first_tokens=1)]
    run = ArmRun("k0", 0, ClosedLoopRun([], steps), [])
    assert run.speed() == pytest.approx(100)
    assert run.overall_speed == pytest.approx(11 / 1.29)


def test_different_tokens_are_named() -> None:
    job = Job("a", (1,), 4)
    passes = [
        ArmRun(arm, 0, ClosedLoopRun([JobResult(job, 0.0, token_ids=ids)], []), [])
        for arm, ids in (("k0", [1, 2]), ("k1", [1, 3]))
    ]
    assert differing_jobs(passes) == ["a"]
    assert differing_jobs(passes[:1]) == []
