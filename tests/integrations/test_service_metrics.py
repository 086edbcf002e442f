"""Classes and tenants reach the tracker under few names, whatever they call themselves."""

from __future__ import annotations

from acclimate.controller.events import PlanEvent, ReportEvent
from acclimate.controller.records import StepContext, StepPlan, int_array
from acclimate.controller.reports import ClassReport, ImposedDelay, Report, TenantReport
from acclimate.integrations.metrics import Aggregator


def a_plan(step):
    none = int_array()
    context = StepContext(
        step=step, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0, requests=none,
        drafts=none, committed=none, context_tokens=none, tokens_left=none,
    )  # fmt: skip
    plan = StepPlan(step=step, draft_depth=0, verify_lens=none, depth=0, reason="idle")
    return PlanEvent(step, context, plan)


def a_class(label, judged=4, met=3):
    return ClassReport(
        label=label, judged=judged, met=met, ttft_missed=0, tpot_missed=1, e2e_missed=0, alive=2,
        lost=1, debt_tokens=2.5, least_lead_tokens=None,
    )  # fmt: skip


def a_tenant(label):
    return TenantReport(
        label=label, alive=1, requests=2, drafted_tokens=9, verified_tokens=8, accepted_tokens=7,
        committed_tokens=6, work_tokens=5, imposed_ms=4.0, suffered_ms=3.0, ahead_tokens=2.0,
    )  # fmt: skip


def row_of(aggregator, report, step=1):
    aggregator.add(a_plan(step))
    aggregator.add(ReportEvent(step, 0, report))
    row = aggregator.flush(0)
    assert row is not None
    return row.values


def test_what_a_class_was_promised_and_got():
    values = row_of(Aggregator(), Report(classes=(a_class("gold"), a_class("new", 0, 0))))
    assert values["slo/gold/attainment"] == 0.75
    assert values["slo/gold/tpot_missed"] == 1.0
    assert "slo/gold/least_lead_tokens" not in values and "slo/new/attainment" not in values


def test_who_slows_whom():
    report = Report(
        tenants=(a_tenant("a"), a_tenant("b/c")),
        delays=(ImposedDelay(by="a", on="b/c", milliseconds=12.0),),
    )
    values = row_of(Aggregator(), report)
    assert values["tenants/a/imposed_ms"] == 4.0
    assert [v for k, v in values.items() if k.startswith("tenants/a/slows/b_c-")] == [12.0]


def test_names_do_not_grow_with_the_tenants_that_came_and_went():
    aggregator, names = Aggregator(), set()
    for step in range(1, 101):
        values = row_of(aggregator, Report(tenants=(a_tenant(f"tenant {step}"),)), step)
        names |= {name for name in values if name.startswith("tenants/")}
    assert len(names) == 32 * 8
    assert values["sink/tenants_left_out"] == 68.0
