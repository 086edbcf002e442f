"""The ledger of promises: how far each request is behind its targets, and behind its twin."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acclimate.controller.promises import MAX_CLASSES, PromiseTally
from acclimate.controller.records import (
    FloatArray,
    IntArray,
    RequestInfo,
    Slo,
    StepContext,
    StepOutcome,
)
from acclimate.controller.reports import ClassReport
from acclimate.controller.slo_kernels import (
    ARRIVAL_NS,
    BEST_RATE,
    COUNTS,
    DEBT,
    DECODING,
    DUE_S,
    E2E_S,
    FIRST_NS,
    FIRST_RATE,
    FREE,
    GAINED,
    IMPORTANCE,
    KIND,
    LAST_NS,
    LEFT,
    LIMIT,
    LOST,
    SEEN,
    SLACK_S,
    STATE,
    SUMS,
    TOKEN_RATE,
    TOKENS,
    TWIN,
    WAITING,
    land,
    look,
    paces_ms,
    twin_margins,
)
from acclimate.predictors.numerics import load_arrays, save_arrays
from acclimate.predictors.output_length import OutputLength

BoolArray = npt.NDArray[np.bool_]

_STALL_RATIO = 3.0
_SECOND_NS = 1_000_000_000
_NO_TARGETS = Slo()
_TABLES = ("sums", "counts")


class Look(NamedTuple):
    """What promises mean for a step of n requests.

    Parameters
    ----------
    weights
        Shape (n,): what a token of each request is worth, w = u·(V + Z).
    price_tokens_per_s
        What a second's delay costs all requests with targets: Σ u·Z/TPOT + Σ u·Y/TTFT.
    waiting
        Waiting prompts that have no target, or lost it: they count in the price by load.
    first_slack_s
        The least time that a waiting prompt has left until its first token is due; infinite if none
        has a target that can be met.
    """

    weights: FloatArray
    price_tokens_per_s: float
    waiting: int
    first_slack_s: float = math.inf


class SloLedger:
    """Debts in tokens, per request, and each request's lead over the engine without speculation.

    A decoding request that got its first token t seconds ago and wrote o tokens since then owes
    D = t/TPOT - o. D is signed: TPOT is an average over the whole answer, so that a lead counts. Its
    debt is Z = max(D, 0). A waiting prompt owes Y = (time waited)/TTFT. An end-to-end target is a
    rate too, tokens expected after the first over the time that the first left of it, and takes the
    place of 1/TPOT where it is higher.

    With L tokens expected to come and a rate m at the very best, a target with rate r is attainable
    while D ≤ L·(1 - r/m). Past that it is lost: its debt is zero, and the request is served as well
    as can be, until 0.8 of m would do again. An end-to-end target that no pace could meet for the
    expected length makes no debt; it is lost at its deadline. A first token that came too late stays
    late.

    The twin is the same request in the engine that verifies nothing (``k0``): in a step of T seconds
    that would have taken T₀, it gets T/T₀ tokens. ``lead`` is what the request got in the same steps
    less that. In a step of unknown length neither counts, and a machine's stall counts as if it had
    met the twin as well. A request without a place in the batch has a twin without one.

    Parameters
    ----------
    base_tokens
        V: what a token is worth where nothing is owed.
    all_or_nothing
        Whether a request that has lost one target is lost: then the others owe nothing either.
    lengths
        Learns how long answers get, for `promises.MAX_CLASSES` classes.

    Raises
    ------
    ValueError
        V is not positive, or ``lengths`` knows fewer classes.

    Notes
    -----
    Rows are those of `acclimate.controller.requests.RequestRows`; row 0 is a request that is not
    known. Debts follow from times and counts as they stand, and not from a sum over steps: a lost,
    late or repeated outcome cannot make them drift. Queues and weights as in Neely (2010),
    *Stochastic Network Optimization*: drift plus penalty.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> ledger = SloLedger()
    >>> ledger.admit(1, RequestInfo(
    ...     request=7, prompt_tokens=9, max_tokens=50, arrival_ns=0, slo=Slo(tpot_s=0.05)))
    >>> def at(now_ns, committed):
    ...     return StepContext(
    ...         step=1, now_ns=now_ns, waiting_prompts=0, prefill_forecast_tokens=0,
    ...         requests=int_array([7]), drafts=int_array([0]), committed=int_array([committed]),
    ...         context_tokens=int_array([20]), tokens_left=int_array([40]))
    >>> row = int_array([1])
    >>> ledger.look(at(0, 1), row).weights.tolist()
    [1.0]
    >>> ledger.look(at(200_000_000, 3), row).weights.tolist()  # 4 tokens were due, 2 came
    [3.0]
    """

    def __init__(
        self,
        *,
        base_tokens: float = 1.0,
        all_or_nothing: bool = True,
        lengths: OutputLength | None = None,
    ) -> None:
        if not 0.0 < base_tokens < math.inf:
            raise ValueError(f"base_tokens must be positive and finite, got {base_tokens}")
        self.base_tokens = base_tokens
        self.all_or_nothing = all_or_nothing
        self.lengths = OutputLength(MAX_CLASSES) if lengths is None else lengths
        if self.lengths.table.shape[0] < MAX_CLASSES:
            raise ValueError(
                f"lengths must know {MAX_CLASSES} classes, got {self.lengths.table.shape[0]}"
            )
        self.sums = np.zeros((0, SUMS))
        self.counts = np.zeros((0, COUNTS), dtype=np.int64)
        self.tally = PromiseTally()
        self._last_row = 0
        self._first_ns = -1  # when first tokens came, if the latest step brought any
        self.reserve(64)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        missing = n_requests - self.sums.shape[0]
        if missing > 0:
            self.sums = np.concatenate([self.sums, np.zeros((missing, SUMS))])
            more = np.zeros((missing, COUNTS), dtype=np.int64)
            self.counts = np.concatenate([self.counts, more])
            self.sums[0, IMPORTANCE] = 1.0
            self.sums[0, (SLACK_S, DUE_S)] = math.inf

    def admit(self, row: int, request: RequestInfo) -> None:
        """Open a row for a request that waits for its first token.

        Raises
        ------
        ValueError
            The row is 0, which stands for unknown requests.
        """
        if row < 1:
            raise ValueError(f"row must be >= 1, got {row}")
        self.reserve(row + 1)
        self._last_row = max(self._last_row, row)
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
        counts[KIND] = self.tally.kind(request.slo_class)
        counts[SEEN] = -1

    def forget(self, row: int) -> None:
        """Close a row, and judge what became of its promises.

        A request that ended before its second token was seen is not judged.
        """
        counts, sums = self.counts[row], self.sums[row]
        if row < 1 or counts[STATE] == FREE:
            return
        if counts[STATE] == DECODING:
            kind = int(counts[KIND])
            # One that was first looked at in the middle of its answer tells no length.
            if counts[TOKENS] and counts[SEEN] <= counts[TOKENS] + 1:
                self.lengths.learn(kind, int(counts[TOKENS]) + 1)
            waited_s = (counts[FIRST_NS] - counts[ARRIVAL_NS]) / _SECOND_NS
            took_s = (counts[LAST_NS] - counts[FIRST_NS]) / _SECOND_NS
            if sums[FIRST_RATE] or sums[TOKEN_RATE] or sums[E2E_S]:
                self.tally.judge(
                    kind,
                    ttft=bool(waited_s * sums[FIRST_RATE] > 1.0),
                    tpot=bool(took_s * sums[TOKEN_RATE] > counts[TOKENS]),
                    e2e=bool(sums[E2E_S] and waited_s + took_s > sums[E2E_S]),
                )
        counts[:] = 0
        sums[:] = 0.0

    def look(
        self,
        context: StepContext,
        rows: IntArray,
        *,
        best_tokens_per_s: float | FloatArray = math.inf,
    ) -> Look:
        """Bring all requests up to the time of a step, and return what promises mean for it.

        Parameters
        ----------
        context
            The step.
        rows
            Shape (n,): rows of its requests.
        best_tokens_per_s
            μ: the pace that none, or each, can exceed, shape (n,) or one for all; infinite if
            unknown. A target is then given up only when more is owed than is to come. A request
            that is not in the step keeps the pace that was last told of it.
        """
        best = best_tokens_per_s
        if not isinstance(best, np.ndarray):
            best = np.full(rows.shape[0], best)
        now_ns = context.now_ns
        weights, price, targeted, first_slack_s = look(
            self.sums,
            self.counts,
            self.lengths.table,
            self.lengths.bucket,
            self._last_row,
            rows,
            context.committed,
            now_ns,
            now_ns if self._first_ns < 0 else min(self._first_ns, now_ns),
            best,
            self.base_tokens,
            self.all_or_nothing,
        )
        waiting = context.waiting_prompts
        return Look(weights, price, waiting - min(waiting, targeted), first_slack_s)

    def observe(
        self,
        outcome: StepOutcome,
        rows: IntArray,
        *,
        k0_ms: float | None,
        usual_ms: float | None = None,
    ) -> None:
        """Add what came of a step.

        Parameters
        ----------
        outcome
            The step; its time counts in the order in which outcomes come.
        rows
            Shape (n,): rows of ``outcome.requests``, 0 where one is gone.
        k0_ms
            T₀: how long it would have taken with nothing verified; None if unknown.
        usual_ms
            How long it was expected to take; a step three times as long was a stall.
        """
        twin_tokens = _twin_tokens(outcome.latency_ns, k0_ms, usual_ms)
        land(self.sums, self.counts, rows, outcome.committed, outcome.now_ns, twin_tokens)
        self._first_ns = outcome.now_ns if outcome.first_tokens else -1

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

    def slack_s(self, rows: IntArray) -> FloatArray:
        """Return the seconds that each could lose and still meet its target, shape (n,).

        As of the last look; infinite where there is no target to meet.
        """
        return self._column(rows, SLACK_S)

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

    def attainable(self, rows: IntArray) -> BoolArray:
        """Return which have a target that can still be met, as of the last look, shape (n,)."""
        found: BoolArray = np.isfinite(self.sums[rows, SLACK_S])
        return found

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

    def reports(self, *, twins: bool = False) -> tuple[ClassReport, ...]:
        """Return an account of every class that has been judged or has requests with targets.

        With ``twins``, also of every class with requests whose twin has written.
        """
        sums, counts = self.sums[: self._last_row + 1], self.counts[: self._last_row + 1]
        alive = counts[:, STATE] != FREE
        targeted = alive & (sums[:, (TOKEN_RATE, FIRST_RATE, E2E_S)] > 0.0).any(axis=1)
        lost = targeted & (counts[:, LOST] > 0)
        reports = []
        for kind, label in enumerate(self.tally.labels):
            own = alive & (counts[:, KIND] == kind)
            ended = self.tally.counts_of(label)
            paired = own & (sums[:, TWIN] > 0.0)
            seen = ended["judged"] or (own & targeted).any() or (twins and paired.any())
            if not seen:
                continue
            lead = (sums[:, GAINED] - sums[:, TWIN])[paired]
            reports.append(
                ClassReport(
                    label=label,
                    alive=int((own & targeted).sum()),
                    lost=int((own & lost).sum()),
                    debt_tokens=float(sums[own, DEBT].sum()),
                    least_lead_tokens=float(lead.min()) if lead.size else None,
                    lead_tokens=float(lead.sum()) if lead.size else None,
                    twin_tokens=float(sums[paired, TWIN].sum()) if lead.size else None,
                    **ended,
                )
            )
        return tuple(reports)

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {
            **save_arrays(self, _TABLES),
            "tally": self.tally.state(),
            "lengths": self.lengths.state(),
            "last_row": self._last_row,
            "first_ns": self._first_ns,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`; looks after it are bitwise the same.

        Raises
        ------
        ValueError
            The tables have other columns.
        """
        self.lengths.load(state["lengths"])
        load_arrays(self, _TABLES, state, growing=_TABLES)
        # What was infinite is nothing in JSON, and comes back as not a number.
        self.sums[np.isnan(self.sums)] = math.inf
        self.tally.load(state["tally"])
        self._last_row = int(state["last_row"])
        self._first_ns = int(state["first_ns"])

    def _column(self, rows: IntArray, column: int) -> FloatArray:
        values: FloatArray = self.sums[rows, column]
        return values


def _rate(seconds: float | None) -> float:
    return 1.0 / seconds if seconds and seconds > 0.0 else 0.0


def _twin_tokens(latency_ns: int | None, k0_ms: float | None, usual_ms: float | None) -> float:
    """Return T/T₀, 0 where either is unknown."""
    if not latency_ns or latency_ns < 0 or k0_ms is None or not 0.0 < k0_ms < math.inf:
        return 0.0
    step_ms = latency_ns / 1e6
    if usual_ms is not None and usual_ms > 0.0 and step_ms > _STALL_RATIO * usual_ms:
        step_ms = usual_ms
    return step_ms / k0_ms
