"""Keeps promises: asks the ledger before each step, tells it what came, and says what steps may take."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec
import numpy as np

from acclimate.controller.accounts import TenantAccounts
from acclimate.controller.bounds import StepBounds
from acclimate.controller.config import SloConfig
from acclimate.controller.plain_steps import PlainSteps
from acclimate.controller.promise_weights import best_paces, help_late, share_out
from acclimate.controller.prompt_share import PromptShare
from acclimate.controller.records import (
    FloatArray,
    IntArray,
    RequestInfo,
    Slo,
    StepContext,
    StepOutcome,
)
from acclimate.controller.reports import Report
from acclimate.controller.slo import SloLedger
from acclimate.controller.step_time import time_of, unstalled_ms
from acclimate.controller.twin import longest_step_ms, upper_ms
from acclimate.predictors.latency import StepLatency

_HOPE = 1.3  # a request may turn out to be accepted so much better than it is believed to be
_FIRST_STEPS = 2.0  # that a waiting prompt still needs: the one at hand, and its own
_LEAD_SCALE_TOKENS = 1_000.0
_RESERVE_TOKENS = 2.0  # of the tokens that a twin may be ahead: for errors of what is predicted
_MAX_OPEN = 8
_NO_TARGETS = (None, Slo())
_NONE = np.zeros(0)


class Terms(NamedTuple):
    """What promises mean for the choice of a step with n requests.

    Parameters
    ----------
    rows
        Shape (n,): rows of its requests.
    weights
        Shape (n,): what a token of each is worth, w/(V·ū): in units of what a token of the step is
        worth on average, ū its mean importance, where nothing is owed. With every twin guarded, a
        request near its bound counts for more: what it gains lets everybody speculate.
    margins
        Shape (n,): by how many tokens each may still fall behind its twin; empty where no twin is
        guarded.
    delay_tokens_per_ms
        What a millisecond's delay costs those with targets, in the same units; it comes on top of
        the price of time.
    waiting
        Prompts that wait without a target that can be met.
    first_slack_ms
        The least time that a waiting prompt with a target has left.
    """

    rows: IntArray
    weights: FloatArray
    margins: FloatArray
    delay_tokens_per_ms: float
    waiting: int
    first_slack_ms: float


class PromiseKeeper:
    """What a policy must know of promises, for each step and after it.

    While no request has a target or an importance of its own, no twin is guarded and no tenant is
    behind, `active` is false: a policy then decides as if there were no promises at all.

    Parameters
    ----------
    config
        Which guarantees hold.
    plain_depth
        The draft depth of a step that shall verify nothing; None where drafts come whatever is
        asked.

    Notes
    -----
    The yardstick of twin and externality is the step that verifies nothing and drafts as little as
    it can. Its length is predicted: guarantees are as good as the latency model is there. With a
    guarded twin three such steps are run at each load before any other, and one in a hundred later.
    """

    def __init__(self, config: SloConfig, *, plain_depth: int | None) -> None:
        self.config = config
        self.plain_depth = plain_depth
        self.ledger = SloLedger(base_tokens=config.base_tokens)
        self.accounts = TenantAccounts()
        self.prompts = PromptShare()
        self._guards_twin = config.twin != "off"
        self._special: set[int] = set()  # rows with a target, or an importance of their own
        self._named = False  # whether any tenant ever had a name
        self._is_shared = False
        self._unopened: dict[int, RequestInfo] = {}  # of whom nobody wants an account yet
        self._lag: dict[int, float] = {}  # tokens that steps under way may cost, by step
        self.plain = PlainSteps()

    @property
    def active(self) -> bool:
        """Whether promises can change what is decided."""
        return bool(self._special) or self._guards_twin or self._is_shared

    @property
    def keeps_accounts(self) -> bool:
        """Whether outcomes must be told."""
        return self._named or self.active

    def admit(self, row: int, request: RequestInfo) -> None:
        """Open accounts for a request that has got a row, as soon as anybody needs accounts."""
        if request.slo not in _NO_TARGETS or request.importance != 1.0:
            self._special.add(row)
        self._named = self._named or bool(request.tenant)
        self._unopened[row] = request
        if self._named or self._special or self._guards_twin:
            for unopened, known in self._unopened.items():
                self.ledger.admit(unopened, known)
                self.accounts.admit(unopened, known)
            self._unopened.clear()
            self._see_tenants()

    def forget(self, row: int) -> None:
        """Close a request's accounts."""
        if self._unopened.pop(row, None) is None:
            self.ledger.forget(row)
            self.accounts.forget(row)
            self._special.discard(row)
            self._see_tenants()

    def terms(
        self,
        context: StepContext,
        rows: IntArray,
        survival: FloatArray,
        curve: FloatArray,
        latency: StepLatency,
    ) -> Terms:
        """Bring all accounts up to a step, and return what they mean for it.

        Parameters
        ----------
        context, rows
            The step, and the rows of its n requests.
        survival
            Shape (n, max_depth): as it is believed.
        curve
            Milliseconds of the step with 0, 1, … verified drafts.
        latency
            Says what the step's prompts take of them: this once, and not of every step to come.
        """
        prompts_ms = latency.prefill(context.prefill_forecast_tokens)
        look = self.ledger.look(
            context,
            rows,
            best_tokens_per_s=_HOPE * 1e3 * best_paces(survival, curve - prompts_ms),
            prompt_share=self.prompts.value,
        )
        base = self.config.base_tokens
        weights = look.weights
        if self._special:
            base *= float(np.add.reduce(self.ledger.table.importance(rows))) / rows.shape[0]
        if base != 1.0:
            weights /= base
        if self._is_shared:
            accounts = self.accounts
            share_out(
                weights,
                rows,
                accounts.tenant_of,
                accounts.served,
                accounts.alive,
                self.config.fairness / _LEAD_SCALE_TOKENS,
            )
        margins = _NONE
        if self._guards_twin:
            margins = self._margins(rows)
            if self.config.twin == "per_request":
                help_late(weights, margins)
        return Terms(
            rows,
            weights,
            margins,
            look.price_tokens_per_s / (1e3 * base),
            look.waiting,
            1e3 * look.first_slack_s,
        )

    def bounds(
        self, terms: Terms, curve: FloatArray, latency: StepLatency, *, draft_ms: float
    ) -> StepBounds | None:
        """Return how long the step may be, or None if nothing forbids any length.

        Parameters
        ----------
        terms
            Of this step.
        curve
            Milliseconds of the step with 0, 1, … verified drafts, at the depth to be drafted.
        latency
            Says how far these may be off.
        draft_ms
            What of them is the time of drafting deeper than a plain step does.
        """
        rows = terms.rows
        n = rows.shape[0]
        plain_ms = self.plain.expected_ms(n, float(curve[0]) - draft_ms)
        twin_ms = first_ms = math.inf
        if self._guards_twin:
            twin_ms = longest_step_ms(
                terms.margins,
                plain_ms,
                share=self.config.eta,
                aggregate=self.config.twin == "aggregate",
            )
            if self.plain.due(n):
                twin_ms = plain_ms  # nobody knows well what the twin would do
        paces_ms = None
        if self.config.externality and self._special:
            paces_ms = self.ledger.table.paces_ms(rows, plain_ms=plain_ms)
            first_ms = max(terms.first_slack_ms / _FIRST_STEPS, plain_ms)
        if min(twin_ms, first_ms) == math.inf and (paces_ms is None or paces_ms.min() == math.inf):
            return None
        if paces_ms is None:
            paces_ms = np.full(n, math.inf)
        upper = upper_ms(curve, latency.errors(n, curve), plain_ms)
        return StepBounds(upper, twin_ms, first_ms, paces_ms, self.ledger.table.left_tokens(rows))

    def note(self, step: int, longest_ms: float, plain_ms: float) -> None:
        """Note how long a step may take that is under way, until its outcome comes."""
        if self._guards_twin:
            lag = (1.0 - self.config.eta) * longest_ms / plain_ms - 1.0
            self._lag[step] = max(lag, 0.0)
            while len(self._lag) > _MAX_OPEN:
                self._lag.pop(next(iter(self._lag)))

    def observe(
        self, outcome: StepOutcome, rows: IntArray, latency: StepLatency, usual_ms: float | None
    ) -> None:
        """Add what came of a step.

        Parameters
        ----------
        outcome, rows
            The step, and the rows of ``outcome.requests``.
        latency
            Predicts how long it would have taken with nothing verified.
        usual_ms
            What was expected of it; None if its duration is unknown.
        """
        # Outcomes come in order: steps before this one have none that is still to come.
        self._lag = {step: lag for step, lag in self._lag.items() if step > outcome.step}
        k0_ms = None
        if usual_ms is not None and outcome.latency_ns and outcome.decode_requests:
            prompts_ms = latency.prefill(outcome.prefill_tokens)
            self.prompts.add(unstalled_ms(outcome.latency_ns, usual_ms), prompts_ms)
            depth = outcome.draft_depth if self.plain_depth is None else self.plain_depth
            n = outcome.decode_requests
            if outcome.verified_tokens == 0 and outcome.draft_depth <= depth:
                # The twin's own step.
                k0_ms = outcome.latency_ns / 1e6
                self.plain.learn(n, measured_ms=k0_ms, predicted_ms=usual_ms)
                usual_ms = k0_ms
            else:
                predicted_ms = time_of(latency, outcome, verified=0, draft_depth=depth)
                k0_ms = self.plain.expected_ms(n, predicted_ms)
                self.plain.pass_by(n)
        if self.active:
            self.ledger.observe(outcome, rows, k0_ms=k0_ms, usual_ms=usual_ms)
        if self._named:
            extra_ms = None if k0_ms is None or usual_ms is None else usual_ms - k0_ms
            self.accounts.observe(outcome, rows, extra_ms=extra_ms)

    def report(self) -> Report:
        """Return classes, tenants, and who slows whom; empty where nothing was promised."""
        return Report(
            classes=self.ledger.reports(twins=self._guards_twin),
            tenants=self.accounts.reports() if self._named else (),
            delays=self.accounts.delays() if self._named else (),
        )

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {
            "ledger": self.ledger.state(),
            "accounts": self.accounts.state(),
            "prompts": self.prompts.state(),
            "special": sorted(self._special),
            "named": self._named,
            "unopened": [[row, msgspec.to_builtins(r)] for row, r in self._unopened.items()],
            **self.plain.state(),
            "lag": [[step, lag] for step, lag in self._lag.items()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.ledger.load(state["ledger"])
        self.accounts.load(state["accounts"])
        if "prompts" in state:  # older snapshots know nothing of it
            self.prompts.load(state["prompts"])
        self._special = {int(row) for row in state["special"]}
        self._named = bool(state["named"])
        self._unopened = {
            int(row): msgspec.convert(known, RequestInfo) for row, known in state["unopened"]
        }
        self.plain.load(state)
        self._see_tenants()
        self._lag = {int(step): float(lag) for step, lag in state["lag"]}

    def _margins(self, rows: IntArray) -> FloatArray:
        """Return by how much each may still fall behind its twin, shape (n,), at worst, in tokens."""
        margins = self.ledger.table.twin_margin_tokens(
            rows,
            share=self.config.eta,
            allowance_tokens=max(self.config.lag_tokens - _RESERVE_TOKENS, 0.0),
        )
        return margins - sum(self._lag.values())

    def _see_tenants(self) -> None:
        """Note whether tenants compete, and it matters who is ahead."""
        if self.config.fairness > 0.0:
            self._is_shared = int(np.count_nonzero(self.accounts.alive)) > 1
