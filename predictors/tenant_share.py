"""How much each tenant may say in what a pool learns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import (
    FloatArray,
    IntArray,
    check_range,
    load_arrays,
    save_arrays,
)

_WINDOW_TOKENS = 5_000.0
_ALONE_TOKENS = 50.0  # with fewer tokens of others, a tenant is alone
_MAX_TENANTS = 64
_STATE = ("pool", "tenant", "tokens", "weight")


class TenantShare:
    """Weighs a tenant's tokens so that its share of its pool's recent learning stays below a cap.

    With own tokens a and others' tokens b, a weight w keeps w·a/(w·a + b) at the cap. A tenant that
    is alone weighs 1: there is nobody to protect, and nothing is counted.

    Parameters
    ----------
    n_slots
        Slots; as many pools at most.
    cap
        Share in (0, 1].

    Examples
    --------
    >>> shares = TenantShare(n_slots=2, cap=0.5)
    >>> shares.place(0, pool=0, tenant=0)
    >>> shares.place(1, pool=0, tenant=1)
    >>> slots = np.array([0, 1])
    >>> for _ in range(100):
    ...     weight = shares.count(slots, np.array([9, 1]))
    >>> weight.round(2).tolist()
    [0.11, 1.0]
    """

    def __init__(self, n_slots: int, *, cap: float) -> None:
        if not 0.0 < cap <= 1.0:
            raise ValueError(f"cap must be in (0, 1], got {cap}")
        self.cap = cap
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self.tenant = np.zeros(n_slots, dtype=np.int64)
        self.tokens = np.zeros((n_slots, _MAX_TENANTS))
        self.weight = np.ones(n_slots)
        self._alone = True

    def place(self, slot: int, pool: int, tenant: int) -> None:
        """Say which pool and tenant (any number >= 0) a slot belongs to."""
        if tenant < 0:
            raise ValueError(f"tenant must be >= 0, got {tenant}")
        self.pool[slot] = pool
        self.tenant[slot] = tenant % _MAX_TENANTS
        self.weight[slot] = 1.0
        self._alone = not self.tenant.any()

    def count(self, slots: IntArray, graded: IntArray) -> FloatArray:
        """Count runs of graded tokens, shape (d,), and return each slot's weight in its pool.

        Runs of slots that are unknown, or of fewer than no tokens, count nothing.
        """
        if not self._alone and self.cap < 1.0:
            _count(self.pool, self.tenant, self.tokens, slots, graded, self.cap, self.weight)
        return self.weight

    def state(self) -> dict[str, Any]:
        """Return the counts as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another shape, or holds a value that cannot be.
        """
        check_range("pool", state["pool"], 0, self.pool.shape[0] - 1)
        check_range("tenant", state["tenant"], 0, _MAX_TENANTS - 1)
        load_arrays(self, _STATE, state, finite=True)
        self._alone = not self.tenant.any()


@compiled("void(i8[::1], i8[::1], f8[:,::1], i8[::1], i8[::1], f8, f8[::1])")
def _count(
    pool: IntArray,
    tenant: IntArray,
    tokens: FloatArray,
    slots: IntArray,
    graded: IntArray,
    cap: float,
    weight: FloatArray,
) -> None:
    n_slots = pool.shape[0]
    seen, by_pool = np.zeros(n_slots), np.zeros(n_slots)
    for d in range(slots.shape[0]):
        if 0 <= slots[d] < n_slots and graded[d] > 0:
            seen[slots[d]] += graded[d]
            by_pool[pool[slots[d]]] += graded[d]
    for p in range(n_slots):
        if by_pool[p] > 0.0:
            tokens[p] *= math.exp(-by_pool[p] / _WINDOW_TOKENS)
    for slot in range(n_slots):
        if seen[slot] > 0.0:
            tokens[pool[slot], tenant[slot]] += seen[slot]
    for slot in range(n_slots):
        if seen[slot] > 0.0:
            own = tokens[pool[slot], tenant[slot]]
            others = tokens[pool[slot]].sum() - own
            weight[slot] = 1.0
            if others >= _ALONE_TOKENS:
                weight[slot] = min(cap * others / ((1.0 - cap) * max(own, 1e-9)), 1.0)
