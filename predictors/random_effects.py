"""Acceptance as a logistic model with random effects of slot and request, learned token by token.

A draft token's log-odds are a sum::

    logit q = w·features + u_slot + u_slot,near + v_request + v_request,position + v_request,renewal

Features are categories: the position, the drafter's hint (match length or confidence), what became
of the request's last draft (its run, and whether it was whole), the request's age, and, where known,
context length, temperature and grammar. All but the covariates count anew for first, second and
later positions. Each term is a normal variable, moved by every token that it concerns in proportion
to its variance (a Newton step), and free to wander by a share of its prior's variance per token, so
that old evidence fades. How widely slots and requests differ is no setting: it is estimated from
overdispersion, the products of residuals of tokens that share a slot or a request. A curve of eight
knots per pool and slot then bends the log-odds until they are calibrated.

References
----------
Spiegelhalter, Lauritzen: Sequential updating of conditional probabilities on directed graphical
structures. Networks 20, 1990.
MacKay: The evidence framework applied to classification networks. Neural Computation 4, 1992.
Williams: Extra-binomial variation in logistic linear models. Applied Statistics 31, 1982.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays
from acclimate.predictors.overdispersion import (
    N_KINDS,
    REQUEST,
    REQUEST_POSITION,
    REQUEST_RENEWAL,
    SLOT,
    SLOT_NEAR,
    estimate_variances,
)
from acclimate.predictors.random_effects_kernels import (
    AGES,
    COVARIATES,
    KNOTS,
    N_COVARIATES,
    NEAR,
    WHOLE,
    predict_positions,
)
from acclimate.predictors.random_effects_learning import find_faults, learn_runs
from acclimate.predictors.tenant_share import TenantShare

_BIAS_SD, _WEIGHT_SD = 1.5, 0.2
_START_SD = np.array([0.5, 0.6, 0.4, 0.3, 0.2])  # of the kinds of effects, before any evidence
_BEND_SD = 0.4
_PRIOR_PAIRS = 30.0
_WEIGHT_RATE, _SLOT_RATE, _REQUEST_RATE, _BEND_RATE = 1e-5, 1e-4, 0.03, 2e-4
_PAIR_WINDOW_TOKENS = 20_000.0
_REQUEST_WINDOW_TOKENS = 100.0
_SLOT_WINDOW_REQUESTS = 30.0
_LONGEST_RUN = 8
_SHARED_TOKENS = 64  # about as many a step teach what is shared; requests learn from all
_ESTIMATE_EVERY_TOKENS = 1_000


class RandomEffectsAcceptance:
    """Conditional acceptance q of every draft position, and how sure of it one may be.

    Parameters
    ----------
    n_slots
        Traffic classes; slot 0 is shared by all that find no room.
    max_depth
        Positions.
    n_hints
        Values of the drafter's hint, 0 (unknown) included; larger ones count as the largest.
    tenant_cap
        Share in (0, 1] that one tenant's tokens may have in what its pool learns, where others
        are active too.

    Examples
    --------
    >>> model = RandomEffectsAcceptance(n_slots=2, max_depth=3)
    >>> model.open_request(1)
    >>> slot, row = np.array([0]), np.array([1])
    >>> for _ in range(200):
    ...     _ = model.learn(slot, row, start=slot, graded=row + 1, matched=row)
    >>> model.predict(slot, row)[0, :2].round(1).tolist()
    [1.0, 0.0]
    """

    def __init__(
        self, n_slots: int, max_depth: int, *, n_hints: int = 16, tenant_cap: float = 0.5
    ) -> None:
        if n_slots < 1 or max_depth < 1 or n_hints < 1:
            raise ValueError(
                "n_slots, max_depth and n_hints must be >= 1, got "
                f"{n_slots}, {max_depth} and {n_hints}"
            )
        self.n_slots = n_slots
        self.max_depth = max_depth
        self.n_hints = n_hints
        self.tenants = TenantShare(n_slots, cap=tenant_cap)
        self._longest = min(max_depth, _LONGEST_RUN)
        renewals = 3 + 2 * self._longest
        n_weights = 1 + max_depth + (n_hints + renewals + AGES) * (1 + NEAR) + COVARIATES
        self._prior_weight = np.full(n_weights, _WEIGHT_SD**2)
        self._prior_weight[0] = _BIAS_SD**2
        self._n_request = 1 + max_depth + renewals
        # In every array of effects, [·, 0, ·] are means and [·, 1, ·] variances.
        self.weights = np.zeros((n_slots, 2, n_weights))
        self.slot_effects = np.zeros((n_slots, 2, 1 + NEAR))
        self.pool_bend = np.zeros((n_slots, 2, KNOTS))
        self.slot_bend = np.zeros((n_slots, 2, KNOTS))
        self.pool = np.zeros(n_slots, dtype=np.int64)
        self._prior_variance = _START_SD**2
        self.variances = np.tile(self._prior_variance, (n_slots, 1))
        self.pairs = np.zeros((n_slots, 2, N_KINDS))
        self.centre = np.zeros((n_slots, 2, max_depth))
        self.slot_sums = np.zeros((n_slots, 2, 1 + NEAR))
        self.weights[:, 1] = self._prior_weight
        self.pool_bend[:, 1] = _BEND_SD**2
        self.slot_bend[:, 1] = _BEND_SD**2
        self._start_slots(np.arange(n_slots))
        self.request_effects = np.zeros((0, 2, self._n_request))
        self.request_sums = np.zeros((0, 2, self._n_request + 1 + NEAR))
        self.past = np.zeros((0, 3), dtype=np.int64)
        self.slot_of = np.zeros(0, dtype=np.int64)
        self.tokens = 0
        self.steps = 0
        self._estimated_at = 0
        self.quarantined = 0
        self.dropped: Counter[str] = Counter()
        self.reserve(64)
        self._rates = np.array([_WEIGHT_RATE, _SLOT_RATE, _REQUEST_RATE, _BEND_RATE])
        self._keeps = np.exp(-1.0 / np.array([_REQUEST_WINDOW_TOKENS, _PAIR_WINDOW_TOKENS]))

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``; row 0 stays an unknown request's."""
        have = self.slot_of.shape[0]
        missing = n_requests - have
        if missing <= 0:
            return
        for name in ("request_effects", "request_sums", "past", "slot_of"):
            array = getattr(self, name)
            added = np.zeros((missing, *array.shape[1:]), dtype=array.dtype)
            setattr(self, name, np.concatenate([array, added]))
        for row in range(have, n_requests):
            self._start_request(row)

    def open_slot(self, slot: int, pool: int, tenant: int = 0) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self._check_slot(slot)
        self._check_slot(pool)
        self.pool[slot] = pool
        self.tenants.place(slot, pool, tenant)
        self._start_slots(np.array([slot]))

    def open_request(self, row: int, slot: int = 0) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.close_request(row)
        self.slot_of[row] = slot
        self._start_request(row)

    def close_request(self, row: int) -> None:
        """Let what a request showed count for how widely requests of its slot's pool differ."""
        slot = self.slot_of[row]
        own = self.request_sums[row, :, self._n_request :]
        if own[1, 0] > 0.0 and np.isfinite(own).all():
            self.slot_sums[slot] *= math.exp(-1.0 / _SLOT_WINDOW_REQUESTS)
            self.slot_sums[slot] += own
        self.request_sums[row] = 0.0

    def predict(
        self,
        slots: IntArray,
        rows: IntArray,
        hints: IntArray | None = None,
        covariates: IntArray | None = None,
    ) -> FloatArray:
        """Return q of each position, given that those before it are accepted.

        Parameters
        ----------
        slots, rows
            Shape (n,): slot and request row of each request; row 0 is a cold request's.
        hints
            Shape (n, max_depth), 0 for unknown: see `match_hints` and `confidence_hints`.
        covariates
            Shape (n, 3): see `covariate_codes`.

        Returns
        -------
        FloatArray
            Shape (n, max_depth), inside (0, 1). Survival is its cumulative product.
        """
        whole = np.full(slots.shape[0], self.max_depth)
        return self._predict(slots, rows, whole, *self._codes(whole.size, hints, covariates))[0]

    def predict_interval(
        self,
        slots: IntArray,
        rows: IntArray,
        hints: IntArray | None = None,
        covariates: IntArray | None = None,
        *,
        sigmas: float = 1.645,
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper bounds of `predict`: so many standard deviations of the log-odds."""
        whole = np.full(slots.shape[0], self.max_depth)
        codes = self._codes(whole.size, hints, covariates)
        mean, _, spread = self._predict(slots, rows, whole, *codes)
        odds = np.log(mean) - np.log1p(-mean)
        low: FloatArray = 1.0 / (1.0 + np.exp(sigmas * spread - odds))
        high: FloatArray = 1.0 / (1.0 + np.exp(-sigmas * spread - odds))
        return low, high

    def learn(
        self,
        slots: IntArray,
        rows: IntArray,
        start: IntArray,
        graded: IntArray,
        matched: IntArray,
        hints: IntArray | None = None,
        covariates: IntArray | None = None,
    ) -> FloatArray:
        """Learn runs of graded tokens, one run per entry of the arrays; all are predicted first.

        A run that cannot be is dropped and counted in `dropped` under the name of its fault.

        Parameters
        ----------
        slots, rows
            Shape (d,): slot and request row of each run; row 0 has no effects of its own.
        start, graded, matched
            Shape (d,): positions ``start + 1 … start + graded`` became known, the first
            ``matched`` of them accepted.
        hints, covariates
            Shapes (d, max_depth) and (d, 3), as in `predict`.

        Returns
        -------
        FloatArray
            Shape (n_slots, 5): graded tokens, sums of predictions, outcomes and squared errors, and
            log loss in nats.
        """
        hints, covariates = self._codes(slots.shape[0], hints, covariates)
        fault = np.empty_like(slots)
        if find_faults(
            slots,
            rows,
            start,
            graded,
            matched,
            self.n_slots,
            self.slot_of.shape[0],
            self.max_depth,
            fault,
        ):
            for number in fault[fault > 0].tolist():
                self.dropped[_FAULTS[number - 1]] += 1
            fits = fault == 0
            slots, rows, start, graded, matched, hints, covariates = (
                array[fits] for array in (slots, rows, start, graded, matched, hints, covariates)
            )
        sums = np.zeros((self.n_slots, 5))
        tokens = int(graded.sum())
        stride = max(tokens // _SHARED_TOKENS, 1)
        predicted, plain, _ = self._predict(slots, rows, start + graded, hints, covariates)
        self.slot_of[rows] = slots
        self.quarantined += learn_runs(
            self.weights,
            self.slot_effects,
            self.request_effects,
            self.pool_bend,
            self.slot_bend,
            self.pool,
            self.past,
            self.variances,
            self.pairs,
            self.centre,
            self._prior_weight,
            self.request_sums,
            self.slot_sums,
            slots,
            rows,
            start,
            graded,
            matched,
            hints,
            covariates,
            self.tenants.influence(slots, graded),
            self.n_hints,
            stride,
            self.steps % stride,
            self._rates,
            _BEND_SD**2,
            self._keeps,
            predicted,
            plain,
            sums,
        )
        self.steps += 1
        self.tokens += tokens
        if self.tokens - self._estimated_at >= _ESTIMATE_EVERY_TOKENS:
            self._estimated_at = self.tokens
            for pool in set(self.pool[slots].tolist()):
                estimate_variances(
                    self.pairs[pool], self._prior_variance, self.variances[pool], _PRIOR_PAIRS
                )
            self._start_request(0)  # an unknown request differs as widely as known ones do
        return sums

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
        self.slot_bend[chosen, 1] = _BEND_SD**2
        rows = np.flatnonzero(np.isin(self.slot_of, chosen))
        own = self.variances[self.pool[self.slot_of[rows]]]
        self._widen_requests(rows, own)
        if slot is None:
            self.weights[:, 1] = self._prior_weight
            self.pool_bend[:, 1] = _BEND_SD**2

    def state(self) -> dict[str, Any]:
        """Return everything learned as arrays; predictions after `load` are bitwise the same."""
        return {
            **save_arrays(self, _STATE),
            "tenants": self.tenants.state(),
            "tokens": self.tokens,
            "steps": self.steps,
            "estimated_at": self._estimated_at,
            "quarantined": self.quarantined,
            "dropped": dict(self.dropped),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of a model of another shape, or holds a value that is not finite.
        """
        rows = np.asarray(state["slot_of"]).shape[0]
        for name in _STATE:
            found, have = np.asarray(state[name]), getattr(self, name).shape
            wanted = (rows, *have[1:]) if name in _PER_ROW else have
            if found.shape != wanted:
                raise ValueError(f"{name} must have shape {wanted}, got {found.shape}")
            if not np.isfinite(found).all():
                raise ValueError(f"{name} must be finite, got NaN or infinity")
        for name in ("pool", "slot_of"):
            found = np.asarray(state[name])
            if found.size and not 0 <= found.min() <= found.max() < self.n_slots:
                raise ValueError(f"{name} must be in [0, {self.n_slots - 1}]")
        past = np.asarray(state["past"])
        if past.size and not (past.min() >= -1 and set(past[:, WHOLE].tolist()) <= {0, 1}):
            raise ValueError("past must be counts and flags, got others")
        self.tenants.load(state["tenants"])
        load_arrays(self, _STATE, state)
        self.tokens = int(state["tokens"])
        self.steps = int(state["steps"])
        self._estimated_at = int(state["estimated_at"])
        self.quarantined = int(state["quarantined"])
        self.dropped = Counter({str(k): int(v) for k, v in state["dropped"].items()})

    def _predict(
        self,
        slots: IntArray,
        rows: IntArray,
        positions: IntArray,
        hints: IntArray,
        covariates: IntArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return q, its log-odds before calibration, and their spread, up to the positions named."""
        result = np.empty((3, slots.shape[0], self.max_depth))
        predict_positions(
            self.weights,
            self.slot_effects,
            self.request_effects,
            self.pool_bend,
            self.slot_bend,
            self.pool,
            self.past,
            slots,
            rows,
            hints,
            covariates,
            positions,
            self.n_hints,
            result[0],
            result[1],
            result[2],
        )
        return result[0], result[1], result[2]

    def _codes(
        self, n: int, hints: IntArray | None, covariates: IntArray | None
    ) -> tuple[IntArray, IntArray]:
        if hints is None:
            hints = np.zeros((n, self.max_depth), dtype=np.int64)
        elif hints.shape != (n, self.max_depth):
            raise ValueError(f"hints must have shape {(n, self.max_depth)}, got {hints.shape}")
        if covariates is None:
            covariates = np.zeros((n, N_COVARIATES), dtype=np.int64)
        elif covariates.shape != (n, N_COVARIATES):
            raise ValueError(
                f"covariates must have shape {(n, N_COVARIATES)}, got {covariates.shape}"
            )
        return np.ascontiguousarray(hints), np.ascontiguousarray(covariates)

    def _start_slots(self, slots: IntArray) -> None:
        self.slot_effects[slots] = 0.0
        variances = self.variances[self.pool[slots]]
        self.slot_effects[slots, 1, 0] = variances[:, SLOT]
        self.slot_effects[slots, 1, 1:] = variances[:, SLOT_NEAR, None]
        self.slot_bend[slots, 0] = 0.0
        self.slot_bend[slots, 1] = _BEND_SD**2
        self.slot_sums[slots] = 0.0

    def _start_request(self, row: int) -> None:
        self.request_effects[row, 0] = 0.0
        self._widen_requests(np.array([row]), self.variances[self.pool[self.slot_of[[row]]]])
        self.past[row] = (-1, 0, 0)

    def _widen_requests(self, rows: IntArray, variances: FloatArray) -> None:
        """Give requests' effects the variances of their kinds, shape (rows, kinds)."""
        depth = self.max_depth
        self.request_effects[rows, 1, 0] = variances[:, REQUEST]
        self.request_effects[rows, 1, 1 : 1 + depth] = variances[:, REQUEST_POSITION, None]
        self.request_effects[rows, 1, 1 + depth :] = variances[:, REQUEST_RENEWAL, None]

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.n_slots:
            raise ValueError(f"slot must be in [0, {self.n_slots - 1}], got {slot}")


_FAULTS = ("slot or row is unknown", "position out of range", "matched out of range")
_PER_ROW = ("request_effects", "request_sums", "past", "slot_of")
_STATE = (
    "weights",
    "slot_effects",
    "pool_bend",
    "slot_bend",
    "pool",
    "variances",
    "pairs",
    "centre",
    "slot_sums",
    *_PER_ROW,
)
