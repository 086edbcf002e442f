"""A trace of a peer is decided again by ``acclimate replay --verify``, without being told how."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tests.controller.toy_engine import ToyEngine
from tests.experiments.peers.stage import NGRAM, KnownTruth
from tests.integrations.headers import engine_header

from acclimate.controller.config import ControlConfig, TraceConfig
from acclimate.controller.events import EventQueue
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import RequestInfo, StepContext, StepOutcome, StepPlan
from acclimate.controller.reports import Alarm
from acclimate.experiments.arms import NEED_TRUTH, arm_names, arm_policy, replay_factories
from acclimate.experiments.replay.command import run_replay
from acclimate.experiments.replay.verify import verify
from acclimate.integrations.trace import TraceSink

_HEADER = engine_header(NGRAM)
_TRUTH = KnownTruth((0.8, 0.6, 0.4, 0.3, 0.2), change_points_ns=(1_000_000_000,))


class _Looped:
    """A control loop where the toy engine expects a policy."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self.loop = ControlLoop(policy, NGRAM, ControlConfig(), clock_ns=lambda: 0)
        self.queue = EventQueue(capacity=100_000)
        self.loop.attach(self.queue)

    def admit(self, request: RequestInfo) -> None:
        self.loop.admit(request)

    def plan(self, context: StepContext) -> StepPlan:
        plan = self.loop.plan(context)
        assert plan is not None
        return plan

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        self.loop.observe(outcome)
        return ()


@pytest.mark.parametrize("arm", arm_names())
def test_a_trace_of_every_arm_verifies(arm: str, tmp_path: Path) -> None:
    looped = _Looped(arm_policy(arm, ControlConfig(), NGRAM, _TRUTH))
    engine = ToyEngine(
        looped,  # type: ignore[arg-type]
        NGRAM,
        lambda step: (0.8, 0.7, 0.6, 0.5, 0.4),
        lambda n, m, d: 10.0 + 0.5 * m,
        length=lambda rng: int(rng.integers(0, 6)),
    )
    engine.run(lambda step: 1 + step // 50 % 5, 300)
    sink = TraceSink(TraceConfig(path=str(tmp_path / "trace.jsonl")), _HEADER, looped.queue)
    sink.start()
    sink.close()
    quiet = Console(quiet=True)
    if arm == "oracle":
        assert not run_replay(sink.path, verify=True, console=quiet)
        assert verify(sink.path, policies=replay_factories()).skipped == {
            "unknown policy 'oracle'": 300
        }
        return
    assert run_replay(sink.path, verify=True, console=quiet)


def test_what_the_registry_replays_is_every_peer_but_the_oracle() -> None:
    known = set(replay_factories())
    assert known == set(arm_names()) - {"adaptive", "k0", "oracle"}
    assert "clairvoyant" in known & set(NEED_TRUTH)
    for name, factory in replay_factories().items():
        assert factory(ControlConfig(), NGRAM).name == name
