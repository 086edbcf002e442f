"""Keeps traffic classes apart: (trust domain, tenant, adapter, domain) → a bounded slot number."""

from __future__ import annotations

import dataclasses
from typing import Any

from acclimate.controller.records import RequestInfo
from acclimate.predictors.numerics import check_range

_OTHER = "other"
Key = tuple[str, str, str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Where a request was put: its slot, the slot of its pool, whether the slot is new, and a
    number for its tenant that no other tenant with a slot has."""

    slot: int
    pool: int
    opened: bool
    tenant: int = 0


class SlotTable:
    """A bounded map from traffic classes to slots.

    Slot 0 is shared by whatever finds no room, but for a trust domain that has slots: its first one
    takes the rest in, so that what is learned stays inside. When the table is full, the idle slot that served
    the fewest requests gives way: a flood of new labels cannot evict a class that is in use.
    Pools live inside a trust domain; a pool's number is the first slot of that trust domain.

    Parameters
    ----------
    capacity
        Slots, the shared one included.

    Examples
    --------
    >>> table = SlotTable(capacity=3)
    >>> code = RequestInfo(request=1, prompt_tokens=5, max_tokens=9, domain="code")
    >>> table.place(code).slot, table.label(1)
    (1, 'code')
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 2:
            raise ValueError(f"capacity must be >= 2, got {capacity}")
        self.capacity = capacity
        self.shared = 0
        self._slots: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._live = [0] * capacity
        self._served = [0] * capacity
        self._pools: dict[str, int] = {"": 0}
        self._tenants: dict[tuple[str, str], int] = {}  # of those with slots; 0: nobody's

    def place(self, request: RequestInfo) -> Placement:
        """Return where a request belongs, opening a slot if there is room."""
        key = (request.trust_domain, request.tenant, request.adapter, request.domain)
        slot = self._slots.get(key)
        opened = slot is None
        if slot is None:
            slot = self._free_slot()
            if slot:
                self._slots[key] = slot
                self._keys[slot] = key
                self._served[slot] = 0
                self._number_tenant(key)
            else:
                slot, opened = self._pools.get(request.trust_domain, 0), False
                self.shared += 1
        self._live[slot] += 1
        self._served[slot] += 1
        pool = self._pools.setdefault(request.trust_domain, slot) if slot else 0
        return Placement(slot, pool, opened, self._tenants.get(key[:2], 0))

    def leave(self, slot: int) -> None:
        """A request of this slot ended."""
        self._live[slot] -= 1

    def live(self, slot: int) -> int:
        """Return the requests of a slot that have not left."""
        return self._live[slot]

    def vacate(self) -> None:
        """Let all requests have left: those of an engine that is no more."""
        self._live = [0] * self.capacity

    def label(self, slot: int) -> str:
        """Return a short name for people: the domain, with what sets it apart from others."""
        key = self._keys.get(slot)
        if key is None:
            return _OTHER
        trust, tenant, adapter, domain = key
        parts = [part for part in (trust, tenant, adapter) if part]
        return "/".join([*parts, domain or "default"])

    def key(self, slot: int) -> Key | None:
        """Return trust domain, tenant, adapter and domain of a slot; None for the shared one."""
        return self._keys.get(slot)

    def open_slots(self) -> list[int]:
        """Return the slots in use, ascending, the shared one first."""
        return [0, *sorted(self._keys)]

    def state(self) -> dict[str, Any]:
        """Return the table as plain data."""
        return {
            "keys": [[slot, *key] for slot, key in sorted(self._keys.items())],
            "live": list(self._live),
            "served": list(self._served),
            "pools": dict(self._pools),
            "tenants": [[number, *tenant] for tenant, number in self._tenants.items()],
            "shared": self.shared,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            It has another capacity, or slots outside of it.
        """
        check_range("slots", [row[0] for row in state["keys"]], 1, self.capacity - 1)
        check_range("pools", list(state["pools"].values()), 0, self.capacity - 1)
        if not len(state["live"]) == len(state["served"]) == self.capacity:
            raise ValueError(f"slots must be {self.capacity}, got {len(state['live'])}")
        self._keys = {int(row[0]): (row[1], row[2], row[3], row[4]) for row in state["keys"]}
        self._slots = {key: slot for slot, key in self._keys.items()}
        self._live = list(state["live"])
        self._served = list(state["served"])
        self._pools = dict(state["pools"])
        self.shared = int(state["shared"])
        self._tenants = {(row[1], row[2]): int(row[0]) for row in state.get("tenants", ())}
        for key in self._keys.values():
            self._number_tenant(key)

    def _free_slot(self) -> int:
        if len(self._keys) < self.capacity - 1:
            return next(slot for slot in range(1, self.capacity) if slot not in self._keys)
        pools = set(self._pools.values())
        idle = [slot for slot in self._keys if not self._live[slot] and slot not in pools]
        if not idle:
            return 0
        slot = min(idle, key=lambda s: (self._served[s], s))
        key = self._keys.pop(slot)
        del self._slots[key]
        if all(other[:2] != key[:2] for other in self._slots):
            self._tenants.pop(key[:2], None)
        return slot

    def _number_tenant(self, key: Key) -> None:
        """Give a tenant with a slot the lowest number that is free; one without a name has none."""
        tenant = key[:2]
        if tenant[1] and tenant not in self._tenants:
            taken = set(self._tenants.values())
            self._tenants[tenant] = next(n for n in range(1, self.capacity) if n not in taken)
