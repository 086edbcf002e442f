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
import numpy.typing as npt

from acclimate.predictors.acceptance_codes import CONTEXTS, GRAMMARS, TEMPERATURES
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays
from acclimate.predictors.random_effects_kernels import (
    AGES,
    COVARIATES,
    KNOTS,
    N_KINDS,
    NEAR,
    estimate_variances,
    learn_runs,
    predict_positions,
)
from acclimate.predictors.tenant_share import TenantShare

_BIAS_SD, _WEIGHT_SD = 1.5, 0.2
_START_SD = np.array([0.5, 0.6, 0.4, 0.3, 0.2])  # of the kinds of effects, before any evidence
_BEND_SD = 0.3
_PRIOR_PAIRS = 30.0
_WEIGHT_RATE, _SLOT_RATE, _REQUEST_RATE, _BEND_RATE = 1e-5, 1e-4, 0.015, 2e-4
_PAIR_WINDOW_TOKENS = 20_000.0
_REQUEST_WINDOW_TOKENS = 100.0
_SLOT_WINDOW_REQUESTS = 30.0
_LONGEST_RUN = 8
_ESTIMATE_EVERY_TOKENS = 64


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
        self.products = np.zeros((n_slots, N_KINDS))
        self.slopes = np.zeros((n_slots, N_KINDS + 1))
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
        self._estimated_at = 0
        self.quarantined = 0
        self.dropped: Counter[str] = Counter()
        self.reserve(64)
        self._rates = np.array([_WEIGHT_RATE, _SLOT_RATE, _REQUEST_RATE, _BEND_RATE])
        self._prior_bend = np.array([_BEND_SD**2, _BEND_SD**2])
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
        return self._predict(slots, rows, hints, covariates)[0]

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
        mean, _, spread = self._predict(slots, rows, hints, covariates)
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
            Shape (n_slots, 4): graded tokens, and sums of predictions, outcomes and squared errors.
        """
        fits = self._fitting(slots, rows, start, graded, matched)
        hints, covariates = self._codes(slots.shape[0], hints, covariates)
        if not fits.all():
            slots, rows, start, graded, matched, hints, covariates = (
                array[fits] for array in (slots, rows, start, graded, matched, hints, covariates)
            )
        sums = np.zeros((self.n_slots, 4))
        if not slots.shape[0]:
            return sums
        self.slot_of[rows] = slots
        predicted, plain, _ = self._predict(slots, rows, hints, covariates)
        self.quarantined += learn_runs(
            self.weights,
            self.slot_effects,
            self.request_effects,
            self.pool_bend,
            self.slot_bend,
            self.pool,
            self.past,
            self.variances,
            self.products,
            self.slopes,
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
            self._rates,
            self._prior_bend,
            self._keeps,
            predicted,
            plain,
            sums,
        )
        self.tokens += int(graded.sum())
        if self.tokens - self._estimated_at >= _ESTIMATE_EVERY_TOKENS:
            self._estimated_at = self.tokens
            for pool in set(self.pool[slots].tolist()):
                estimate_variances(
                    self.products[pool],
                    self.slopes[pool],
                    self._prior_variance,
                    self.variances[pool],
                    _PRIOR_PAIRS,
                )
        return sums

    def state(self) -> dict[str, Any]:
        """Return everything learned as arrays; predictions after `load` are bitwise the same."""
        return {
            **save_arrays(self, _STATE),
            "tenants": self.tenants.state(),
            "tokens": self.tokens,
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
        self.tenants.load(state["tenants"])
        load_arrays(self, _STATE, state)
        self.tokens = int(state["tokens"])
        self._estimated_at = int(state["estimated_at"])
        self.quarantined = int(state["quarantined"])
        self.dropped = Counter({str(k): int(v) for k, v in state["dropped"].items()})

    def _predict(
        self,
        slots: IntArray,
        rows: IntArray,
        hints: IntArray | None,
        covariates: IntArray | None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        hints, covariates = self._codes(slots.shape[0], hints, covariates)
        probability = np.empty((slots.shape[0], self.max_depth))
        plain, spread = np.empty_like(probability), np.empty_like(probability)
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
            self.n_hints,
            probability,
            plain,
            spread,
        )
        return probability, plain, spread

    def _codes(
        self, n: int, hints: IntArray | None, covariates: IntArray | None
    ) -> tuple[IntArray, IntArray]:
        if hints is None:
            hints = np.zeros((n, self.max_depth), dtype=np.int64)
        elif hints.shape != (n, self.max_depth):
            raise ValueError(f"hints must have shape {(n, self.max_depth)}, got {hints.shape}")
        else:
            hints = np.clip(hints, 0, self.n_hints - 1)
        if covariates is None:
            covariates = np.zeros((n, _LAST_COVARIATE.size), dtype=np.int64)
        elif covariates.shape != (n, _LAST_COVARIATE.size):
            raise ValueError(f"covariates must have shape {(n, 3)}, got {covariates.shape}")
        else:
            covariates = np.clip(covariates, 0, _LAST_COVARIATE)
        return np.ascontiguousarray(hints), np.ascontiguousarray(covariates)

    def _fitting(
        self, slots: IntArray, rows: IntArray, start: IntArray, graded: IntArray, matched: IntArray
    ) -> npt.NDArray[np.bool_]:
        """Return which runs can be; count the others by their first fault."""
        unknown = (slots < 0) | (slots >= self.n_slots) | (rows < 0)
        unknown |= rows >= self.slot_of.shape[0]
        # Each bound by itself: sums of huge numbers would wrap around.
        depth = self.max_depth
        outside = (start < 0) | (start > depth) | (graded < 0) | (graded > depth)
        outside |= start > depth - graded
        impossible = (matched < 0) | (matched > graded)
        faults = unknown | outside | impossible
        if faults.any():
            self.dropped["slot or row is unknown"] += int(unknown.sum())
            self.dropped["position out of range"] += int((outside & ~unknown).sum())
            self.dropped["matched out of range"] += int((impossible & ~outside & ~unknown).sum())
        fits: npt.NDArray[np.bool_] = ~faults
        return fits

    def _start_slots(self, slots: IntArray) -> None:
        self.slot_effects[slots] = 0.0
        variances = self.variances[self.pool[slots]]
        self.slot_effects[slots, 1, 0] = variances[:, N_KINDS - 2]
        self.slot_effects[slots, 1, 1:] = variances[:, N_KINDS - 1 :]
        self.slot_bend[slots, 0] = 0.0
        self.slot_bend[slots, 1] = _BEND_SD**2
        self.slot_sums[slots] = 0.0

    def _start_request(self, row: int) -> None:
        variances = self.variances[self.pool[self.slot_of[row]]]
        self.request_effects[row, 0] = 0.0
        self.request_effects[row, 1] = 0.0
        if row:
            self.request_effects[row, 1, 0] = variances[0]
            self.request_effects[row, 1, 1 : 1 + self.max_depth] = variances[1]
            self.request_effects[row, 1, 1 + self.max_depth :] = variances[2]
        self.past[row] = (-1, 0, 0)

    def _check_slot(self, slot: int) -> None:
        if not 0 <= slot < self.n_slots:
            raise ValueError(f"slot must be in [0, {self.n_slots - 1}], got {slot}")


_LAST_COVARIATE = np.array([CONTEXTS, TEMPERATURES, GRAMMARS]) - 1

_PER_ROW = ("request_effects", "request_sums", "past", "slot_of")
_STATE = (
    "weights",
    "slot_effects",
    "pool_bend",
    "slot_bend",
    "pool",
    "variances",
    "products",
    "slopes",
    "centre",
    "slot_sums",
    *_PER_ROW,
)
