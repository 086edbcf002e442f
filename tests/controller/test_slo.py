"""Debts, twins and lost promises, under everything that an engine does to a request."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.promises import MAX_CLASSES, PromiseTally
from acclimate.controller.records import (
    DraftOutcomes,
    RequestInfo,
    Slo,
    StepContext,
    StepOutcome,
    int_array,
)
from acclimate.controller.requests import RequestRows
from acclimate.controller.slo import SloLedger
from acclimate.controller.slo_kernels import SLACK_S
from acclimate.predictors.output_length import OutputLength

MS = 1_000_000
NO_DRAFTS = DraftOutcomes(**dict.fromkeys(DraftOutcomes.__struct_fields__, int_array()))


class Stage:
    """A ledger, its rows, a clock in milliseconds, and what the engine has told so far."""

    def __init__(self, ledger=None):
        self.ledger = ledger or SloLedger()
        self.rows = RequestRows()
        self.now_ms = 0
        self.told = {}

    def add(self, number, max_tokens=100, **more):
        slo = Slo(**{key: more.pop(key) for key in ("ttft_s", "tpot_s", "e2e_s") if key in more})
        row = self.rows.add(number, slot=0, sampled=False)
        self.ledger.admit(row, RequestInfo(
            request=number, prompt_tokens=10, max_tokens=max_tokens,
            arrival_ns=more.pop("arrival_ns", self.now_ms * MS), slo=slo, **more))  # fmt: skip
        return row

    def first(self, number):
        """Its prompt's last chunk is computed, now."""
        self.told[number] = 1
        self.observe({}, first_tokens=1)

    def look(self, *numbers, waiting=0, best=math.inf, prompts=0.0):
        ids = int_array(numbers)
        context = StepContext(
            step=1, now_ns=round(self.now_ms * MS), waiting_prompts=waiting, prefill_forecast_tokens=0,
            requests=ids, drafts=0 * ids, committed=int_array([self.told[n] for n in numbers]),
            context_tokens=ids, tokens_left=ids,
        )  # fmt: skip
        rows = self.rows.find(ids)
        return self.ledger.look(context, rows, best_tokens_per_s=best, prompt_share=prompts)

    def observe(self, committed, *, latency_ms=None, k0_ms=None, usual_ms=None, first_tokens=0):
        ids = int_array(list(committed))
        tokens = int_array(list(committed.values()))
        outcome = StepOutcome(
            step=1, now_ns=round(self.now_ms * MS),
            latency_ns=None if latency_ms is None else int(latency_ms * MS),
            decode_requests=ids.size, verified_tokens=0, prefill_tokens=0, context_tokens=0,
            sampled_rows=0, draft_depth=0, requests=ids, committed=tokens, drafts=NO_DRAFTS,
            first_tokens=first_tokens,
        )  # fmt: skip
        rows = self.rows.find(ids)
        self.ledger.observe(outcome, rows, k0_ms=k0_ms, usual_ms=usual_ms)

    def step(self, committed, *, latency_ms, k0_ms=None, usual_ms=None, best=math.inf):
        """Let a step of so many milliseconds pass for the requests that commit in it."""
        self.look(*committed, best=best)
        self.now_ms += latency_ms
        for number, tokens in committed.items():
            self.told[number] += tokens
        self.observe(committed, latency_ms=latency_ms, k0_ms=k0_ms, usual_ms=usual_ms)

    def row(self, number):
        return self.rows.find(int_array([number]))

    def debt(self, number):
        return float(self.ledger.table.debt_tokens(self.row(number))[0])

    def slack_s(self, number):
        return float(self.ledger.table.sums[self.row(number)[0], SLACK_S])

    def attainable(self, number):
        return math.isfinite(self.slack_s(number))

    def lead(self, number):
        return float(self.ledger.table.lead_tokens(self.row(number))[0])

    def end(self, number):
        row = int(self.row(number)[0])
        self.rows.remove(number)
        self.ledger.forget(row)


def decoding(**slo):
    stage = Stage()
    stage.add(1, **slo)
    stage.first(1)
    stage.look(1)
    return stage


# --- debts -----------------------------------------------------------------------------------------


def test_a_debt_is_what_is_due_since_the_first_token_less_what_came():
    stage = decoding(tpot_s=0.02)
    stage.now_ms = 100
    look = stage.look(1)
    assert look.weights.tolist() == [1.0 + 5.0]
    assert look.price_tokens_per_s == pytest.approx(2.0 * 5.0 * 50.0)
    stage.step({1: 4}, latency_ms=0)
    assert stage.look(1).weights.tolist() == [1.0 + 1.0]


def test_a_lead_counts_for_the_whole_answer():
    stage = decoding(tpot_s=0.02)
    stage.step({1: 10}, latency_ms=20)
    stage.now_ms = 200  # ten were due, ten came
    assert stage.look(1).weights.tolist() == [1.0]
    stage.now_ms = 220
    assert stage.look(1).weights.tolist() == [2.0]


def test_a_waiting_prompt_counts_up_to_its_deadline_and_then_as_any_other():
    stage = Stage()
    stage.add(1, ttft_s=0.5)
    stage.add(2)
    stage.now_ms = 250
    look = stage.look(waiting=2)
    assert look.price_tokens_per_s == pytest.approx(0.5 / 0.5)
    assert look.waiting == 1
    assert stage.slack_s(1) == pytest.approx(0.25)
    stage.now_ms = 501
    look = stage.look(waiting=2)
    assert (look.price_tokens_per_s, look.waiting) == (0.0, 2)
    assert not stage.attainable(1)


def test_without_targets_nothing_changes():
    stage = Stage()
    for number in (1, 2, 3):
        stage.add(number)
    stage.first(1)
    look = stage.look(1, waiting=7)
    assert (look.weights.tolist(), look.price_tokens_per_s, look.waiting) == ([1.0], 0.0, 7)
    assert stage.slack_s(1) == math.inf and not stage.ledger.reports()


def test_importance_weighs_tokens_and_debts_alike():
    stage = Stage(SloLedger(base_tokens=2.0))
    stage.add(1, tpot_s=0.1, importance=3.0)
    stage.first(1)
    stage.look(1)
    stage.now_ms = 400
    look = stage.look(1)
    assert look.weights.tolist() == pytest.approx([3.0 * (2.0 + 4.0)])
    assert look.price_tokens_per_s == pytest.approx(2.0 * 3.0 * 4.0 * 10.0)


# --- what engines do -------------------------------------------------------------------------------


def test_the_first_token_came_when_its_step_landed_not_when_somebody_looked():
    stage = Stage()
    stage.add(1, tpot_s=0.02)
    stage.now_ms = 30
    stage.first(1)
    stage.now_ms = 50
    assert stage.look(1).weights.tolist() == [2.0]


def test_a_first_token_long_after_the_last_outcome_that_was_told_is_not_dated_back_to_it():
    stage = Stage()
    stage.add(1)
    stage.first(1)
    stage.look(1)
    stage.add(2, ttft_s=1.0, tpot_s=0.05)
    stage.now_ms = 10_000  # the policy was held back: nobody told of any step
    stage.told[2] = 100
    stage.look(1, 2)
    assert stage.debt(2) == 0.0
    stage.step({1: 1, 2: 1}, latency_ms=20)
    stage.end(2)
    tally = stage.ledger.tally.counts_of("")
    assert (tally["ttft_missed"], tally["tpot_missed"]) == (1, 0)


def test_a_preempted_request_owes_on_and_its_twin_waits_with_it():
    stage = decoding(tpot_s=0.02)
    stage.add(2)
    stage.first(2)
    stage.step({1: 1, 2: 1}, latency_ms=20, k0_ms=20)
    stage.step({1: 0, 2: 1}, latency_ms=20, k0_ms=20)  # it lost its place in this step
    stage.step({2: 1}, latency_ms=20, k0_ms=20)
    stage.told[1] += 1  # its prompt was computed again, and gave a token
    look = stage.look(1, 2)
    assert look.weights[0] == pytest.approx(1.0 + 3.0 - 2.0)
    assert (stage.lead(1), stage.lead(2)) == (0.0, 0.0)


def test_a_request_that_kept_its_place_but_found_no_room_falls_behind_its_twin():
    stage = decoding()
    stage.step({1: 0}, latency_ms=20, k0_ms=20)
    stage.step({1: 1}, latency_ms=20, k0_ms=20)
    assert stage.lead(1) == pytest.approx(-1.0)


def test_late_outcomes_of_requests_that_ended_or_rows_that_changed_hands_change_nothing():
    stage = decoding(tpot_s=0.02)
    stage.end(1)
    stage.add(2, tpot_s=0.02)
    assert stage.row(2) == [1]  # the row is used again
    stage.now_ms = 40
    stage.observe({1: 5}, latency_ms=20, k0_ms=10)
    stage.first(2)
    stage.look(2)
    assert stage.lead(2) == 0.0 and stage.debt(2) == 0.0


def test_tokens_whose_outcome_was_lost_still_count():
    told, untold = decoding(tpot_s=0.02), decoding(tpot_s=0.02)
    told.step({1: 3}, latency_ms=100)
    untold.now_ms, untold.told[1] = 100, 4
    assert told.look(1).weights.tolist() == untold.look(1).weights.tolist() == [3.0]


def test_an_outcome_that_comes_twice_counts_once():
    stage = decoding(tpot_s=0.02)
    stage.step({1: 3}, latency_ms=100)
    stage.observe({1: 3}, latency_ms=100)
    assert stage.look(1).weights.tolist() == [3.0]


def test_an_outcome_may_be_the_first_that_is_heard_of_an_answer():
    stage = Stage()
    stage.add(1, tpot_s=0.02)
    stage.told[1] = 0
    stage.look(1)  # a step is in flight that ends its prompt
    stage.now_ms = 40
    stage.told[1] = 2
    stage.observe({1: 1}, latency_ms=20, k0_ms=20)
    assert stage.look(1).weights.tolist() == [1.0]
    stage.now_ms = 80
    assert stage.look(1).weights.tolist() == [3.0]


def test_a_sessions_next_answer_begins_anew():
    stage = decoding(tpot_s=0.02)
    stage.step({1: 20}, latency_ms=20)
    stage.now_ms, stage.told[1] = 5000, 1
    assert stage.look(1).weights.tolist() == [1.0]
    stage.now_ms = 5040
    assert stage.look(1).weights.tolist() == [3.0]


def test_requests_that_are_not_known_weigh_as_any_other():
    stage = Stage()
    stage.told[77] = 5
    assert stage.look(77).weights.tolist() == [1.0]
    stage.observe({77: 2}, latency_ms=20, k0_ms=10)
    assert stage.ledger.table.lead_tokens(int_array([0])).tolist() == [0.0]
    wild = stage.ledger.look(
        StepContext(
            step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
            requests=int_array([1]), drafts=int_array([0]), committed=int_array([1]),
            context_tokens=int_array([1]), tokens_left=int_array([1]),
        ),
        int_array([9_999_999]),
    )  # fmt: skip
    assert wild.weights.tolist() == [1.0]


# --- attainable or lost ----------------------------------------------------------------------------


def test_what_no_pace_can_reach_owes_nothing_until_a_better_pace_comes():
    stage = decoding(tpot_s=0.01)
    stage.now_ms = 50
    look = stage.look(1, best=80.0)
    assert (look.weights.tolist(), look.price_tokens_per_s) == ([1.0], 0.0)
    assert stage.look(1, best=105.0).weights.tolist() == [1.0]  # not by a hair
    assert stage.look(1, best=1000.0).weights.tolist() == [6.0]


def test_what_prompts_will_take_of_the_next_tokens_is_owed_beforehand():
    stage = decoding(tpot_s=0.01, max_tokens=101)
    row = stage.rows.find(int_array([1]))
    assert stage.look(1).weights.tolist() == [1.0]
    whole_ms = stage.ledger.table.paces_ms(row)
    # A quarter of the time of 20 tokens; and a quarter of all the time that is left.
    assert stage.look(1, prompts=0.25).weights.tolist() == [6.0]
    assert stage.ledger.table.paces_ms(row) == pytest.approx(0.75 * whole_ms)
    # A lead pays for it, and an answer that ends soon owes less.
    stage.told[1] = 11
    assert stage.look(1, prompts=0.25).weights.tolist() == [1.0]
    soon = decoding(tpot_s=0.01, max_tokens=9)
    assert soon.look(1, prompts=0.25).weights.tolist() == [1.0 + 0.25 * 8]


def test_the_best_pace_is_what_the_prompts_of_others_leave_of_it():
    stage = decoding(tpot_s=0.01, max_tokens=101)
    stage.now_ms = 50  # 5 tokens are owed, of 100 to come: 100 tokens/s need 105.3
    assert stage.look(1, best=120.0).weights.tolist() == [6.0]
    assert stage.look(1, best=120.0, prompts=0.25).weights.tolist() == [1.0]
    assert stage.look(1, best=180.0, prompts=0.25).weights.tolist() == [11.0]


def test_more_owed_than_is_to_come_is_lost_whatever_the_pace():
    stage = decoding(tpot_s=0.01, max_tokens=11)
    stage.now_ms = 95
    assert stage.look(1).weights.tolist() == pytest.approx([10.5])
    stage.now_ms = 101
    assert stage.look(1).weights.tolist() == [1.0]


def test_an_end_to_end_target_is_a_rate_over_the_tokens_to_come():
    stage = Stage()
    stage.add(1, e2e_s=2.0, max_tokens=101)
    stage.now_ms = 1000
    stage.first(1)
    stage.look(1)
    stage.now_ms = 1100  # 100 tokens in the second that is left: ten are due
    assert stage.look(1, best=500.0).weights.tolist() == pytest.approx([11.0])
    # Nobody writes 100 tokens in 0.9 s at that pace: no debt, and not lost yet.
    assert stage.look(1, best=105.0).weights.tolist() == [1.0]
    assert stage.look(1, best=500.0).weights.tolist() == pytest.approx([11.0])
    stage.now_ms = 2001
    assert stage.look(1, best=500.0).weights.tolist() == [1.0]


def test_learned_lengths_make_an_end_to_end_target_reasonable():
    stage = Stage()
    for number in range(1, 9):
        stage.add(number, slo_class="short")
        stage.first(number)
        stage.look(number)
        stage.step({number: 10}, latency_ms=10)
        stage.end(number)
    start = stage.now_ms
    stage.add(50, e2e_s=1.0, max_tokens=4000, slo_class="short")
    stage.add(51, e2e_s=1.0, max_tokens=4000, slo_class="other")
    for number in (50, 51):
        stage.first(number)
    stage.look(50, 51)
    stage.now_ms = start + 500
    weights = stage.look(50, 51, best=100.0).weights
    assert weights.tolist() == pytest.approx([1.0 + 5.0, 1.0])  # 10 after the first, half due
    rows = stage.rows.find(int_array([50, 51]))
    assert stage.ledger.table.left_tokens(rows).tolist() == [10.0, 3999.0]


def test_the_higher_of_two_rates_holds():
    stage = decoding(tpot_s=0.1, e2e_s=1.0, max_tokens=51)
    stage.now_ms = 100
    assert stage.look(1).weights.tolist() == pytest.approx([6.0])
    stage.now_ms = 1001  # end to end is lost, and with it the request
    assert stage.look(1).weights.tolist() == [1.0]


def test_targets_can_be_kept_apart():
    stage = Stage(SloLedger(all_or_nothing=False))
    stage.add(1, ttft_s=0.01, tpot_s=0.1, e2e_s=1.0, max_tokens=51)
    stage.now_ms = 100
    stage.first(1)
    stage.look(1)
    stage.now_ms = 1100
    assert stage.look(1).weights.tolist() == pytest.approx([11.0])


def test_who_waited_too_long_is_served_as_well_as_can_be():
    stage = Stage()
    stage.add(1, ttft_s=0.01, tpot_s=0.1)
    stage.now_ms = 100
    stage.first(1)
    stage.look(1)
    stage.now_ms = 1100
    assert stage.look(1).weights.tolist() == [1.0]


@given(
    st.integers(0, 400), st.integers(0, 60), st.integers(5, 200), st.integers(1, 200),
    st.floats(1.0, 500.0),
)  # fmt: skip
@settings(deadline=None, max_examples=100)
def test_slack_is_the_time_that_can_be_lost(elapsed_ms, tokens, tpot_ms, max_tokens, best):
    def after(extra_s):
        stage = decoding(tpot_s=tpot_ms / 1e3, max_tokens=max_tokens)
        stage.step({1: tokens}, latency_ms=elapsed_ms)
        stage.now_ms += extra_s * 1e3
        stage.look(1, best=best)
        return stage

    stage = after(0.0)
    slack_s = stage.slack_s(1)
    if slack_s == math.inf:
        assert stage.debt(1) == 0.0
        return
    assert slack_s >= 0.0 and stage.attainable(1)
    assert not after(slack_s + 1e-5).attainable(1)
    if slack_s > 1e-5:
        assert after(slack_s - 1e-5).attainable(1)


# --- the twin --------------------------------------------------------------------------------------


def test_a_twin_writes_a_token_in_the_time_of_a_step_without_drafts():
    stage = decoding()
    stage.step({1: 3}, latency_ms=30, k0_ms=20)
    assert stage.ledger.table.twin_tokens(stage.row(1)).tolist() == [1.5]
    assert stage.lead(1) == 1.5
    margin = stage.ledger.table.twin_margin_tokens(stage.row(1), share=0.1, allowance_tokens=8.0)
    assert margin.tolist() == pytest.approx([1.5 + 8.0 + 0.15])


def test_a_stall_of_the_machine_would_have_met_the_twin_too():
    stage = decoding()
    stage.step({1: 2}, latency_ms=400, k0_ms=20, usual_ms=30)
    assert stage.lead(1) == pytest.approx(2 - 1.5)


@pytest.mark.parametrize("k0_ms", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_step_of_unknown_length_says_nothing_of_the_lead(k0_ms):
    stage = decoding(tpot_s=0.02)
    stage.step({1: 5}, latency_ms=20, k0_ms=k0_ms)
    stage.now_ms += 20
    stage.told[1] += 1
    stage.observe({1: 1}, latency_ms=None, k0_ms=20)
    assert stage.lead(1) == 0.0
    table = stage.ledger.table
    assert table.counts[1].max() < 2**62 and np.isfinite(table.twin_tokens([1]))


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 60), st.integers(5, 40)), max_size=30))
@settings(deadline=None, max_examples=60)
def test_a_step_cut_in_two_halves_is_the_same(steps):
    whole, halves = decoding(tpot_s=0.02), decoding(tpot_s=0.02)
    for tokens, latency_ms, k0_ms in steps:
        whole.step({1: 2 * tokens}, latency_ms=2 * latency_ms, k0_ms=k0_ms)
        for _ in range(2):
            halves.step({1: tokens}, latency_ms=latency_ms, k0_ms=k0_ms)
    assert whole.look(1).weights.tolist() == halves.look(1).weights.tolist()
    assert whole.lead(1) == pytest.approx(halves.lead(1), abs=1e-9)


@st.composite
def plays(draw):
    """What happens to five requests: come, first token, steps, preemptions, lost news, ends."""
    kinds = st.sampled_from(["step", "step", "step", "preempt", "resume", "untold", "idle"])
    return draw(
        st.lists(
            st.tuples(kinds, st.integers(0, 4), st.integers(1, 9), st.integers(1, 80)),
            max_size=50,
        )
    )


@given(plays(), st.floats(0.001, 0.2), st.sampled_from([20.0, 200.0, math.inf]))
@settings(deadline=None, max_examples=120)
def test_whatever_happens_the_books_are_right(play, tpot_s, best):
    stage = Stage()
    first_ms, gained, running = {}, dict.fromkeys(range(5), 0), set()
    for number in range(5):
        stage.add(number, tpot_s=tpot_s, max_tokens=10_000, importance=1.0 + number)
    for what, who, tokens, latency_ms in play:
        if who not in first_ms:
            stage.first(who)
            stage.look(who, best=best)
            first_ms[who] = stage.now_ms
            running.add(who)
        elif what == "preempt":
            running.discard(who)
        elif what == "resume":
            running.add(who)
        elif what == "untold" and who in running:
            stage.told[who] += tokens
            stage.now_ms += latency_ms
        elif what == "idle":
            stage.now_ms += latency_ms
        elif what == "step" and running:
            batch = {number: tokens + number for number in sorted(running)}
            stage.step(batch, latency_ms=latency_ms, k0_ms=10.0, best=best)
            for number, committed in batch.items():
                gained[number] += committed
        look = stage.look(*sorted(running), best=best)
        assert np.isfinite(look.weights).all() and 0.0 <= look.price_tokens_per_s < math.inf
        for at, number in enumerate(sorted(running)):
            debt = stage.debt(number)
            assert look.weights[at] == pytest.approx((1.0 + number) * (1.0 + debt))
            due = (stage.now_ms - first_ms[number]) / 1e3 / tpot_s - (stage.told[number] - 1)
            assert debt in (0.0, pytest.approx(due, abs=1e-6))
            if best == math.inf and due < 9_000:
                assert debt == pytest.approx(max(due, 0.0), abs=1e-6)
            twin = float(stage.ledger.table.twin_tokens(stage.row(number))[0])
            assert stage.lead(number) == pytest.approx(gained[number] - twin)
    copy = Stage(SloLedger())
    copy.ledger.load(stage.ledger.state())
    copy.rows, copy.told = stage.rows, stage.told
    for one in (stage, copy):
        one.now_ms = 123_456
    mine, theirs = (one.look(*sorted(running), best=best) for one in (stage, copy))
    assert mine.weights.tobytes() == theirs.weights.tobytes()
    assert mine.price_tokens_per_s == theirs.price_tokens_per_s
    assert copy.ledger.reports() == stage.ledger.reports()


# --- the account -----------------------------------------------------------------------------------


def test_promises_are_judged_when_a_request_ends():
    stage = Stage()
    for number, ttft_s in ((1, 1.0), (2, 0.01), (3, 1.0)):
        stage.add(number, ttft_s=ttft_s, tpot_s=0.02, slo_class="gold")
    stage.now_ms = 100
    for number in (1, 2, 3):
        stage.first(number)
    stage.look(1, 2, 3)
    stage.step({1: 4, 2: 5, 3: 5}, latency_ms=100)
    stage.look(1, 2, 3)
    (report,) = stage.ledger.reports()
    assert (report.alive, report.lost, report.debt_tokens) == (3, 1, 1.0)
    for number in (1, 2, 3):
        stage.end(number)
    stage.add(4, tpot_s=0.02, slo_class="gold")
    stage.end(4)  # before anything came: not judged
    (report,) = stage.ledger.reports()
    assert (report.label, report.judged, report.met) == ("gold", 3, 1)
    assert (report.ttft_missed, report.tpot_missed, report.e2e_missed) == (1, 1, 0)


def test_an_end_to_end_target_is_judged_from_arrival():
    stage = Stage()
    for number, e2e_s in ((1, 0.19), (2, 0.21)):
        stage.add(number, e2e_s=e2e_s)
    stage.now_ms = 100
    for number in (1, 2):
        stage.first(number)
    stage.look(1, 2)
    stage.step({1: 3, 2: 3}, latency_ms=100)
    for number in (1, 2):
        stage.end(number)
    (report,) = stage.ledger.reports()
    assert (report.judged, report.met, report.e2e_missed) == (2, 1, 1)


def test_classes_are_bounded_and_survive_a_state():
    tally = PromiseTally()
    kinds = [tally.kind(f"class {number}") for number in range(100)]
    assert kinds[:3] == [1, 2, 3] and kinds[-1] == 0 and len(tally.labels) == MAX_CLASSES
    tally.judge(3, ttft=False, tpot=False, e2e=False)
    copy = PromiseTally()
    copy.load(tally.state())
    assert copy.state() == tally.state() and copy.counts_of("class 2")["met"] == 1


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="base_tokens must be positive and finite, got 0"):
        SloLedger(base_tokens=0)
    with pytest.raises(ValueError, match="lengths must know 64 classes, got 2"):
        SloLedger(lengths=OutputLength(2))
    with pytest.raises(ValueError, match="row must be >= 1, got 0"):
        SloLedger().admit(0, RequestInfo(request=1, prompt_tokens=1, max_tokens=1))
    state = SloLedger().state()
    with pytest.raises(ValueError, match="sums must have shape"):
        SloLedger().load({**state, "sums": np.zeros((4, 3))})
