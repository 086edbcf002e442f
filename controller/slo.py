"""The ledger of promises: how far each request is behind its targets, and behind its twin."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from acclimate.controller.class_reports import class_reports
from acclimate.controller.promise_table import PromiseTable
from acclimate.controller.promises import MAX_CLASSES, PromiseTally
from acclimate.controller.records import (
    FloatArray,
    IntArray,
    RequestInfo,
    StepContext,
    StepOutcome,
)
from acclimate.controller.reports import ClassReport
from acclimate.controller.slo_kernels import (
    ARRIVAL_NS,
    DECODING,
    E2E_S,
    FIRST_NS,
    FIRST_RATE,
    FREE,
    KIND,
    LAST_NS,
    SEEN,
    STATE,
    TOKEN_RATE,
    TOKENS,
    land,
    look,
)
from acclimate.controller.twin import twin_tokens
from acclimate.predictors.output_length import OutputLength

_SECOND_NS = 1_000_000_000


class Look(NamedTuple):
    """What promises mean for a step of n requests.

    Parameters
    ----------
    weights
        Shape (n,): what a token of each request is worth, w = u·(V + Z).
    price_tokens_per_s
        What a second's delay costs all requests with targets: 2 Σ u·Z/TPOT + Σ u·Y/TTFT.
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
    debt is Z = max(D + s·min(L, 20), 0), with L tokens expected to come and s the share of time that
    the prompts of others take. A waiting prompt owes Y = (time waited)/TTFT. An end-to-end target is a
    rate too, tokens expected after the first over the time that the first left of it, and takes the
    place of 1/TPOT where it is higher.

    With L tokens expected to come and a rate m at the very best, which is (1 - s)·μ beside the prompts
    of others, a target with rate r is attainable while D ≤ L·(1 - r/m). Past that it is lost: its debt
    is zero, and the request is served as well as can be, until 0.8 of m would do again. An end-to-end
    target that no pace could meet for the expected length makes no debt; it is lost at its deadline. A
    first token that came too late stays late.

    The twin is the same request in the engine that verifies nothing (``k0``): in a step of T seconds
    that would have taken T₀, it gets T/T₀ tokens. Its lead is what the request got in the same steps
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
    >>> from acclimate.controller.records import Slo, int_array
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
        self.table = PromiseTable()
        self.tally = PromiseTally()
        self._first_ns = -1  # when first tokens came, if a step since the last look brought any

    def admit(self, row: int, request: RequestInfo) -> None:
        """Open a row for a request that waits for its first token.

        Raises
        ------
        ValueError
            The row is 0, which stands for unknown requests.
        """
        self.table.open(row, request, self.tally.kind(request.slo_class))

    def forget(self, row: int) -> None:
        """Close a row, and judge what became of its promises.

        A request that ended before its second token was seen is not judged. One that was aborted is
        judged as any other: an engine ends answers at a stop string by aborting them, so that
        nobody here can tell who went away from who was done.
        """
        counts, sums = self.table.counts[row], self.table.sums[row]
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
        self.table.close(row)

    def look(
        self,
        context: StepContext,
        rows: IntArray,
        *,
        best_tokens_per_s: float | FloatArray = math.inf,
        prompt_share: float = 0.0,
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
        prompt_share
            s in [0, 1): what of its time a decoding request loses to the prompts of others.
        """
        best = best_tokens_per_s
        if not isinstance(best, np.ndarray):
            best = np.full(rows.shape[0], best)
        now_ns = context.now_ns
        first_ns = now_ns if self._first_ns < 0 else min(self._first_ns, now_ns)
        self._first_ns = -1  # it dates what this look finds, and nothing later
        weights, price, targeted, first_slack_s = look(
            self.table.sums,
            self.table.counts,
            self.lengths.table,
            self.lengths.bucket,
            self.table.last_row,
            rows,
            context.committed,
            now_ns,
            first_ns,
            best,
            self.base_tokens,
            self.all_or_nothing,
            prompt_share,
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
        land(
            self.table.sums,
            self.table.counts,
            rows,
            outcome.committed,
            outcome.now_ns,
            twin_tokens(outcome.latency_ns, k0_ms, usual_ms),
        )
        self._first_ns = outcome.now_ns if outcome.first_tokens else -1

    def reports(self, *, twins: bool = False) -> tuple[ClassReport, ...]:
        """Return an account of every class; see `class_reports`."""
        return class_reports(self.table, self.tally, twins=twins)

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {
            **self.table.state(),
            "tally": self.tally.state(),
            "lengths": self.lengths.state(),
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
        self.table.load(state)
        self.tally.load(state["tally"])
        self._first_ns = int(state["first_ns"])
