"""The bridge in the engine's real asynchronous scheduler, which no CPU engine turns on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _fly(r: Any, steps: int, accept: Any = 4) -> list[Any]:
    """Schedule each step before the one before it has landed."""
    outputs = []
    for _ in range(steps):
        outputs.append(r.launch())
        if len(r.flights) > 1:
            r.land(accept)
    return outputs


def test_depth_and_verify_lengths_act_in_the_right_step(rig: Callable[..., Any]) -> None:
    r = rig([(3, 0), (1, 2), (4, 4), (2, 2), (2, 2)], asynchronous=True)
    r.add("a")
    outputs = _fly(r, 5)
    assert [o.num_spec_tokens_to_schedule for o in outputs] == [3, 1, 4, 2, 2]
    # What step n drafted is at hand in step n + 1, as placeholders, and cut by that step's plan.
    assert [c.drafts.tolist() for c in r.policy.contexts] == [[], [3], [1], [4], [2]]
    spec = [o.scheduled_spec_decode_tokens.get("a", []) for o in outputs]
    assert spec == [[], [-1, -1], [-1], [-1, -1], [-1, -1]]


def test_late_outcomes_credit_the_plans_that_made_them(rig: Callable[..., Any]) -> None:
    r = rig([(3, 0), (1, 2), (4, 4), (2, 2), (2, 2)], asynchronous=True)
    r.add("a")
    _fly(r, 5, accept=1)
    r.land(1)
    rows = [
        [int(getattr(o.drafts, name)[0]) for name in
         ("drafted_by", "verified_by", "proposed", "verified", "accepted", "graded", "matched")]
        for o in r.policy.outcomes[1:]
    ]  # fmt: skip
    assert rows == [
        [1, 2, 3, 2, 1, 2, 1],
        [2, 3, 1, 1, 1, 1, 1],
        [3, 4, 4, 2, 1, 2, 1],
        [4, 5, 2, 2, 1, 2, 1],
    ]
    assert [o.draft_depth for o in r.policy.outcomes] == [3, 1, 4, 2, 2]
    assert r.bridge.status()["violations"] == 0


def test_contexts_count_every_token_that_has_come(rig: Callable[..., Any]) -> None:
    r = rig([(3, 3)], asynchronous=True)
    request = r.add("a")
    r.launch()
    told = []
    for _ in range(4):
        before = request.num_output_tokens
        r.launch()
        told.append((r.policy.contexts[-1].committed.tolist(), [before]))
        r.land()
    assert told[0] == ([0], [0]) and told[-1][1][0] > 5
    assert all(committed == truth for committed, truth in told)


def test_requests_do_not_share_a_cut(rig: Callable[..., Any]) -> None:
    import msgspec
    import numpy as np

    r = rig([(4, 4)], asynchronous=True)
    whole = r.policy.plan

    def ragged(context: Any) -> Any:
        lens = np.minimum(context.drafts, context.requests % 2 * 3)
        return msgspec.structs.replace(whole(context), verify_lens=lens)

    r.policy.plan = ragged
    r.add("a")
    r.add("b")
    outputs = _fly(r, 4)
    # Both requests hold the same list of placeholders; only one is cut to nothing.
    assert [len(o.scheduled_spec_decode_tokens.get("a", [])) for o in outputs[1:]] == [3, 3, 3]
    assert [len(o.scheduled_spec_decode_tokens.get("b", [])) for o in outputs[1:]] == [0, 0, 0]


def test_tokens_come_out_whatever_is_planned(rig: Callable[..., Any]) -> None:
    plans = [(d, k) for d in range(5) for k in range(5)]
    for asynchronous in (True, False):
        r = rig(plans, asynchronous=asynchronous)
        requests = [r.add(name, max_tokens=30) for name in "abc"]
        for _ in range(60):
            if not r.scheduler.requests and not r.flights:
                break
            if asynchronous:
                _fly(r, 1, accept={"a": 4, "b": 0, "c": 2})
            else:
                r.step(accept={"a": 4, "b": 0, "c": 2})
        while r.flights:
            r.land()
        for request in requests:
            assert list(request.output_token_ids) == list(range(1, 31))
        assert r.bridge.status()["faults"] == 0 and not r.bridge.failed
        assert sorted(r.policy.forgotten) == [1, 2, 3] and len(r.bridge.table) == 0


def test_what_lands_after_a_preemption_is_dropped(rig: Callable[..., Any]) -> None:
    r = rig([(4, 2)], asynchronous=True)
    request = r.add("a")
    _fly(r, 4)
    assert len(r.flights) == 1
    r.scheduler.running.remove(request)
    r.scheduler._preempt_request(request, 0.0)
    r.launch()
    r.land()
    assert r.bridge.status()["dropped_outcomes_preempted"] == 1
    assert r.policy.outcomes[-1].committed.tolist() == [0]
    assert r.policy.outcomes[-1].drafts.graded.tolist() == [0]
    _fly(r, 3)
    # Its new life begins without drafts, and is credited from there on.
    assert r.policy.outcomes[-1].requests.tolist() == [1]
    assert r.bridge.status()["violations"] == 0 and not r.bridge.failed


def test_what_lands_after_an_abort_is_dropped(rig: Callable[..., Any]) -> None:
    from vllm.v1.request import RequestStatus

    r = rig([(4, 2)], asynchronous=True)
    r.add("a")
    r.add("b")
    _fly(r, 4)
    r.launch()
    r.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    r.land()
    r.land()
    assert r.bridge.status()["dropped_outcomes_finished"] == 2
    for outcome in r.policy.outcomes[-2:]:
        assert outcome.requests.tolist() == [1, 2]
        assert outcome.committed.tolist()[0] == 0 < outcome.committed.tolist()[1]
        assert outcome.drafts.verified.tolist()[0] == 0 < outcome.drafts.verified.tolist()[1]
    assert r.policy.forgotten == [1]


def test_what_lands_after_a_sessions_turn_ended_is_dropped(rig: Callable[..., Any]) -> None:
    r = rig([(4, 2)], asynchronous=True)
    r.session("s", prompt=5, max_tokens=50, stop_token_ids=[5])
    r.add("a")
    _fly(r, 3)
    r.launch()
    r.land()  # its last tokens; a further step of it is under way, whose tokens the engine drops
    assert r.scheduler.num_waiting_for_streaming_input == 1
    r.land()
    outcome = r.policy.outcomes[-1]
    assert outcome.requests.tolist() == [1, 2]
    assert outcome.committed.tolist()[0] == 0 < outcome.committed.tolist()[1]
    assert outcome.drafts.graded.tolist()[0] == 0
    assert r.bridge.status()["dropped_outcomes_finished"] == 1


def test_grammar_cuts_are_no_rejections(rig: Callable[..., Any], monkeypatch: Any) -> None:
    from vllm.v1.outputs import DraftTokenIds

    r = rig([(4, 3)], asynchronous=True)
    r.add("a")
    r.add("free")
    manager = r.scheduler.structured_output_manager
    monkeypatch.setattr(
        manager, "validate_tokens", lambda q, ids: ids[:2] if q.request_id == "a" else ids
    )
    request = r.scheduler.requests["a"]
    _fly(r, 3)
    request.structured_output_request = object()
    monkeypatch.setattr(manager, "accept_tokens", lambda request, tokens: True)
    output = r.launch()
    assert output.pending_structured_output_tokens
    r.land()
    ids = DraftTokenIds(
        ["a", "free"],
        [[r.written[n] + i + 1 for i in range(4)] for n in ("a", "free")],
    )
    r.scheduler.update_draft_token_ids_in_output(ids, output)
    assert output.num_invalid_spec_tokens == {"a": 1}
    r.land(accept={"a": 1, "free": 3})
    drafts = r.policy.outcomes[-1].drafts
    assert drafts.verified.tolist() == [2, 3]
    assert drafts.accepted.tolist() == [1, 3]
    assert drafts.proposed.tolist() == [3, 4]
    # The ids of the other request were seen: its fourth draft is graded by the bonus token.
    assert drafts.graded.tolist() == [2, 4] and drafts.matched.tolist() == [1, 4]


def test_latency_is_the_period_between_outputs(rig: Callable[..., Any]) -> None:
    r = rig([(2, 2)], asynchronous=True)
    r.add("a")
    _fly(r, 4)
    assert [o.latency_ns for o in r.policy.outcomes] == [10_000_000] * 3
