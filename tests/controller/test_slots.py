"""Traffic classes stay apart, bounded, whatever clients call themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.records import RequestInfo
from acclimate.controller.slots import SlotTable


def request(domain="", **more):
    return RequestInfo(request=1, prompt_tokens=1, max_tokens=1, domain=domain, **more)


def test_tenant_adapter_and_domain_keep_classes_apart():
    table = SlotTable(capacity=8)
    slots = {
        table.place(request("code")).slot,
        table.place(request("code", tenant="a")).slot,
        table.place(request("code", tenant="a", adapter="x")).slot,
        table.place(request("code", trust_domain="red")).slot,
    }
    assert len(slots) == 4
    assert table.place(request("code")).slot in slots


def test_pools_live_inside_a_trust_domain():
    table = SlotTable(capacity=8)
    ours = table.place(request("code")).pool
    theirs = table.place(request("code", trust_domain="red")).pool
    assert ours != theirs
    assert table.place(request("prose", trust_domain="red")).pool == theirs


def test_a_flood_of_labels_cannot_evict_a_class_in_use():
    table = SlotTable(capacity=4)
    busy = table.place(request("code")).slot
    for label in range(10_000):
        slot = table.place(request(f"flood {label}")).slot
        table.leave(slot)
    assert table.place(request("code")) == table.place(request("code"))
    assert table.place(request("code")).slot == busy
    assert len(table.open_slots()) <= 4


def test_classes_that_find_no_room_share_a_slot_and_are_counted():
    table = SlotTable(capacity=3)
    for domain in "abcd":
        last = table.place(request(domain))
    assert (last.slot, last.opened, table.shared) == (0, False, 2)
    assert table.label(0) == "other"


def test_what_finds_no_room_stays_in_its_trust_domain():
    table = SlotTable(capacity=4)
    theirs = table.place(request("code", trust_domain="red")).slot
    for domain in "ab":
        table.place(request(domain))
    assert table.place(request("c")).slot == 0
    late = table.place(request("prose", trust_domain="red"))
    assert (late.slot, late.pool, late.opened) == (theirs, theirs, False)


def test_tenants_with_slots_have_numbers_of_their_own():
    table = SlotTable(capacity=4)
    first = table.place(request("code", tenant="a"))
    assert table.place(request("prose", tenant="a")).tenant == first.tenant != 0
    other = table.place(request("code", tenant="b")).tenant
    assert other not in {0, first.tenant}
    assert table.place(request("code", tenant="c")).tenant == 0  # no room
    copy = SlotTable(capacity=4)
    copy.load(table.state())
    assert copy.place(request("code", tenant="b")).tenant == other


def test_a_state_with_slots_outside_the_table_is_refused():
    large, small = SlotTable(capacity=9), SlotTable(capacity=3)
    for domain in "abcdef":
        large.place(request(domain))
    with pytest.raises(ValueError, match=r"slots must be in \[1, 2\]"):
        small.load(large.state())


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=60))
def test_slots_stay_in_range_and_labels_are_stable(keys):
    table = SlotTable(capacity=6)
    for tenant, domain in keys:
        placement = table.place(request(domain, tenant=tenant))
        assert 0 <= placement.slot < 6
        assert 0 <= placement.pool < 6
        table.leave(placement.slot)
    copy = SlotTable(capacity=6)
    copy.load(table.state())
    assert [copy.label(s) for s in range(6)] == [table.label(s) for s in range(6)]


def test_capacity_must_leave_room():
    with pytest.raises(ValueError, match="capacity must be >= 2, got 1"):
        SlotTable(capacity=1)
