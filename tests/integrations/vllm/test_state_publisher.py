"""What a bridge shows of its engine: load at once, beliefs once a second, nothing when it failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace as Object
from typing import Any

import pytest

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.engine_state import EngineState, Load, Place
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities
from acclimate.integrations.state_page import StatePage, read_states
from acclimate.integrations.vllm.bridge import EngineBridge
from acclimate.integrations.vllm.flight import EngineFacts
from acclimate.integrations.vllm.state_publisher import INTERVAL_NS, StatePublisher

CHAIN = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), free_drafts=True, hindsight=True)


def _request(name: str) -> Any:
    return Object(
        request_id=name, num_prompt_tokens=50, max_tokens=64, sampling_params=None,
        num_computed_tokens=50, num_output_tokens=1, is_prefill_chunk=False,
        spec_token_ids=[7, 8, 9], prompt_token_ids=[1] * 50, output_token_ids=[2],
    )  # fmt: skip


class Served:
    """A bridge on a clock that a test moves, and its page."""

    def __init__(self, folder: Path, policy: str = "adaptive") -> None:
        self.now_ns = 0
        self.lines: list[str] = []
        self.folder = folder
        config = ControlConfig(policy=policy)
        loop = ControlLoop(build_policy(config, CHAIN), CHAIN, config, clock_ns=lambda: self.now_ns)
        self.bridge = EngineBridge(
            loop,
            EngineFacts(depth=4, max_model_len=200),
            trust_domain="bank",
            place=Place(engine="e-0", trust_domains=("bank",), seats=4),
            publisher=StatePublisher(StatePage("e-0", folder), self.lines.append),
        )

    @property
    def seen(self) -> EngineState | None:
        states = read_states("e", self.folder)
        return states[0].state if states else None


def test_load_is_shown_at_once_and_the_rest_once_a_second(tmp_path: Path) -> None:
    served = Served(tmp_path)
    first = served.seen
    assert first is not None and first.place.trust_domains == ("bank",)
    assert (first.load.running, first.load.batch_domains, first.slots) == (0, (), ())
    requests = [_request("a"), _request("b")]
    for request in requests:
        served.bridge.admit(request)
    served.bridge.begin(requests, waiting_prompts=3)
    seen = served.seen
    assert seen is not None and (seen.load.running, seen.load.waiting) == (2, 3)
    assert seen.load.batch_domains == () and seen.load.context_tokens == 0.0  # a second old
    served.now_ns = INTERVAL_NS + 1
    served.bridge.finish(more_work=True)
    seen = served.seen
    assert seen is not None and seen.load.batch_domains == ("bank",)
    assert seen.load.context_tokens == 51.0
    assert seen == served.bridge.engine_state()
    for request in requests:
        served.bridge.free(request)
    served.bridge.finish(more_work=False)
    assert (seen := served.seen) is not None and seen.load.running == seen.load.waiting == 0


def test_asking_changes_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path)
    request = _request("a")
    served.bridge.admit(request)
    served.bridge.begin([request])
    policy = served.bridge.loop.policy
    before = repr(policy.state())
    assert served.bridge.engine_state() == served.bridge.engine_state()
    assert repr(policy.state()) == before


def test_a_policy_that_fails_to_tell_and_a_bridge_that_failed_show_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path)
    assert served.seen is not None
    served.bridge.fail("begin", RuntimeError("broken"))
    assert served.seen is None and list(tmp_path.iterdir()) == []
    again = Served(tmp_path)
    again.bridge.loop.policy.beliefs = object()
    again.now_ns = 2 * INTERVAL_NS
    again.bridge.finish(more_work=True)
    assert again.seen is None
    again.now_ns = 4 * INTERVAL_NS
    again.bridge.finish(more_work=True)
    (line,) = again.lines
    assert line.startswith("state is not shown any more: AttributeError: ")


def test_a_state_that_is_too_large_and_a_page_that_cannot_be_closed_are_said_and_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    page = StatePage("e-0", tmp_path)
    publisher = StatePublisher(page, lines.append)
    large = EngineState(place=Place(engine="x" * 300_000), load=Load())
    for second in range(3):
        publisher.step(lambda: large, second * INTERVAL_NS)
    assert page.lost == 3 and len(lines) == 1 and "too large" in lines[0]
    with monkeypatch.context() as patched:
        patched.setattr(page, "close", lambda: (_ for _ in ()).throw(BufferError("exported")))
        publisher.close()
    assert publisher.faults == 1
    page.close()


def test_an_engine_whose_own_rule_acts_says_why(tmp_path: Path) -> None:
    served = Served(tmp_path, "static:2")
    served.bridge.loop.violation("drafted too much")
    assert served.bridge.engine_state().blocked_by == "violation"
    served.bridge.close()
    served.bridge.close()
