"""Targets, debt and twin of every request: two tables with a row for each, and what they say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray, RequestInfo, Slo
from acclimate.controller.slo_kernels import (
    ARRIVAL_NS,
    BEST_RATE,
    COUNTS,
    DEBT,
    DUE_S,
    E2E_S,
    FIRST_RATE,
    GAINED,
    IMPORTANCE,
    KIND,
    LEFT,
    LIMIT,
    SEEN,
    SLACK_S,
    STATE,
    SUMS,
    TOKEN_RATE,
    TWIN,
    WAITING,
    paces_ms,
    twin_margins,
)
from acclimate.predictors.numerics import load_arrays, save_arrays, with_rows

_NO_TARGETS = Slo()
_TABLES = ("sums", "counts")


class PromiseTable:
    """The rows that `acclimate.controller.slo.SloLedger` writes, by column what they mean.

    Columns are those of `acclimate.controller.slo_kernels`, rows those of
    `acclimate.controller.requests.RequestRows`; row 0 is a request that is not known.

    Examples
    --------
    >>> table = PromiseTable()
    >>> table.open(1, RequestInfo(
    ...     request=7, prompt_tokens=9, max_tokens=50, slo=Slo(tpot_s=0.05), importance=2.0), kind=0)
    >>> rows = np.array([0, 1])
    >>> table.tpot_s(rows).tolist(), table.importance(rows).tolist()
    ([inf, 0.05], [1.0, 2.0])
    """

    def __init__(self) -> None:
        self.sums = np.zeros((0, SUMS))
        self.counts = np.zeros((0, COUNTS), dtype=np.int64)
        self.last_row = 0
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        if n_requests > self.sums.shape[0]:
            self.sums = with_rows(self.sums, n_requests)
            self.counts = with_rows(self.counts, n_requests)
            self.sums[0, IMPORTANCE] = 1.0
            self.sums[0, (SLACK_S, DUE_S)] = math.inf

    def open(self, row: int, request: RequestInfo, kind: int) -> None:
        """Open a row for a request of class ``kind`` that waits for its first token.

        Raises
        ------
        ValueError
            The row is 0, which stands for unknown requests.
        """
        if row < 1:
            raise ValueError(f"row must be >= 1, got {row}")
        self.reserve(row + 1)
        self.last_row = max(self.last_row, row)
        slo = request.slo or _NO_TARGETS
        sums, counts = self.sums[row], self.counts[row]
        sums[:] = 0.0
        sums[TOKEN_RATE] = _rate(slo.tpot_s)
        sums[FIRST_RATE] = _rate(slo.ttft_s)
        sums[E2E_S] = slo.e2e_s or 0.0
        sums[IMPORTANCE] = request.importance
        sums[SLACK_S] = sums[DUE_S] = sums[BEST_RATE] = math.inf
        counts[:] = 0
        counts[STATE] = WAITING
        counts[ARRIVAL_NS] = -1 if request.arrival_ns is None else request.arrival_ns
        counts[LIMIT] = request.max_tokens
        counts[KIND] = kind
        counts[SEEN] = -1

    def close(self, row: int) -> None:
        """Free a row."""
        self.counts[row] = 0
        self.sums[row] = 0.0

    def tpot_s(self, rows: IntArray) -> FloatArray:
        """Return the targets for the time per token, shape (n,); infinite where there is none."""
        rates = np.zeros(rows.shape[0])
        known = rows < self.sums.shape[0]
        rates[known] = self.sums[rows[known], TOKEN_RATE]
        targets = np.full(rates.shape, np.inf)
        np.divide(1.0, rates, out=targets, where=rates > 0)
        return targets

    def importance(self, rows: IntArray) -> FloatArray:
        """Return u, shape (n,)."""
        return self._column(rows, IMPORTANCE)

    def debt_tokens(self, rows: IntArray) -> FloatArray:
        """Return Z as of the last look, shape (n,)."""
        return self._column(rows, DEBT)

    def paces_ms(self, rows: IntArray, *, plain_ms: float = 0.0) -> FloatArray:
        """Return the milliseconds per token at which each can go on and meet its target, shape (n,).

        As of the last look, ``plain_ms`` at least, which is the time of a step without speculation;
        infinite where no target can be met, or none without speculation.
        """
        return paces_ms(self.sums, rows, plain_ms)

    def left_tokens(self, rows: IntArray) -> FloatArray:
        """Return the tokens that are expected of each from now on, shape (n,).

        As of the last look; 0 for one that waits or has no target for its pace.
        """
        return self._column(rows, LEFT)

    def twin_tokens(self, rows: IntArray) -> FloatArray:
        """Return what each one's twin has written since the first token, shape (n,)."""
        return self._column(rows, TWIN)

    def lead_tokens(self, rows: IntArray) -> FloatArray:
        """Return what each has written in the same steps beyond its twin, shape (n,)."""
        lead: FloatArray = self.sums[rows, GAINED] - self.sums[rows, TWIN]
        return lead

    def twin_margin_tokens(
        self, rows: IntArray, *, share: float, allowance_tokens: float
    ) -> FloatArray:
        """Return lead + B + η·twin, shape (n,): while it is not negative, the guarantee holds.

        ``share`` is η, ``allowance_tokens`` is B.
        """
        return twin_margins(self.sums, rows, share, allowance_tokens)

    def state(self) -> dict[str, Any]:
        """Return all rows as arrays."""
        return {**save_arrays(self, _TABLES), "last_row": self.last_row}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The tables have other columns.
        """
        load_arrays(self, _TABLES, state, growing=_TABLES)
        # What was infinite is nothing in JSON, and comes back as not a number.
        self.sums[np.isnan(self.sums)] = math.inf
        self.last_row = int(state["last_row"])

    def _column(self, rows: IntArray, column: int) -> FloatArray:
        values: FloatArray = self.sums[rows, column]
        return values


def _rate(seconds: float | None) -> float:
    return 1.0 / seconds if seconds and seconds > 0.0 else 0.0
