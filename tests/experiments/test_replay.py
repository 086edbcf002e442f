"""Replaying a trace recomputes what was decided, and says where it does not.

Run as a script, this file writes the golden trace of the current schema anew.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.integrations.headers import engine_header

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig, TraceConfig
from acclimate.controller.events import (
    AlarmEvent,
    ConfigEvent,
    Event,
    EventQueue,
    GapEvent,
    GuardEvent,
    ObserveEvent,
    PlanEvent,
    SnapshotEvent,
)
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
    Capabilities,
    Change,
    DraftOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.controller.reports import Alarm, Report
from acclimate.experiments.replay.verify import verify, verify_events
from acclimate.experiments.replay.verify_result import VerifyResult
from acclimate.integrations.trace import TraceSink
from acclimate.integrations.trace_format import (
    SCHEMA,
    TokensRecord,
    TraceHeader,
    decode_line,
    encode_line,
)
from acclimate.integrations.trace_reader import read_trace

_GOLDEN = Path(__file__).parents[1] / "data" / "trace-schema-1.jsonl"
_ENGINE = Capabilities(
    max_depth=5, depths=(0, 1, 2, 3, 4, 5), free_drafts=True, hindsight=True, honours_depth=True
)
_MODEL_DRAFTER = Capabilities(max_depth=5, depths=(0, 1, 3, 5))
_UNIFORM = Capabilities(max_depth=5, depths=(0, 2, 5), per_request=False, uniform_only=True)
_HEADER = engine_header(_ENGINE, lookup_min=2, lookup_max=4)


class _Counting:
    """The smallest policy that learns: verify as many as were accepted of the last draft, plus one."""

    def __init__(self, config: ControlConfig, capabilities: Capabilities) -> None:
        self.name = "counting"
        self._last: dict[int, int] = {}
        self._total = np.zeros(1)

    def admit(self, request: RequestInfo) -> None:
        self._last[request.request] = 0

    def plan(self, context: StepContext) -> StepPlan:
        wish = int_array([self._last.get(int(r), 0) + 1 for r in context.requests])
        lens = np.minimum(wish, context.drafts)
        return StepPlan(
            step=context.step,
            draft_depth=5,
            verify_lens=lens,
            depth=int(lens.max(initial=0)),
            reason=Reason.PRICE,
            price_tokens_per_s=float(self._total[0]) / 3.0,
        )

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        drafts = outcome.drafts
        for request, accepted in zip(drafts.request.tolist(), drafts.accepted, strict=True):
            if request in self._last:
                self._last[request] = min(int(accepted), 4)
        self._total += float(drafts.accepted.sum())
        if outcome.step % 40:
            return ()
        return (
            Alarm(
                step=outcome.step,
                slot=0,
                label="all",
                signal="every 40 steps",
                before=0.5,
                after=float(self._total[0]) / 7.0,
                graded_tokens=1,
            ),
        )

    def declare(self, change: Change) -> None:
        self._total[:] = 0.0

    def forget(self, request: int) -> None:
        self._last.pop(request, None)

    def report(self) -> Report:
        return Report()

    def state(self) -> dict[str, Any]:
        return {"last": dict(self._last), "total": self._total.copy()}

    def load(self, state: dict[str, Any]) -> None:
        self._last, self._total = dict(state["last"]), state["total"].copy()


_POLICIES = {"counting": _Counting}
_LEARNING = ["counting", "adaptive"]


class _Engine:
    """A scripted engine: requests of two domains come and go, drafts match or not by a seed."""

    def __init__(self, loop: ControlLoop, seed: int = 0) -> None:
        self.loop = loop
        self.now_ns = 0
        self._rng = np.random.default_rng(seed)
        self._step = 0
        self._drafted = 5
        self._born = 0
        self._left: dict[int, int] = {}
        self._done: dict[int, int] = {}

    def clock_ns(self) -> int:
        return self.now_ns

    def run(self, steps: int, act: Callable[[int], None] = lambda step: None) -> None:
        for _ in range(steps):
            self._step += 1
            act(self._step)
            self._advance()

    def _advance(self) -> None:
        rng = self._rng
        while len(self._left) < 1 + (self._step // 60) % 6:
            self._born += 1
            self._left[self._born] = int(rng.integers(20, 60))
            self._done[self._born] = 0
            self.loop.admit(
                RequestInfo(
                    request=self._born,
                    prompt_tokens=30,
                    max_tokens=60,
                    domain=("code", "prose")[self._born % 2],
                )
            )
        numbers = int_array(list(self._left))
        left = int_array(list(self._left.values()))
        done = int_array([self._done[number] for number in self._left])
        drafts = np.where(rng.random(numbers.size) < 0.7, rng.integers(1, 6, numbers.size), 0)
        drafts = np.minimum(drafts, self._drafted)
        drafts = np.minimum(drafts, np.maximum(left - 1, 0)).astype(np.int64)
        context = StepContext(
            step=self._step,
            now_ns=self.now_ns,
            waiting_prompts=0,
            prefill_forecast_tokens=0,
            requests=numbers,
            drafts=drafts,
            committed=done,
            context_tokens=30 + done,
            tokens_left=left,
        )
        plan = self.loop.plan(context)
        verified = drafts if plan is None else plan.verify_lens
        self._drafted = 5 if plan is None else plan.draft_depth
        q = np.where(numbers % 2 == 0, 0.8, 0.4)[:, None]
        run = np.logical_and.accumulate(rng.random((numbers.size, 5)) < q, axis=1).sum(axis=1)
        fate = np.minimum(run, drafts)
        known = np.minimum(verified + 1, drafts)
        accepted = np.minimum(fate, verified)
        graded = np.minimum(fate + 1, known)
        latency_ns = int(
            1e6 * (5 + 0.3 * numbers.size + 0.5 * int(verified.sum()) + 0.1 * rng.random())
        )
        self.now_ns += latency_ns
        committed = np.minimum(accepted + 1, left)
        self.loop.observe(
            StepOutcome(
                step=self._step,
                now_ns=self.now_ns,
                latency_ns=latency_ns,
                decode_requests=numbers.size,
                verified_tokens=int(verified.sum()),
                prefill_tokens=0,
                context_tokens=int((30 + done).sum()),
                sampled_rows=0,
                draft_depth=self._drafted,
                requests=numbers,
                committed=committed,
                drafts=DraftOutcomes(
                    request=numbers,
                    drafted_by=np.full(numbers.size, self._step - 1),
                    verified_by=np.where(verified > 0, self._step, -1),
                    proposed=drafts,
                    verified=verified,
                    accepted=accepted,
                    start=np.zeros_like(numbers),
                    graded=graded,
                    matched=np.minimum(fate, graded),
                    fresh=graded,
                ),
                stock=plan is None,
            )
        )
        for number, count in zip(numbers.tolist(), committed.tolist(), strict=True):
            self._left[number] -= count
            self._done[number] += count
            if self._left[number] <= 0:
                del self._left[number], self._done[number]
                self.loop.forget(number)


def _policy(name: str, config: ControlConfig, capabilities: Capabilities = _ENGINE) -> Policy:
    if name == "counting":
        return _Counting(config, capabilities)
    return build_policy(config.model_copy(update={"policy": name}), capabilities)


def _engine(
    name: str, config: ControlConfig | None = None, capabilities: Capabilities = _ENGINE
) -> _Engine:
    config = config or ControlConfig(policy="static:2" if name == "counting" else name, seed=5)
    ticks: list[_Engine] = []
    loop = ControlLoop(
        _policy(name, config, capabilities),
        capabilities,
        config,
        clock_ns=lambda: ticks[0].now_ns if ticks else 0,
    )
    ticks.append(_Engine(loop))
    return ticks[0]


def _log(
    name: str, steps: int = 400, act: Callable[[_Engine, int], None] | None = None
) -> list[Event]:
    engine = _engine(name)
    queue = EventQueue(capacity=1_000_000)
    engine.loop.attach(queue)
    engine.run(steps, (lambda step: act(engine, step)) if act else (lambda step: None))
    return queue.take()


def _verified(events: Sequence[Event]) -> VerifyResult:
    return verify_events(events, _ENGINE, policies=_POLICIES)


def _through_disk(events: Sequence[Event], path: Path, **config: Any) -> Path:
    queue = EventQueue(capacity=1_000_000)
    sink = TraceSink(TraceConfig(path=str(path), **config), _HEADER, queue)
    for event in events:
        queue.put(event)
    sink.start()
    sink.close()
    return sink.path


@pytest.mark.parametrize("name", [*_LEARNING, "static:3"])
def test_every_decision_is_recomputed(name: str, tmp_path: Path) -> None:
    path = _through_disk(_log(name), tmp_path / "trace.jsonl")
    result = verify(path, policies=_POLICIES)
    assert result.first_difference is None
    assert result.decisions == result.compared == result.identical == 400
    assert result.alarms == result.identical_alarms
    assert result.holds
    assert result.policies == Counter({name: 400})


@pytest.mark.parametrize("capabilities", [_MODEL_DRAFTER, _UNIFORM], ids=["model", "uniform"])
def test_every_depth_that_dwell_and_lower_bounds_decide_is_recomputed(
    capabilities: Capabilities,
) -> None:
    engine = _engine("adaptive", capabilities=capabilities)
    queue = EventQueue(capacity=1_000_000)
    engine.loop.attach(queue)
    engine.run(1_000)
    assert engine.loop.counters.depth_switches > 0
    assert engine.loop.counters.faults == 0
    result = verify_events([decode_line(encode_line(e)) for e in queue.take()], capabilities)
    assert result.first_difference is None
    assert result.identical == result.compared == 1_000


@pytest.mark.parametrize("name", _LEARNING)
def test_a_snapshot_does_not_change_after_it_was_taken(name: str) -> None:
    """A sink encodes it later, in another thread, while the policy learns on."""
    engine = _engine(name)
    engine.run(50)
    snapshot = SnapshotEvent(1, name, engine.loop.policy.state())
    before = encode_line(snapshot)
    engine.run(50)
    assert encode_line(snapshot) == before


@pytest.mark.parametrize("name", _LEARNING)
def test_loading_a_snapshot_does_not_tie_two_policies_together(name: str) -> None:
    engine = _engine(name)
    engine.run(50)
    snapshot = SnapshotEvent(1, name, engine.loop.policy.state())
    before = encode_line(snapshot)
    other = _engine(name)
    other.loop.policy.load(snapshot.state)
    other.run(50)
    assert encode_line(snapshot) == before


@pytest.mark.parametrize("name", _LEARNING)
def test_one_flipped_acceptance_changes_a_later_decision(name: str) -> None:
    events = _log(name)
    at = next(
        index
        for index, event in enumerate(events)
        if isinstance(event, ObserveEvent) and event.outcome.drafts.accepted.any()
    )
    observed = events[at]
    assert isinstance(observed, ObserveEvent)
    drafts = observed.outcome.drafts
    row = int(drafts.accepted.argmax())

    def less(values: Any) -> Any:
        values = values.copy()
        values[row] = 0
        return values

    flipped = msgspec.structs.replace(
        drafts, accepted=less(drafts.accepted), matched=less(drafts.matched)
    )
    outcome = msgspec.structs.replace(observed.outcome, drafts=flipped)
    changed = [*events[:at], ObserveEvent(observed.seq, outcome), *events[at + 1 :]]
    result = _verified(changed)
    assert result.identical < result.compared
    assert result.first_difference is not None
    first_seq = int(result.first_difference.split()[1].rstrip(","))
    assert first_seq > observed.seq
    assert " was " in result.first_difference and " here" in result.first_difference


def test_a_changed_decision_is_named() -> None:
    events = _log("static:2", steps=5)
    at = next(i for i, event in enumerate(events) if isinstance(event, PlanEvent))
    plan = events[at]
    assert isinstance(plan, PlanEvent)
    wrong = msgspec.structs.replace(plan.decision, depth=1, reason="price")
    events[at] = PlanEvent(plan.seq, plan.context, wrong)
    result = _verified(events)
    assert result.identical == result.compared - 1
    assert not result.holds
    assert result.first_difference == (
        f"event {plan.seq}, step 1, static:2 at 1 decoding requests: "
        "depth was 1, is 2 here; reason was price, is fixed here"
    )


def test_prices_agree_to_a_billionth() -> None:
    events = _log("counting", steps=50)

    def scaled(factor: float) -> list[Event]:
        return [
            PlanEvent(
                e.seq,
                e.context,
                msgspec.structs.replace(
                    e.decision, price_tokens_per_s=e.decision.price_tokens_per_s * factor
                ),
            )
            if isinstance(e, PlanEvent)
            else e
            for e in events
        ]

    assert _verified(scaled(1 + 1e-10)).holds
    assert not _verified(scaled(1 + 1e-8)).holds


def test_alarms_are_compared() -> None:
    events = _log("counting", steps=100)
    assert _verified(events).identical_alarms == 2
    without = [e for e in events if not isinstance(e, AlarmEvent)]
    result = _verified(without)
    assert result.alarms == 2 and result.identical_alarms == 0
    assert "was not logged" in str(result.first_difference)
    twice = [x for e in events for x in ([e, e] if isinstance(e, AlarmEvent) else [e])]
    assert "an alarm was logged that is not raised here" in str(_verified(twice).first_difference)


@pytest.mark.parametrize("name", _LEARNING)
def test_verification_resumes_at_the_snapshot_behind_a_gap(name: str, tmp_path: Path) -> None:
    engine = _engine(name)
    queue = EventQueue(capacity=100)
    engine.loop.attach(queue)
    events: list[Event] = []

    def drain(step: int) -> None:
        if not 60 <= step < 200:
            events.extend(queue.take())

    engine.run(400, drain)
    events.extend(queue.take())
    gaps = [event for event in events if isinstance(event, GapEvent)]
    assert len(gaps) == 1 and gaps[0].lost == queue.lost > 0
    after = events[events.index(gaps[0]) :]
    assert any(isinstance(event, SnapshotEvent) for event in after)
    result = verify(_through_disk(events, tmp_path / "trace.jsonl"), policies=_POLICIES)
    assert result.first_difference is None
    assert result.identical == result.compared > 200
    assert result.decisions < 400


@pytest.mark.parametrize("name", _LEARNING)
def test_every_segment_verifies_alone(name: str, tmp_path: Path) -> None:
    queue = EventQueue(capacity=1_000_000)
    engine = _engine(name)
    config = TraceConfig(path=str(tmp_path / "trace.jsonl"), rotate_mib=0.05, keep_segments=100)
    sink = TraceSink(config, _HEADER, queue)
    sink.start()
    engine.loop.attach(queue)

    def wait(step: int) -> None:
        while step % 20 == 0 and len(queue):
            sink._stop.wait(0.005)

    engine.run(300, wait)
    sink.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 2
    whole = verify(sink.path, policies=_POLICIES)
    assert whole.first_difference is None
    assert whole.identical == whole.compared
    alone = [verify(file, policies=_POLICIES) for file in files if file != sink.path]
    assert all(result.first_difference is None for result in alone)
    assert all(result.identical == result.compared for result in alone)
    assert 0 < sum(result.decisions for result in alone) < whole.decisions


def test_guard_trips_and_reloads_replay() -> None:
    def act(engine: _Engine, step: int) -> None:
        loop = engine.loop
        if step == 50:
            loop.violation("made up")
        if step == 120:
            loop.reload(ControlConfig(policy="static:1", seed=5))
        if step == 160:
            loop.declare(Change(kind="draft"))
        if step == 200:
            loop.replace_policy(_policy("static:3", loop.config))
        if step == 240:
            loop.replace_policy(_Counting(loop.config, _ENGINE))

    result = _verified(_log("counting", 300, act))
    assert result.first_difference is None
    assert set(result.policies) == {"counting", "static:1", "static:3"}
    assert result.compared == result.decisions == 300 - 70
    assert result.events["guard"] >= 2


def test_decisions_are_skipped_while_the_policy_is_in_doubt() -> None:
    def act(engine: _Engine, step: int) -> None:
        policy = engine.loop.policy
        assert isinstance(policy, _Counting)
        if step == 30:
            policy.observe = _raise  # type: ignore[method-assign]
        if step == 31:
            del policy.observe  # type: ignore[method-assign]

    log = _log("counting", 2500, act)
    assert any(isinstance(event, GuardEvent) and event.stock == "error" for event in log)
    result = _verified(log)
    assert result.first_difference is None
    assert result.identical == result.compared > 500


def _raise(outcome: StepOutcome) -> Sequence[Alarm]:
    raise RuntimeError("half learned")


def test_an_unknown_policy_is_skipped_by_name() -> None:
    def act(engine: _Engine, step: int) -> None:
        if step == 100:
            engine.loop.replace_policy(_policy("static:3", engine.loop.config))

    result = verify_events(_log("counting", 200, act), _ENGINE)
    assert result.skipped == Counter({"unknown policy 'counting'": 99})
    assert result.identical == result.compared == 101


def test_a_trace_never_imports_what_it_names() -> None:
    config = ControlConfig(policy="antigravity:fly").model_dump()
    events: list[Event] = [
        ConfigEvent(1, 1, config),
        SnapshotEvent(2, "antigravity:fly", {}),
        *_log("static:1", 3)[2:],
    ]
    result = verify_events(events, _ENGINE)
    assert "antigravity" not in sys.modules
    assert result.skipped == Counter({"unknown policy 'antigravity:fly'": 3})
    assert result.identical_share is None
    assert not result.holds


def test_a_configuration_of_another_release_is_named() -> None:
    events = _log("static:1", 3)
    events[0] = ConfigEvent(1, 1, {"policy": "static:1", "added_later": 1})
    (reason,) = _verified(events).skipped
    assert reason.startswith("configuration not understood: configuration key 'added_later'")


def test_what_stands_before_the_first_snapshot_is_skipped() -> None:
    events = [event for event in _log("static:1", 3) if not isinstance(event, SnapshotEvent)]
    assert _verified(events).skipped == Counter({"before the first snapshot": 3})


def test_the_result_as_figures() -> None:
    figures = {figure.name: figure for figure in _verified(_log("counting", 100)).figures()}
    assert figures["replay/identical_share"].value == 1.0
    assert figures["replay/identical_share"].n == 100
    assert figures["replay/skipped_decisions"].value == 0


def test_the_golden_trace_of_schema_1_still_loads() -> None:
    """A file of this schema must load forever, whatever became of the policy that wrote it."""
    trace = read_trace(_GOLDEN)
    events = list(trace)
    kinds = Counter(str(event.__struct_config__.tag) for event in events)
    assert trace.header.schema == 1
    assert trace.header.engine.capabilities == _ENGINE
    assert kinds["plan"] == kinds["observe"] == 80
    assert kinds["snapshot"] == 2
    assert trace.truncated_lines == 0
    plans = [event.decision for event in events if isinstance(event, PlanEvent)]
    assert [plan.step for plan in plans] == list(range(1, 81))
    assert plans[0].verify_lens.dtype == np.int64
    assert verify(_GOLDEN).decisions == 80


def test_fixed_decisions_of_the_golden_trace_hold_forever() -> None:
    """Those of a learning policy may change with it, or its state may no longer be loadable."""
    events = [event for event in read_trace(_GOLDEN) if not isinstance(event, TokensRecord)]
    at = next(
        index
        for index, event in enumerate(events)
        if isinstance(event, SnapshotEvent) and event.policy == "static:2"
    )
    result = verify_events([events[0], *events[at:]], _ENGINE)
    assert result.identical == result.compared == 40


def write_golden(path: Path = _GOLDEN) -> None:
    """Write the golden trace anew: only for a new schema, to a new file."""
    config = ControlConfig.read({"seed": 5, "learn": {"max_slots": 4}})
    engine = _engine("adaptive", config)
    queue = EventQueue()
    engine.loop.attach(queue)
    engine.run(40)
    engine.loop.replace_policy(_policy("static:2", config))
    engine.run(40)
    header = TraceHeader(
        schema=SCHEMA,
        trace="0" * 16,
        segment=0,
        acclimate_version="0.1.0",
        started="2026-01-01T00:00:00.000+00:00",
        engine=_HEADER,
    )
    path.write_bytes(b"".join(map(encode_line, [header, *queue.take()])))


if __name__ == "__main__":
    write_golden()
