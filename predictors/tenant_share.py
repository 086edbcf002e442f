"""How much each tenant may say in what a pool learns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_WINDOW_TOKENS = 5_000.0
_ALONE_TOKENS = 50.0  # with fewer tokens of others, a tenant is alone
_MAX_TENANTS = 64
_STATE = ("pool", "tenant", "tokens")


class TenantShare:
    """Weighs a tenant's tokens so that its share of its pool's recent learning stays below a cap.

    With own tokens a and others' tokens b, a weight w keeps w·a/(w·a + b) at the cap. A tenant that
    is alone weighs 1: there is nobody to protect.

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
    ...     weight = shares.influence(slots, np.array([9, 1]))
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

    def place(self, slot: int, pool: int, tenant: int) -> None:
        """Say which pool and tenant (any number >= 0) a slot belongs to."""
        if tenant < 0:
            raise ValueError(f"tenant must be >= 0, got {tenant}")
        self.pool[slot] = pool
        self.tenant[slot] = tenant % _MAX_TENANTS

    def influence(self, slots: IntArray, graded: IntArray) -> FloatArray:
        """Count runs of graded tokens, shape (d,), and return the weight of each in its pool."""
        weight = np.ones(slots.shape[0])
        if self.cap < 1.0:
            _weigh(self.pool, self.tenant, self.tokens, slots, graded, self.cap, weight)
        return weight

    def state(self) -> dict[str, Any]:
        """Return the counts as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another shape, or not finite.
        """
        for name in _STATE:
            found, have = np.asarray(state[name]), getattr(self, name)
            if found.shape != have.shape or not np.isfinite(found).all():
                raise ValueError(f"{name} must be finite with shape {have.shape}")
        load_arrays(self, _STATE, state)


@compiled("void(i8[::1], i8[::1], f8[:,::1], i8[::1], i8[::1], f8, f8[::1])")
def _weigh(
    pool: IntArray,
    tenant: IntArray,
    tokens: FloatArray,
    slots: IntArray,
    graded: IntArray,
    cap: float,
    weight: FloatArray,
) -> None:
    for d in range(slots.shape[0]):
        row = tokens[pool[slots[d]]]
        row *= math.exp(-graded[d] / _WINDOW_TOKENS)
        row[tenant[slots[d]]] += graded[d]
    for d in range(slots.shape[0]):
        row = tokens[pool[slots[d]]]
        own = row[tenant[slots[d]]]
        others = row.sum() - own
        if others >= _ALONE_TOKENS:
            weight[d] = min(cap * others / ((1.0 - cap) * max(own, 1e-9)), 1.0)
