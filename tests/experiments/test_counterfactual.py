"""Counterfactual replay: exact in tokens where they are on record, honest where they are not."""

from __future__ import annotations

from io import StringIO

import msgspec
import numpy as np
import pytest
from rich.console import Console
from tests.integrations.headers import engine_header

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import ConfigEvent, EventQueue, SnapshotEvent
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, int_array
from acclimate.controller.static import StaticPolicy
from acclimate.experiments.counterfactual.command import run_counterfactual
from acclimate.experiments.counterfactual.passes import read_passes
from acclimate.experiments.counterfactual.rerun import learned_time, rerun, speeds_of
from acclimate.experiments.counterfactual.study import Study
from acclimate.experiments.counterfactual.traffic import traffic_of
from acclimate.experiments.offsets import Lookup, ngram_drafts
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.recorded_drafts import RecordedDrafts
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.workload import Workload
from acclimate.integrations.trace_format import SCHEMA, TokensRecord, TraceHeader, encode_line

DEPTH, SEATS = 4, 3
ENGINE = engine_header(
    Capabilities(max_depth=DEPTH, depths=tuple(range(DEPTH + 1)), free_drafts=True, hindsight=True),
    max_model_len=512,
    max_num_seqs=SEATS,
    lookup_min=2,
    lookup_max=3,
)
TIMES = TableTime(
    np.repeat([1, 2, 3], 5),
    np.tile(np.arange(5), 3),
    [10, 10.5, 11, 11.5, 12, 11, 12.5, 14, 15.5, 17, 12, 15, 18, 21, 24],
    prefill_ms_per_token=0.2,
)


class World:
    """Texts that repeat themselves, served by a simulated engine whose every event is kept."""

    def __init__(self, requests: int = 40, *, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.texts = [self._text(rng) for _ in range(requests)]
        lookup = Lookup(2, 3, DEPTH, ENGINE.max_model_len)
        drafts = [ngram_drafts(prompt, output, lookup) for prompt, output in self.texts]
        sizes = [each.length.size for each in drafts]
        self.drafts = RecordedDrafts(
            int_array(np.concatenate([[0], np.cumsum(sizes)[:-1]])),
            np.concatenate([each.length for each in drafts]),
            np.concatenate([each.run for each in drafts]),
            DEPTH,
        )
        self.work = Workload.closed(
            requests,
            prompt_tokens=int_array([len(prompt) for prompt, _ in self.texts]),
            output_tokens=int_array([len(output) for _, output in self.texts]),
            domain=("code", "prose"),
        )
        self.events: list = []
        self.clock = SimulatedClock(now_ns=5_000_000_000)
        self.loop = ControlLoop(
            self.static(0), ENGINE.capabilities, ControlConfig(), clock_ns=self.clock
        )
        self.queue = EventQueue(capacity=100_000)
        self.loop.attach(self.queue)
        self.number = 0

    @staticmethod
    def _text(rng):
        """Return a prompt of phrases and an answer that takes some of them up."""
        phrases = [rng.integers(0, 30, 8).tolist() for _ in range(4)]
        prompt = [token for i in rng.integers(0, 4, 4) for token in phrases[i]]
        ends = rng.integers(2, 9, 8)
        output = [
            t for i, end in zip(rng.integers(0, 4, 8), ends, strict=True) for t in phrases[i][:end]
        ]
        return prompt, output

    @staticmethod
    def static(depth):
        return StaticPolicy(depth, ENGINE.capabilities)

    def serve(self, depth, *, workload=None, concurrency=SEATS, hashes=True):
        """Run one pass and keep what a trace would hold."""
        self.loop.replace_policy(self.static(depth))
        engine = SimulatedEngine(
            self.loop,
            workload or self.work,
            self.drafts,
            TIMES,
            self.clock,
            limits=EngineLimits(max_num_seqs=SEATS),
            concurrency=concurrency,
        )
        run = engine.run()
        self.events += self.queue.take()
        if hashes:
            for row, (prompt, output) in enumerate(self.texts):
                self.events.append(
                    TokensRecord(
                        request=row + 1,
                        prompt=tuple(token + 10**12 for token in prompt),
                        output=tuple(token + 10**12 for token in output),
                    )
                )
        return run

    def write(self, path):
        header = TraceHeader(
            schema=SCHEMA, trace="t", segment=0, acclimate_version="0", started="now",
            engine=ENGINE, token_hashes=True,
        )  # fmt: skip
        path.write_bytes(b"".join(encode_line(line) for line in [header, *self.events]))
        return path


def test_a_pass_holds_what_was_served():
    world = World()
    world.serve(2)
    passes = read_passes(world.events)
    assert [one.policy for one in passes] == ["static:2"]
    (one,) = passes
    assert one.closed and one.whole
    assert [request.tokens for request in one.served] == world.work.output_tokens.tolist()
    assert {request.seats for request in one.requests} == {SEATS}
    assert {request.info.domain for request in one.requests} == {"code", "prose"}


@pytest.mark.parametrize("hashes", [True, False])
def test_lengths_of_answers_need_no_hashes(hashes):
    world = World(6)
    run = world.serve(3, hashes=hashes)
    (one,) = read_passes(world.events)
    assert [request.tokens for request in one.requests] == world.work.output_tokens.tolist()
    tpot_s = [request.tpot_s for request in one.requests]
    np.testing.assert_allclose(tpot_s, run.tpot_s, rtol=1e-6)


@pytest.mark.parametrize("recorded", [0, 2, 4])
@pytest.mark.parametrize("wanted", [0, 1, 4])
def test_another_depth_is_exact_in_tokens_and_steps(recorded, wanted):
    world = World()
    world.serve(recorded)
    (one,) = read_passes(world.events)
    traffic = traffic_of(one, ENGINE)
    assert traffic.record_share == 1.0
    predicted = rerun(traffic, world.static(wanted), ENGINE, TIMES)
    truth = World().serve(wanted)
    for name in ("steps", "committed", "verified", "accepted"):
        assert getattr(predicted.totals, name) == getattr(truth.totals, name)
    assert predicted.totals.duration_ms == pytest.approx(truth.totals.duration_ms)


def test_open_loop_arrivals_come_at_their_recorded_times():
    world = World()
    arrivals = 5.0 + np.cumsum(np.random.default_rng(1).exponential(0.4, len(world.work)))
    open_work = Workload.open(
        arrivals,
        prompt_tokens=world.work.prompt_tokens,
        output_tokens=world.work.output_tokens,
        domain=world.work.domain,
    )
    world.serve(1, workload=open_work, concurrency=None)
    (one,) = read_passes(world.events)
    assert not one.closed
    again = rerun(traffic_of(one, ENGINE), world.static(4), ENGINE, TIMES)
    np.testing.assert_allclose(again.arrival_s, arrivals, atol=1e-6)
    other = World()
    truth = other.serve(4, workload=open_work, concurrency=None)
    np.testing.assert_allclose(np.nanmax(again.tpot_s), np.nanmax(truth.tpot_s), rtol=1e-6)


def test_a_concurrency_that_rises_and_falls_is_held_again():
    """The next concurrency holds when the last request of the one before is sent."""
    world = World(12)
    jobs = [1] * 4 + [3] * 5 + [1] * 3

    def serve(depth):
        world.loop.replace_policy(world.static(depth))
        engine = SimulatedEngine(world.loop, world.work, world.drafts, TIMES, world.clock)
        sent = 0
        while True:
            while sent < 12 and engine.in_system < jobs[sent]:
                engine.submit(sent, world.clock.now_ns)
                sent += 1
            if not engine.in_system:
                return engine.result()
            world.clock.now_ns += engine.begin()
            engine.finish()

    serve(1)
    world.events += world.queue.take()
    (one,) = read_passes(world.events)
    assert one.closed
    truth = serve(4)
    again = rerun(traffic_of(one, ENGINE), world.static(4), ENGINE, TIMES)
    loads = truth.steps.decode_requests
    assert again.steps.decode_requests.sum() == pytest.approx(loads.sum(), rel=0.15)
    assert again.steps.decode_requests.max() == loads.max() == 3
    for load in (1, 3):
        share = (again.steps.decode_requests == load).mean()
        assert share == pytest.approx((loads == load).mean(), abs=0.1)


def test_without_hashes_drafts_are_drawn_as_logged():
    world = World(120)
    world.serve(2, hashes=False)
    (one,) = read_passes(world.events)
    traffic = traffic_of(one, ENGINE)
    assert traffic.record_share == 0.0
    for depth in (0, 1, 4):
        predicted = rerun(traffic, world.static(depth), ENGINE, TIMES)
        truth = World(120).serve(depth)
        assert predicted.totals.steps == pytest.approx(truth.totals.steps, rel=0.1)
        assert predicted.totals.committed == truth.totals.committed


def test_part_of_the_record_is_used_as_far_as_it_goes():
    world = World()
    world.serve(2)
    kept = [
        event for event in world.events
        if not isinstance(event, TokensRecord) or event.request <= 10
    ]  # fmt: skip
    traffic = traffic_of(read_passes(kept)[0], ENGINE)
    share = world.work.output_tokens[:10].sum() / world.work.tokens
    assert traffic.record_share == pytest.approx(share)
    assert rerun(traffic, world.static(1), ENGINE, TIMES).finished.all()


def test_step_times_are_learned_from_the_trace():
    world = World()
    for depth in (0, 2, 4):
        world.serve(depth)
    passes = read_passes(world.events)
    times, measured = learned_time(passes, ENGINE)
    for verified in (0, 6, 12):
        assert measured[3, verified] >= 3
        load = StepMakeUp(3, verified, context_tokens=150, draft_depth=DEPTH)
        assert times.step_ms(load) == pytest.approx(TIMES.step_ms(load), rel=0.05)


def test_requests_that_never_end_are_left_out_and_counted():
    world = World()
    world.serve(2)
    cut = world.events[: len(world.events) // 2]
    (one,) = read_passes(cut)
    assert not one.whole
    traffic = traffic_of(one, ENGINE)
    assert traffic.left_out == len(one.requests) - len(one.served) > 0


def test_a_change_of_policy_under_way_leaves_no_whole_pass():
    world = World()
    world.serve(2)
    config, snapshot = (
        next(event for event in world.events if isinstance(event, kind))
        for kind in (ConfigEvent, SnapshotEvent)
    )
    middle = len(world.events) // 2
    seq = world.events[middle].seq
    swapped = msgspec.structs.replace(snapshot, policy="static:9", seq=seq)
    passes = read_passes([config, *world.events[:middle], swapped, *world.events[middle:]])
    assert [one.whole for one in passes] == [False, False]


def test_the_command_answers_and_says_what_it_rests_on(tmp_path):
    world = World()
    for depth in (2, 0, 4, 2):
        world.serve(depth)
    path = world.write(tmp_path / "trace.jsonl")
    screen = StringIO()
    figures = run_counterfactual(
        path, arms=["k0", "k4", "k1"], recorded="k2", json=tmp_path / "figures.json",
        console=Console(file=screen, width=160),
    )  # fmt: skip
    of = {figure.name: figure for figure in figures}
    assert of["counterfactual/record_share"].value == 1.0
    for arm in ("k0", "k4"):
        assert abs(of[f"counterfactual/{arm}/ratio_error"].value) < 0.02
        assert abs(of[f"counterfactual/{arm}/held_out_ratio_error"].value) < 0.1
        assert of[f"counterfactual/{arm}/renewal_ratio_error"].value is not None
    assert "counterfactual/k1/ratio_error" not in of
    assert of["counterfactual/recorded/steps_error"].value == 0.0
    assert "on record for every request" in screen.getvalue()
    written = msgspec.json.decode((tmp_path / "figures.json").read_bytes())
    assert len(written["figures"]) == len(figures)


def test_the_command_names_the_approximation(tmp_path):
    world = World()
    world.serve(2, hashes=False)
    screen = StringIO()
    run_counterfactual(
        world.write(tmp_path / "t.jsonl"), arms=["k1"], console=Console(file=screen, width=160)
    )
    assert "renewal approximation, 0% on record" in screen.getvalue()


def test_what_cannot_be_answered_is_refused(tmp_path):
    world = World(6)
    world.serve(2)
    passes = read_passes(world.events)
    with pytest.raises(ValueError, match="recorded arm must be one of k2, got 'k7'"):
        Study(passes, ENGINE, recorded="k7")
    with pytest.raises(ValueError, match="a request that ended, got none"):
        Study([], ENGINE)
    with pytest.raises(ValueError, match="arm must be"):
        run_counterfactual(world.write(tmp_path / "t.jsonl"), arms=["nobody"])


def test_a_configuration_is_an_arm(tmp_path):
    world = World(6)
    world.serve(2)
    (tmp_path / "careful.json").write_text('{"policy": "static:1"}')
    figures = run_counterfactual(
        world.write(tmp_path / "t.jsonl"), arms=[], configs=[tmp_path / "careful.json"],
        console=Console(file=StringIO()),
    )  # fmt: skip
    assert "counterfactual/careful/ratio" in {figure.name for figure in figures}
    speeds = speeds_of(world.serve(1))
    assert speeds.tokens == world.work.tokens
