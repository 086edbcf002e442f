"""Every tenant's use of the engine is counted once, and its neighbours' delay is put to its name."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.accounts import TenantAccounts
from acclimate.controller.records import RequestInfo, int_array


def request(tenant="", prompt=10, **more):
    return RequestInfo(request=1, prompt_tokens=prompt, max_tokens=9, tenant=tenant, **more)


def step(accounts, rows, verified, committed=None, extra_ms=0.0):
    rows, verified = int_array(rows), int_array(verified)
    committed = np.ones_like(rows) if committed is None else int_array(committed)
    accounts.add(
        rows, committed=committed, proposed=verified + 1, verified=verified,
        accepted=verified // 2, extra_ms=extra_ms,
    )  # fmt: skip


def by_label(accounts):
    return {report.label: report for report in accounts.reports()}


def test_tokens_and_work_are_counted_by_tenant():
    accounts = TenantAccounts()
    for row, tenant in enumerate(["code", "batch", "batch"], start=1):
        accounts.admit(row, request(tenant, prompt=100))
    step(accounts, [1, 2, 3], [4, 0, 2], committed=[3, 1, 2])
    step(accounts, [1, 2, 3], [4, 0, 0], committed=[1, 1, 0])  # the last had no part
    code, batch = by_label(accounts)["code"], by_label(accounts)["batch"]
    assert (code.drafted_tokens, code.verified_tokens, code.accepted_tokens) == (10, 8, 4)
    assert (code.committed_tokens, batch.committed_tokens) == (4, 4)
    assert code.work_tokens == 100 + 2 * (1 + 4)
    assert batch.work_tokens == 200 + (1 + 1 + 2) + 1
    assert (batch.alive, batch.requests) == (2, 2)


def test_delay_is_shared_by_verified_drafts_and_falls_on_others_only():
    accounts = TenantAccounts()
    for row, tenant in enumerate(["a", "b", "b"], start=1):
        accounts.admit(row, request(tenant))
    step(accounts, [1, 2, 3], [6, 2, 0], extra_ms=8.0)
    a, b = by_label(accounts)["a"], by_label(accounts)["b"]
    # a: 6 of 8 drafts, two neighbours of b. b: 2 of 8, one of a and one of its own.
    assert (a.imposed_ms, a.suffered_ms) == (12.0, 2.0)
    assert (b.imposed_ms, b.suffered_ms) == (2.0, 12.0)
    assert accounts.imposed_ms.sum() == pytest.approx(8.0 * 2)


def test_one_alone_slows_nobody_and_delay_without_drafts_has_no_author():
    accounts = TenantAccounts()
    accounts.admit(1, request("a"))
    accounts.admit(2, request("b"))
    step(accounts, [1], [5], extra_ms=9.0)
    assert not accounts.delays()
    step(accounts, [1, 2], [0, 0], extra_ms=3.0)
    assert not accounts.delays() and accounts.unattributed_ms == 3.0
    step(accounts, [1, 2], [1, 1], extra_ms=float("nan"))
    step(accounts, [1, 2], [1, 1], extra_ms=-4.0)
    assert not accounts.delays()


def test_refused_drafts_count_as_work_and_idle_time_is_not_saved_up():
    accounts = TenantAccounts()
    accounts.admit(1, request("busy", prompt=0))
    accounts.admit(2, request("calm", prompt=0))
    for _ in range(100):
        step(accounts, [1, 2], [4, 0])
    ahead = accounts.ahead_tokens()
    assert ahead.max() == 400.0 and ahead.min() == 0.0
    late = accounts.admit(3, request("late", prompt=0))
    assert accounts.ahead_tokens()[late] == 0.0
    step(accounts, [1, 2, 3], [0, 0, 0])
    assert accounts.ahead_tokens()[late] == 0.0  # it started where the least served is
    accounts.forget(2)
    accounts.forget(3)
    assert accounts.ahead_tokens().tolist() == [0.0] * accounts.capacity


def test_a_flood_of_names_is_bounded_and_loses_nothing():
    accounts = TenantAccounts(capacity=4)
    busy = accounts.admit(1, request("busy"))
    accounts.admit(3, request("neighbour"))
    for number in range(500):
        accounts.admit(2, request(f"flood {number}"))
        step(accounts, [1, 2, 3], [1, 1, 0], extra_ms=1.0)
        accounts.forget(2)
    assert accounts.admit(4, request("busy")) == busy
    reports = accounts.reports()
    assert len(reports) <= 4 and reports[0].label == "other"
    assert sum(report.committed_tokens for report in reports) == 1500
    assert sum(report.requests for report in reports) == 503
    assert accounts.imposed_ms.sum() == pytest.approx(500 * 2)
    assert len(accounts.delays()) <= 16


def test_the_same_name_in_another_trust_domain_is_another_tenant():
    accounts = TenantAccounts()
    assert accounts.admit(1, request("a")) != accounts.admit(2, request("a", trust_domain="red"))
    assert set(by_label(accounts)) == {"a", "red/a"}


def test_unknown_rows_and_double_ends_are_harmless():
    accounts = TenantAccounts()
    step(accounts, [0, 99_999], [1, 1])
    assert [(r.label, r.committed_tokens) for r in accounts.reports()] == [("other", 2)]
    accounts.admit(1, request("a"))
    accounts.forget(1)
    accounts.forget(1)
    assert by_label(accounts)["a"].alive == 0
    with pytest.raises(ValueError, match="row must be >= 1, got 0"):
        accounts.admit(0, request())
    with pytest.raises(ValueError, match="capacity must be >= 2, got 1"):
        TenantAccounts(capacity=1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 5), min_size=5, max_size=5), st.floats(0, 100)),
        max_size=20,
    ),
    st.lists(st.sampled_from("abcdefg"), min_size=5, max_size=5),
)
def test_delay_and_tokens_are_conserved_and_a_state_goes_on(steps, tenants):
    accounts = TenantAccounts(capacity=4)
    for row, tenant in enumerate(tenants, start=1):
        accounts.admit(row, request(tenant))
    delay = verified = 0.0
    for lens, extra_ms in steps:
        step(accounts, [1, 2, 3, 4, 5], lens, extra_ms=extra_ms)
        delay += extra_ms * 4
        verified += sum(lens)
    assert accounts.imposed_ms.min() >= 0.0
    assert accounts.imposed_ms.sum() + accounts.unattributed_ms == pytest.approx(delay)
    reports = accounts.reports()
    assert sum(report.verified_tokens for report in reports) == verified
    copy = TenantAccounts(capacity=4)
    copy.load(accounts.state())
    for one in (accounts, copy):
        step(one, [1, 2, 3, 4, 5], [1, 0, 2, 0, 3], extra_ms=7.0)
    assert copy.reports() == accounts.reports() and copy.delays() == accounts.delays()
    json.dumps(copy.state()["numbers"])


def test_a_state_of_another_capacity_is_refused():
    with pytest.raises(ValueError, match=r"totals must have shape \(4, 6\), got \(8, 6\)"):
        TenantAccounts(capacity=4).load(TenantAccounts(capacity=8).state())
