"""What is believed of acceptance: count tables and the random-effects model, mixed per slot.

The tables are the floor: quick after a shift, and never far off. The model knows more of a request (its
drafter's confidence, what became of its last draft, how it differs from others) and moves slowly.
Each slot's share of the model follows from the log loss of both on the latest tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.acceptance_mix_kernels import HANDICAP_NATS, mixed_survival, settle
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays
from acclimate.predictors.random_effects import RandomEffectsAcceptance
from acclimate.predictors.random_effects_kernels import N_COVARIATES

_STATE = ("advantage",)
_WINDOW_TOKENS = 400.0
_MOST_RUNS = 16  # of a step that the model learns from


class AcceptanceMix:
    """Survival of draft tokens per request, from two learners of different kinds.

    Parameters
    ----------
    n_slots, max_depth
        Traffic classes and positions.
    window_tokens, request_window_tokens
        Memory of the count tables, see `AcceptanceTable`.

    Examples
    --------
    >>> mix = AcceptanceMix(n_slots=2, max_depth=3)
    >>> mix.open_request(1, slot=0)
    >>> none, one = np.array([0]), np.array([1])
    >>> for _ in range(300):
    ...     _ = mix.learn(none, one, start=none, graded=one + 1, matched=one)
    >>> mix.survival(none, one)[0, :2].round(1).tolist()
    [1.0, 0.0]
    """

    def __init__(
        self,
        n_slots: int,
        max_depth: int,
        *,
        window_tokens: float = 400.0,
        request_window_tokens: float = 40.0,
    ) -> None:
        self.n_slots = n_slots
        self.max_depth = max_depth
        self.table = AcceptanceTable(
            n_slots,
            max_depth,
            window_tokens=window_tokens,
            request_window_tokens=request_window_tokens,
        )
        self.model = RandomEffectsAcceptance(n_slots, max_depth, most_runs=_MOST_RUNS)
        # Log loss of the table above that of the model, decayed, in nats.
        self.advantage = np.zeros(n_slots)
        self._keep = float(np.exp(-1.0 / _WINDOW_TOKENS))
        self._no_hints = np.zeros((0, max_depth), dtype=np.int64)
        self._no_covariates = np.zeros((0, N_COVARIATES), dtype=np.int64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        self.table.reserve(n_requests)
        self.model.reserve(n_requests)

    def open_slot(self, slot: int, pool: int, tenant: int = 0) -> None:
        """Start a slot of a tenant afresh in a pool."""
        self.table.open_slot(slot, pool)
        self.model.open_slot(slot, pool, tenant)
        self.advantage[slot] = self.advantage[pool]

    def open_request(self, row: int, slot: int) -> None:
        """Start a request row afresh: it predicts as its slot does."""
        self.table.open_request(row)
        self.model.open_request(row, slot)

    def close_request(self, row: int) -> None:
        """Let a request that ended tell how widely requests differ."""
        self.model.close_request(row)

    @property
    def share(self) -> FloatArray:
        """The model's share of each slot's predictions, shape (n_slots,)."""
        share: FloatArray = 1.0 / (1.0 + np.exp(HANDICAP_NATS - self.advantage))
        return share

    def survival(
        self,
        slots: IntArray,
        rows: IntArray,
        hints: IntArray | None = None,
        positions: IntArray | None = None,
    ) -> FloatArray:
        """Return P(the first i drafts are all accepted), shape ``(n, max_depth)``.

        Parameters
        ----------
        slots, rows
            Shape (n,); row 0 is a cold request's.
        hints
            Shape (n, max_depth): see `confidence_hints`; None where the drafter says nothing.
        positions
            Shape (n,): how many positions are asked for, the others are 0; None for all.
        """
        if positions is None:
            positions = np.full(slots.shape[0], self.max_depth)
        return mixed_survival(
            self.table.log_odds,
            self.table.offset,
            self.advantage,
            *self.model.effects,
            slots,
            rows,
            self._no_hints if hints is None else hints,
            self._no_covariates,
            positions,
            self.model.n_hints,
        )

    def predict_slots(self) -> FloatArray:
        """Return q of a slot's requests taken together, shape ``(n_slots, max_depth)``.

        That is what the tables count. The model speaks of single requests, and what it says of one
        that nothing is known of is not the mean of all.
        """
        return self.table.predict_slots()

    def learn(
        self,
        slots: IntArray,
        rows: IntArray,
        start: IntArray,
        graded: IntArray,
        matched: IntArray,
        hints: IntArray | None = None,
    ) -> FloatArray:
        """Learn runs of graded tokens, and return sums per slot as `AcceptanceTable.learn` does.

        The model learns from every run of a small step, and from an even choice of a large one's.
        """
        influence = self.model.tenants.weight
        sums = self.table.learn(slots, rows, start, graded, matched, influence)
        theirs = self.model.learn(slots, rows, start, graded, matched, hints)
        settle(self.advantage, sums, theirs, self._keep)
        return sums

    def doubt(self, slot: int) -> None:
        """Take a slot's older evidence for doubtful: a shift was noticed."""
        self.table.catch_up(slot)
        self.model.loosen(slot)
        self.advantage[slot] = 0.0

    def shake(self) -> None:
        """Keep little of all evidence: what it was learned from is known to be over."""
        self.table.shake()
        self.model.loosen()
        self.advantage[:] = 0.0

    def state(self) -> dict[str, Any]:
        """Return both learners' states."""
        return {
            **save_arrays(self, _STATE),
            "table": self.table.state(),
            "model": self.model.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state, finite=True)
        self.table.load(state["table"])
        self.model.load(state["model"])
