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

from collections import Counter
from typing import Any

import numpy as np

from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays
from acclimate.predictors.overdispersion import estimate_variances
from acclimate.predictors.random_effects_arrays import (
    BEND_VARIANCE,
    START_VARIANCES,
    EffectArrays,
)
from acclimate.predictors.random_effects_kernels import N_COVARIATES, predict_positions
from acclimate.predictors.random_effects_learning import FAULTS, learn_runs
from acclimate.predictors.tenant_share import TenantShare

Effects = tuple[
    FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, IntArray, IntArray
]  # fmt: skip
_PRIOR_PAIRS = 30.0
_WEIGHT_RATE, _SLOT_RATE, _REQUEST_RATE, _BEND_RATE = 1e-5, 1e-4, 0.03, 2e-4
_PAIR_WINDOW_TOKENS = 20_000.0
_REQUEST_WINDOW_TOKENS = 100.0
_SHARED_TOKENS = 64  # about as many a step teach what is shared; requests learn from all
_ESTIMATE_EVERY_TOKENS = 1_000


class RandomEffectsAcceptance(EffectArrays):
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
    most_runs
        Runs of a step that are learned from at most, evenly chosen; None for all.

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
        self,
        n_slots: int,
        max_depth: int,
        *,
        n_hints: int = 16,
        tenant_cap: float = 0.5,
        most_runs: int | None = None,
    ) -> None:
        super().__init__(n_slots, max_depth, n_hints)
        self.tenants = TenantShare(n_slots, cap=tenant_cap)
        self.tokens = 0
        self.steps = 0
        self.quarantined = 0
        self._most_runs = most_runs or 2**62
        self._estimated_at = 0
        self.faults = np.zeros(len(FAULTS), dtype=np.int64)
        self._no_hints = np.zeros((0, max_depth), dtype=np.int64)
        self._no_covariates = np.zeros((0, N_COVARIATES), dtype=np.int64)
        self._rates = np.array([_WEIGHT_RATE, _SLOT_RATE, _REQUEST_RATE, _BEND_RATE])
        self._keeps = np.exp(-1.0 / np.array([_REQUEST_WINDOW_TOKENS, _PAIR_WINDOW_TOKENS]))

    @property
    def dropped(self) -> Counter[str]:
        """Runs that could not be learned, by the name of their fault."""
        return Counter({name: n for name, n in zip(FAULTS, self.faults.tolist(), strict=True) if n})

    @property
    def effects(self) -> Effects:
        """The arrays that predictions are made of, in the order of `predict_positions`."""
        return (
            self.weights,
            self.slot_effects,
            self.request_effects,
            self.pool_bend,
            self.slot_bend,
            self.pool,
            self.past,
        )

    def open_slot(self, slot: int, pool: int, tenant: int = 0) -> None:
        """Start a slot afresh in a pool: it predicts as its pool does until it has evidence."""
        self._check_slot(slot)
        self._check_slot(pool)
        self.pool[slot] = pool
        self.tenants.place(slot, pool, tenant)
        self._start_slots(np.array([slot]))

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
        q: FloatArray = self._predict(slots, rows, hints, covariates)[0]
        return q

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
        mean, _, variance = self._predict(slots, rows, hints, covariates)
        odds, spread = np.log(mean) - np.log1p(-mean), np.sqrt(variance)
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
            Shape (n_slots, 5), of the runs that were learned from: graded tokens, sums of
            predictions, outcomes and squared errors, and log loss in nats.
        """
        hints, covariates = self._codes(slots.shape[0], hints, covariates)
        sums = np.zeros((self.n_slots, 5))
        tokens, healed = learn_runs(
            *self.effects,
            self.slot_of,
            self.variances,
            self.pairs,
            self.centre,
            self.prior_weight,
            self.request_sums,
            self.slot_sums,
            slots,
            rows,
            start,
            graded,
            matched,
            hints,
            covariates,
            self.tenants.count(slots, graded),
            self.n_hints,
            self._most_runs,
            _SHARED_TOKENS,
            self.steps,
            self._rates,
            BEND_VARIANCE,
            self._keeps,
            self.faults,
            sums,
        )
        self.quarantined += healed
        self.steps += 1
        self.tokens += tokens
        if self.tokens - self._estimated_at >= _ESTIMATE_EVERY_TOKENS:
            self._estimated_at = self.tokens
            for pool in set(self.pool[sums[:, 0] > 0.0].tolist()):
                estimate_variances(
                    self.pairs[pool], START_VARIANCES, self.variances[pool], _PRIOR_PAIRS
                )
            self._start_request(0, 0)  # an unknown request differs as widely as known ones do
        return sums

    def state(self) -> dict[str, Any]:
        """Return everything learned as plain data; predictions after `load` are bitwise the same."""
        return {
            **super().state(),
            "tenants": self.tenants.state(),
            "tokens": self.tokens,
            "steps": self.steps,
            "estimated_at": self._estimated_at,
            "quarantined": self.quarantined,
            **save_arrays(self, ("faults",)),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of a model of another shape, or holds a value that cannot be.
        """
        load_arrays(self, ("faults",), state)
        super().load(state)
        self.tenants.load(state["tenants"])
        self.tokens = int(state["tokens"])
        self.steps = int(state["steps"])
        self._estimated_at = int(state["estimated_at"])
        self.quarantined = int(state["quarantined"])

    def _predict(
        self,
        slots: IntArray,
        rows: IntArray,
        hints: IntArray | None,
        covariates: IntArray | None,
    ) -> FloatArray:
        """Return q, its log-odds before calibration, and their variance, shape (3, n, max_depth)."""
        n = slots.shape[0]
        result = np.empty((3, n, self.max_depth))
        codes = self._codes(n, hints, covariates)
        whole = np.full(n, self.max_depth)
        predict_positions(*self.effects, slots, rows, *codes, whole, self.n_hints, result)
        return result

    def _codes(
        self, n: int, hints: IntArray | None, covariates: IntArray | None
    ) -> tuple[IntArray, IntArray]:
        if hints is None:
            hints = self._no_hints
        elif hints.shape != (n, self.max_depth):
            raise ValueError(f"hints must have shape {(n, self.max_depth)}, got {hints.shape}")
        if covariates is None:
            covariates = self._no_covariates
        elif covariates.shape != (n, N_COVARIATES):
            raise ValueError(
                f"covariates must have shape {(n, N_COVARIATES)}, got {covariates.shape}"
            )
        return np.ascontiguousarray(hints), np.ascontiguousarray(covariates)
