"""The bridge in the engine's real synchronous scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from acclimate.controller.config import ControlConfig

DEPTH = 4


def _rows(outcome: Any) -> dict[str, list[int]]:
    names = ("request", "drafted_by", "verified_by", "proposed", "verified", "accepted", "start",
             "graded", "matched", "fresh")  # fmt: skip
    return {name: getattr(outcome.drafts, name).tolist() for name in names}


def test_plan_sets_draft_depth_and_verify_length_of_the_right_steps(
    rig: Callable[..., Any],
) -> None:
    r = rig([(3, 0), (2, 1), (4, 4)])
    r.add("a")
    first, second, third = r.step(), r.step(), r.step()
    assert [o.num_spec_tokens_to_schedule for o in (first, second, third)] == [3, 2, 4]
    # Step 2 verifies 1 of the 3 drafted in step 1; step 3 verifies all 2 drafted in step 2.
    assert len(second.scheduled_spec_decode_tokens["a"]) == 1
    assert len(third.scheduled_spec_decode_tokens["a"]) == 2
    rows = _rows(r.policy.outcomes[1])
    assert (rows["drafted_by"], rows["proposed"], rows["verified"]) == ([1], [3], [1])
    assert r.policy.outcomes[2].draft_depth == 4


def test_in_the_shadow_the_engine_drafts_and_verifies_as_ever(rig: Callable[..., Any]) -> None:
    r = rig([(1, 0)], control=ControlConfig(shadow=True))
    r.add("a")
    outputs = [r.step() for _ in range(4)]
    assert [o.num_spec_tokens_to_schedule for o in outputs] == [DEPTH] * 4
    assert [len(o.scheduled_spec_decode_tokens["a"]) for o in outputs[1:]] == [DEPTH] * 3
    assert [c.drafts.tolist() for c in r.policy.contexts[1:]] == [[DEPTH]] * 3
    assert all(outcome.stock for outcome in r.policy.outcomes)
    assert _rows(r.policy.outcomes[1])["verified"] == [DEPTH]
    status = r.bridge.status()
    assert status["shadow_steps"] == 4 and status["violations"] == 0


def test_cut_drafts_are_graded_by_later_tokens(rig: Callable[..., Any]) -> None:
    r = rig([(4, 0)])
    r.add("a")
    for _ in range(4):
        r.step()
    # Every draft is right: nothing is verified, yet each step's token grades the new draft's first
    # position and goes on grading the older ones; it counts once.
    rows = _rows(r.policy.outcomes[3])
    assert rows["verified"] == [0, 0, 0] and rows["verified_by"] == [-1, -1, -1]
    assert rows["start"] == [0, 2, 1] and rows["matched"] == [1, 1, 1]
    assert rows["fresh"] == [1, 0, 0]
    assert rows["drafted_by"] == [3, 1, 2]


def test_a_wrong_draft_is_graded_to_its_first_mistake(rig: Callable[..., Any]) -> None:
    r = rig([(4, 4), (4, 4), (4, 1)])
    r.add("a")
    r.step(drafts={"a": [2, 3, 99, 5]})
    r.step()
    rows = _rows(r.policy.outcomes[1])
    assert (rows["verified"], rows["accepted"], rows["graded"], rows["matched"]) == (
        [4],
        [2],
        [3],
        [2],
    )
    assert r.policy.outcomes[1].committed.tolist() == [3]


def test_stop_inside_an_accepted_block(rig: Callable[..., Any]) -> None:
    r = rig([(4, 4)])
    r.add("a", max_tokens=50, stop_token_ids=[3])
    r.step()
    r.step()
    outcome = r.policy.outcomes[1]
    # Accepted before stop checks, committed after them.
    assert outcome.drafts.accepted.tolist() == [4] and outcome.committed.tolist() == [2]
    assert r.policy.forgotten == [1] and len(r.bridge.table) == 0


def test_never_more_drafts_than_tokens_left(rig: Callable[..., Any]) -> None:
    r = rig([(4, 4)])
    r.add("a", max_tokens=4)
    r.step()
    second = r.step()
    assert r.policy.contexts[1].tokens_left.tolist() == [3]
    assert r.policy.contexts[1].drafts.tolist() == [2]
    assert len(second.scheduled_spec_decode_tokens["a"]) == 2
    assert r.policy.outcomes[1].committed.tolist() == [3]


def test_prefill_is_counted_apart_and_forecast(rig: Callable[..., Any]) -> None:
    r = rig([(2, 2)])
    r.add("a")
    r.step()
    r.add("long", prompt=80)
    for _ in range(3):
        r.step()
    second, third = r.policy.outcomes[1:3]
    assert second.decode_requests == third.decode_requests == 1
    assert second.prefill_tokens + third.prefill_tokens == 80
    assert [c.waiting_prompts for c in r.policy.contexts[:3]] == [1, 1, 0]
    forecasts = [c.prefill_forecast_tokens for c in r.policy.contexts[1:3]]
    assert forecasts == [second.prefill_tokens, third.prefill_tokens]
    assert [o.first_tokens for o in r.policy.outcomes[:4]] == [1, 0, 1, 0]


def test_latency_is_the_period_while_there_is_work(rig: Callable[..., Any]) -> None:
    r = rig([(2, 2)])
    r.add("a", max_tokens=8)
    r.step()
    r.clock_ns += 5_000_000
    r.step()
    while r.scheduler.requests:
        r.step()
    r.clock_ns += 60_000_000_000
    r.add("b")
    r.step()
    latencies = [o.latency_ns for o in r.policy.outcomes]
    assert latencies[:2] == [10_000_000, 15_000_000]
    assert latencies[-1] == 10_000_000


def test_an_aborted_request_leaves_nothing_behind(rig: Callable[..., Any]) -> None:
    from vllm.v1.request import RequestStatus

    r = rig([(4, 0)])
    r.add("a")
    r.add("b")
    r.step()
    r.step()
    r.launch()
    r.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    r.land()
    outcome = r.policy.outcomes[2]
    # Rows are the plan's; the one that is gone says nothing, but was executed.
    assert outcome.requests.tolist() == [1, 2] and outcome.committed.tolist() == [0, 1]
    assert outcome.drafts.graded[0] == outcome.drafts.proposed[0] == 0
    assert outcome.drafts.request.tolist().count(1) == 1 and outcome.decode_requests == 2
    assert r.bridge.status()["dropped_outcomes_finished"] == 1
    assert r.policy.forgotten == [1]
    r.add("a")
    r.step()
    assert r.policy.admitted[-1].request == 3


def test_a_preempted_request_comes_back_clean(rig: Callable[..., Any]) -> None:
    # Four blocks of 16 tokens: two requests outgrow them.
    r = rig([(4, 2)], blocks=6, seqs=2)
    r.add("a", prompt=20, max_tokens=40)
    r.add("b", prompt=20, max_tokens=40)
    for _ in range(60):
        if not r.scheduler.requests:
            break
        r.step()
    assert not r.scheduler.requests
    assert r.policy.forgotten and r.bridge.status()["faults"] == 0
    assert r.bridge.grader.pending == 0 and not r.bridge.failed
    total = sum(int(o.committed.sum()) for o in r.policy.outcomes)
    # First tokens and tokens of a resumed prefill are no decode tokens.
    assert 70 <= total < 80


def test_zeros_near_the_drafters_limit_are_not_graded(rig: Callable[..., Any]) -> None:
    r = rig([(4, 4)], facts={"drafter_len": 16})
    r.add("a")
    too_long = []
    for _ in range(9):
        zeros = bool(too_long and too_long[-1])
        output = r.launch()
        too_long.append(r.scheduler.requests["a"].num_computed_tokens + 4 > 16)
        r.land(accept=0)
        r.draft(output, {"a": [0, 0, 0, 0]} if too_long[-1] else None)
        assert bool(output.scheduled_spec_decode_tokens) is (len(too_long) > 1 and not zeros)
    assert [o.exempt for o in r.policy.outcomes[1:]] == too_long[:-1]
    assert any(too_long) and not all(too_long)
    exempt = [o.drafts for o in r.policy.outcomes if o.exempt]
    assert all(d.graded.tolist() == d.proposed.tolist() == [0] for d in exempt)
    assert r.bridge.status()["violations"] == 0


def test_more_drafts_than_asked_is_a_violation(rig: Callable[..., Any]) -> None:
    lines: list[str] = []
    r = rig([(2, 2)], log=lines.append)
    r.add("a")
    r.step(drafts={"a": [2, 3, 4, 5]})
    second = r.step()
    assert r.bridge.status()["violations"] == 1 and len(lines) == 1
    assert "asked for 2 tokens, made 4" in lines[0]
    # The engine's own rule acts: nothing is cut.
    assert len(second.scheduled_spec_decode_tokens["a"]) == 4
    assert r.policy.outcomes == r.policy.outcomes[:1]


def test_a_method_with_a_fixed_depth_is_never_asked_for_another(rig: Callable[..., Any]) -> None:
    r = rig([(1, 1)], honours_depth=False)
    r.add("a")
    first, second = r.step(), r.step()
    assert first.num_spec_tokens_to_schedule == 4
    assert len(second.scheduled_spec_decode_tokens["a"]) == 1
    assert r.bridge.status()["violations"] == 0


@pytest.mark.parametrize("fault", ["raise", "nonsense", "type"])
def test_a_bad_policy_leaves_the_engine_alone(rig: Callable[..., Any], fault: str) -> None:
    lines: list[str] = []
    r = rig([(2, 1)], log=lines.append)
    good = r.policy.plan

    def plan(context: Any) -> Any:
        if context.step != 3:
            return good(context)
        if fault == "raise":
            raise RuntimeError("no idea")
        if fault == "type":
            return None
        import msgspec

        return msgspec.structs.replace(good(context), draft_depth=99)

    r.policy.plan = plan
    r.add("a", max_tokens=20)
    outputs = [r.step() for _ in range(4)]
    assert [o.num_spec_tokens_to_schedule for o in outputs] == [2, 2, 4, 4]
    assert len(lines) == 1 and r.bridge.status()["faults"] == 1
    assert not r.bridge.failed


def test_a_fault_of_the_bridge_itself_hands_over_for_good(rig: Callable[..., Any]) -> None:
    lines: list[str] = []
    r = rig([(2, 1)], log=lines.append)
    r.add("a", max_tokens=20)
    r.step()
    r.bridge.table.rows = None
    outputs = [r.step() for _ in range(3)]
    assert [o.num_spec_tokens_to_schedule for o in outputs] == [4, 4, 4]
    assert r.bridge.failed and len(lines) == 1 and lines[0].startswith("disabled: begin raised")
    while r.scheduler.requests:
        r.step()
    assert r.written["a"] >= 20


def test_a_session_that_goes_on_keeps_its_number(rig: Callable[..., Any]) -> None:
    from vllm import SamplingParams
    from vllm.v1.request import Request

    r = rig([(2, 2)])

    def chunk(prompt: int) -> Request:
        params = SamplingParams(max_tokens=4, ignore_eos=True)
        return Request("s", list(range(1000, 1000 + prompt)), params, None, resumable=True)

    r.scheduler.add_request(chunk(5))
    for _ in range(3):
        r.step()
    r.scheduler.add_request(chunk(7))
    for _ in range(3):
        r.step()
    assert [i.request for i in r.policy.admitted] == [1]
    assert not r.bridge.failed and r.bridge.status()["faults"] == 0
    assert r.policy.contexts[-1].tokens_left.tolist() <= [4]


def test_a_session_that_waits_for_its_client_is_no_waiting_prompt(rig: Callable[..., Any]) -> None:
    r = rig([(2, 2)])
    r.session("s", prompt=5, max_tokens=4)
    r.add("a", max_tokens=40)
    for _ in range(5):
        r.step()
    assert [i.request_id for i in r.scheduler.running] == ["a"]
    assert r.scheduler.num_waiting_for_streaming_input == 1
    assert r.policy.contexts[-1].waiting_prompts == 0
    assert r.bridge.engine_state().load.waiting == 0
    r.add("b")
    r.launch()
    assert r.policy.contexts[-1].waiting_prompts == 1


def test_drafts_of_a_sessions_turn_are_not_graded_by_its_next(rig: Callable[..., Any]) -> None:
    r = rig([(4, 1)])
    r.session("s", prompt=5, max_tokens=3)
    r.step()
    r.step()  # of four drafts one is verified, and the bonus token ends the turn
    assert r.bridge.grader.pending == 1
    r.session("s", prompt=7, max_tokens=30)
    r.step()
    r.step()
    outcome = r.policy.outcomes[-1]
    assert outcome.requests.tolist() == [1] and outcome.committed.tolist() == [2]
    assert outcome.drafts.start.tolist() == [0]


def test_tokens_of_a_request_that_ended_go_to_whoever_asked(rig: Callable[..., Any]) -> None:
    r = rig([(4, 4)])
    kept: list[tuple[int, list[int], list[int]]] = []
    r.bridge._record_tokens = lambda *tokens: kept.append(tokens)
    r.add("a", prompt=3, max_tokens=4)
    for _ in range(4):
        if r.scheduler.has_unfinished_requests():
            r.step()
    ((number, prompt, output),) = kept
    assert [number] == r.policy.forgotten
    assert prompt == [1000, 1001, 1002] and output == [1, 2, 3, 4]
