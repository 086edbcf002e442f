"""The arrays behind `acclimate.predictors.random_effects`: shapes, priors, starting over, saving."""

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
from acclimate.predictors.overdispersion import (
    N_KINDS,
    REQUEST,
    REQUEST_POSITION,
    REQUEST_RENEWAL,
    SLOT,
    SLOT_NEAR,
)
from acclimate.predictors.random_effects_kernels import (
    AGE,
    AGES,
    COVARIATES,
    KNOTS,
    NEAR,
    RUN,
    WHOLE,
)

BEND_VARIANCE = 0.4**2
"""Prior variance of a knot of the calibration curves."""
START_VARIANCES = np.array([0.5, 0.6, 0.4, 0.3, 0.2]) ** 2
"""Of the kinds of effects, before any evidence."""
_BIAS_SD, _WEIGHT_SD = 1.5, 0.2
_LONGEST_RUN = 8
_SLOT_KEEP = float(np.exp(-1.0 / 30.0))  # of a slot's sums, per request that ended


class EffectArrays:
    """Every effect's mean and variance, and the sums from which variances are estimated.

    In every array of effects, [·, 0, ·] are means and [·, 1, ·] variances.

    Parameters
    ----------
    n_slots
        Traffic classes; slot 0 is shared by all that find no room.
    max_depth
        Positions.
    n_hints
        Values of the drafter's hint, 0 (unknown) included.
    """

    def __init__(self, n_slots: int, max_depth: int, n_hints: int) -> None:
        if n_slots < 1 or max_depth < 1 or n_hints < 1:
            raise ValueError(
                "n_slots, max_depth and n_hints must be >= 1, got "
                f"{n_slots}, {max_depth} and {n_hints}"
            )
        self.n_slots = n_slots
        self.max_depth = max_depth
        self.n_hints = n_hints
        renewals = 3 + 2 * min(max_depth, _LONGEST_RUN)
        n_weights = 1 + max_depth + (n_hints + renewals + AGES) * (1 + NEAR) + COVARIATES
        self.prior_weight = np.full(n_weights, _WEIGHT_SD**2)
        self.prior_weight[0] = _BIAS_SD**2
        self.weights = np.zeros((n_slots, 2, n_weights))
        self.slot_effects = np.zeros((n_slots, 2, 1 + NEAR))
        self.pool_bend = np.zeros((n_slots, 2, KNOTS))
        self.slot_bend = np.zeros((n_slots, 2, KNOTS))
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self.variances = np.tile(START_VARIANCES, (n_slots, 1))
        self.pairs = np.zeros((n_slots, 2, N_KINDS))
        self.centre = np.zeros((n_slots, 2, max_depth))
        self.slot_sums = np.zeros((n_slots, 2, 1 + NEAR))
        self.weights[:, 1] = self.prior_weight
        self.pool_bend[:, 1] = BEND_VARIANCE
        self._start_slots(np.arange(n_slots))
        n_request = 1 + max_depth + renewals
        self.request_effects = np.zeros((0, 2, n_request))
        self.request_sums = np.zeros((0, 2, n_request + 1 + NEAR))
        self.past = np.zeros((0, 3), dtype=np.int64)
        self.slot_of = np.zeros(0, dtype=np.int64)
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``; row 0 stays an unknown request's."""
        have = self.slot_of.shape[0]
        missing = n_requests - have
        if missing <= 0:
            return
        for name in PER_ROW:
            array = getattr(self, name)
            added = np.zeros((missing, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, added]))
        for row in range(have, n_requests):
            self._start_request(row, 0)

    def open_request(self, row: int, slot: int = 0) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self._start_request(row, slot)

    def close_request(self, row: int) -> None:
        """Let what a request showed count for how widely requests of its slot's pool differ."""
        _close_request(self.request_sums, self.slot_sums, self.slot_of, row)

    def loosen(self, slot: int | None = None) -> None:
        """Make a slot, or everything, as uncertain as before any evidence; means are kept.

        What was believed stays the best guess, and the next tokens count for as much as a new
        slot's: for a change-point that was declared or detected.
        """
        if slot is not None:
            self._check_slot(slot)
        chosen = np.arange(self.n_slots) if slot is None else np.array([slot])
        own = self.variances[self.pool[chosen]]
        self.slot_effects[chosen, 1, 0] = own[:, SLOT]
        self.slot_effects[chosen, 1, 1:] = own[:, SLOT_NEAR, None]
        self.slot_bend[chosen, 1] = BEND_VARIANCE
        for row in np.flatnonzero(np.isin(self.slot_of, chosen)).tolist():
            _widen(
                self.request_effects, self.variances, self.pool, self.slot_of, row, self.max_depth
            )
        if slot is None:
            self.weights[:, 1] = self.prior_weight
            self.pool_bend[:, 1] = BEND_VARIANCE

    def state(self) -> dict[str, Any]:
        """Return all arrays."""
        return save_arrays(self, STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of a model of another shape, or holds a value that cannot be.
        """
        for name in ("pool", "slot_of"):
            check_range(name, state[name], 0, self.n_slots - 1)
        past = np.asarray(state["past"])
        if past.size and not (past.min() >= -1 and np.isin(past[..., WHOLE], (0, 1)).all()):
            raise ValueError("past must be counts and flags, got others")
        if len({len(state[name]) for name in PER_ROW}) > 1:
            raise ValueError(f"{', '.join(PER_ROW)} must be of as many requests")
        load_arrays(self, STATE, state, growing=PER_ROW, finite=True)

    def _start_slots(self, slots: IntArray) -> None:
        self.slot_effects[slots] = 0.0
        variances = self.variances[self.pool[slots]]
        self.slot_effects[slots, 1, 0] = variances[:, SLOT]
        self.slot_effects[slots, 1, 1:] = variances[:, SLOT_NEAR, None]
        self.slot_bend[slots, 0] = 0.0
        self.slot_bend[slots, 1] = BEND_VARIANCE
        self.slot_sums[slots] = 0.0

    def _start_request(self, row: int, slot: int) -> None:
        _start_request(
            self.request_effects,
            self.request_sums,
            self.slot_sums,
            self.past,
            self.variances,
            self.pool,
            self.slot_of,
            row,
            slot,
            self.max_depth,
        )

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.n_slots:
            raise ValueError(f"slot must be in [0, {self.n_slots - 1}], got {slot}")


PER_ROW = ("request_effects", "request_sums", "past", "slot_of")
STATE = (
    "weights",
    "slot_effects",
    "pool_bend",
    "slot_bend",
    "pool",
    "variances",
    "pairs",
    "centre",
    "slot_sums",
    *PER_ROW,
)


@compiled("void(f8[:,:,::1], f8[:,:,::1], i8[::1], i8)")
def _close_request(sums: FloatArray, of_slot: FloatArray, slot_of: IntArray, row: int) -> None:
    """Add a request's last sums to its slot's, and start them over."""
    slot, width = slot_of[row], of_slot.shape[2]
    first = sums.shape[2] - width
    fits = sums[row, 1, first] > 0.0
    for k in range(2):
        for j in range(width):
            fits = fits and math.isfinite(sums[row, k, first + j])
    for k in range(2):
        for j in range(width):
            if fits:
                of_slot[slot, k, j] = _SLOT_KEEP * of_slot[slot, k, j] + sums[row, k, first + j]
        for j in range(sums.shape[2]):
            sums[row, k, j] = 0.0


@compiled("void(f8[:,:,::1], f8[:,::1], i8[::1], i8[::1], i8, i8)")
def _widen(
    effects: FloatArray,
    variances: FloatArray,
    pool: IntArray,
    slot_of: IntArray,
    row: int,
    depth: int,
) -> None:
    """Give a request's effects the variances of their kinds."""
    p = pool[slot_of[row]]
    effects[row, 1, 0] = variances[p, REQUEST]
    for k in range(1, effects.shape[2]):
        kind = REQUEST_POSITION if k <= depth else REQUEST_RENEWAL
        effects[row, 1, k] = variances[p, kind]


@compiled(
    "void(f8[:,:,::1], f8[:,:,::1], f8[:,:,::1], i8[:,::1], f8[:,::1], i8[::1], i8[::1],i8, i8, i8)"
)
def _start_request(
    effects: FloatArray,
    sums: FloatArray,
    of_slot: FloatArray,
    past: IntArray,
    variances: FloatArray,
    pool: IntArray,
    slot_of: IntArray,
    row: int,
    slot: int,
    depth: int,
) -> None:
    _close_request(sums, of_slot, slot_of, row)
    slot_of[row] = slot
    for k in range(effects.shape[2]):
        effects[row, 0, k] = 0.0
    _widen(effects, variances, pool, slot_of, row, depth)
    past[row, RUN], past[row, WHOLE], past[row, AGE] = -1, 0, 0
