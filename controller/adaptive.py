"""Our policy: learn acceptance and latency, and verify what earns more than its time costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from acclimate.controller.audit import Margin, MarginAudit
from acclimate.controller.beliefs import Beliefs
from acclimate.controller.config import ControlConfig
from acclimate.controller.drafting import Drafting
from acclimate.controller.explore import Explorer
from acclimate.controller.keeper import PromiseKeeper
from acclimate.controller.price import PriceOfTime
from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    Change,
    FloatArray,
    IntArray,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report
from acclimate.controller.select import Selection, choose_chains, depth_values, verify_lens
from acclimate.controller.situation import Situation
from acclimate.controller.step_time import learn_price
from acclimate.controller.switching import DepthSwitch
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS = 512


class AdaptivePolicy:
    """Depth and verify lengths by the price of time, with the audit at the margin.

    Per step: predict every draft's survival and the step's latency for every number of verified
    drafts, and verify the most promising while each token earns more than the time that it adds
    would earn elsewhere. Where drafting costs, or all requests must verify alike, the step's depth
    is decided the same way, held for a dwell, and left only on a lower bound of the gain.

    Promises enter as what a token of each request is worth, as a price of delay, and as bounds on
    how long the step may be; without promises nothing of it is looked at.

    Parameters
    ----------
    config
        Memory, stability, the price of exploring, and guarantees.
    capabilities
        What the engine lets a policy choose.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4), free_drafts=True, hindsight=True)
    >>> policy = AdaptivePolicy(ControlConfig(), engine)
    >>> policy.admit(RequestInfo(request=1, prompt_tokens=20, max_tokens=50, domain="code"))
    >>> context = StepContext(
    ...     step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
    ...     requests=int_array([1]), drafts=int_array([4]), committed=int_array([1]),
    ...     context_tokens=int_array([21]), tokens_left=int_array([49]))
    >>> plan = policy.plan(context)
    >>> plan.draft_depth, plan.reason
    (4, <Reason.PRICE: 'price'>)
    """

    name = "adaptive"

    def __init__(self, config: ControlConfig, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.beliefs = Beliefs(config.learn, capabilities, _MAX_REQUESTS)
        self.price = PriceOfTime(_MAX_REQUESTS, window_s=config.learn.rate_window_s)
        self.audit = MarginAudit(config.learn.max_slots, _MAX_REQUESTS)
        self.switch = DepthSwitch(capabilities.depths, config.switch)
        # A plan that does not act measures nothing.
        self.explorer = Explorer(config.seed, 0.0 if config.shadow else config.learn.probe_share)
        # Where drafts come whatever is asked, and may be cut one by one, verify lengths decide all.
        self._chooses_depth = capabilities.uniform_only or capabilities.asks_for_depth
        frozen = config.switch.freeze_depth
        self._tries_depths = self._chooses_depth and frozen is None
        self._depth = capabilities.depths[-1] if frozen is None else frozen
        self.drafting = Drafting(capabilities, self.beliefs.latency)
        self.keeper = PromiseKeeper(config.slo, plain_depth=0 if self.drafting.decides else None)

    @property
    def latency(self) -> StepLatency:
        """What is known of step times."""
        return self.beliefs.latency

    def admit(self, request: RequestInfo) -> None:
        """Give the request a row and its traffic class a slot."""
        number = request.request
        if number in self.beliefs.rows:
            self.forget(number)
        opened = self.beliefs.admit(request)
        if opened is not None:
            self.audit.open_slot(opened)
        self.keeper.admit(self._row(number), request)

    def forget(self, request: int) -> None:
        """Free the request's row; its slot keeps what it learned."""
        row = self._row(request)
        if row:
            self.keeper.forget(row)
        self.beliefs.forget(request)

    def declare(self, change: Change) -> None:
        """Keep little of the evidence that is over, and let detectors start afresh."""
        self.beliefs.shake()

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        n = context.requests.shape[0]
        if n == 0:
            return self._plan(context, np.zeros(0, dtype=np.int64), 0, Reason.IDLE)
        survey = self.beliefs.survey(context, whole=self.keeper.active)
        slots, survival, at_hand = survey.slots, survey.survival, survey.drafts
        drafts = context.drafts
        curve = self.beliefs.latency.curve(
            n,
            n * self.capabilities.max_depth if self._chooses_depth else at_hand,
            prefill_tokens=context.prefill_forecast_tokens,
            context_tokens=survey.context_tokens,
            sampled_rows=survey.sampled_rows,
            draft_depth=self.drafting.asked(self._depth),
        )
        now = self._situation(context, slots, survival, curve)
        reason = Reason.PRICE if at_hand else Reason.NO_DRAFTS
        believed, values = survival, _NO_VALUES
        if self._chooses_depth:
            believed = survival * self.audit.shade[slots][:, None]
            due = self.explorer.take_drafts()
            values = self._depth_values(now, believed)
            self._depth = self.switch.decide(values, context.now_ns, float(curve[0]))
            reason = Reason.PRICE if self.switch.best in (None, self._depth) else Reason.HELD
            if due is None and self._tries_depths:
                due = self._try_depth(now, believed, values)
            if due is not None and at_hand and now.may_verify(believed, due):
                lens = np.minimum(drafts, due)
                count = int(np.add.reduce(lens))
                return self._plan(context, lens, count, Reason.PROBE, now)
        capped = drafts
        if self._depth < self.capabilities.max_depth:
            capped = np.minimum(drafts, self._depth)
        if not at_hand:
            return self._plan(context, capped, 0, reason, now)
        if self.capabilities.uniform_only:
            depths = self.capabilities.depths
            upto = depths.index(self._depth) + 1
            depth, why, cap_ms = now.best_depth(believed, depths[:upto], values[:upto])
            if why is not None:
                reason, capped = why, np.minimum(capped, depth)
            expected = _chosen_worth(believed, capped)
            count = int(np.add.reduce(capped))
            return self._plan(context, capped, count, reason, now, expected, cap_ms)
        return self._select(now, capped, reason)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step, and return what was noticed."""
        self.audit.settle(outcome)
        self.explorer.earn(int(np.add.reduce(outcome.committed)))
        usual_ms = self.beliefs.learn_latency(outcome)
        learn_price(self.price, self.beliefs.latency, outcome, usual_ms)
        if self.keeper.keeps_accounts:
            rows = self.beliefs.rows.find(outcome.requests)
            self.keeper.observe(outcome, rows, self.beliefs.latency, usual_ms)
        return self.beliefs.time_alarms(outcome.step) + self.beliefs.learn_drafts(outcome)

    def report(self) -> Report:
        """Return an account for people and trackers."""
        return msgspec.structs.replace(
            self.keeper.report(),
            slots=self.beliefs.reports(),
            latency_error_ratio=self.beliefs.latency_error or None,
            marginal_gain=self.audit.gain(),
        )

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        parts = {name: getattr(self, name).state() for name in _PARTS}
        return {**parts, "depth": self._depth}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        for name in _PARTS:
            if name in state:  # older snapshots know less
                getattr(self, name).load(state[name])
        self._depth = int(state["depth"])

    def _situation(
        self, context: StepContext, slots: IntArray, survival: FloatArray, curve: FloatArray
    ) -> Situation:
        """Return what a step is decided from, promises included if there are any."""
        n = slots.shape[0]
        if not self.keeper.active:
            price = self.price.tokens_per_ms(n, n / float(curve[0]), context.waiting_prompts)
            return Situation(context, slots, survival, curve, price)
        rows = self.beliefs.rows.find(context.requests)
        terms = self.keeper.terms(context, rows, survival, curve, self.beliefs.latency)
        price = self.price.tokens_per_ms(n, n / float(curve[0]), terms.waiting)
        price += terms.delay_tokens_per_ms
        draft_ms = self.drafting.extra_ms(n, self.drafting.asked(self._depth))
        bounds = self.keeper.bounds(terms, curve, self.beliefs.latency, draft_ms=draft_ms)
        return Situation(context, slots, survival, curve, price, terms.weights, bounds)

    def _depth_values(self, now: Situation, believed: FloatArray) -> FloatArray:
        """Return the objective of each allowed depth, in tokens."""
        depths = self.capabilities.depths
        # Beyond depth 0, at which a model drafter still runs one pass to keep its cache in step.
        drafting_ms = self.beliefs.latency.drafting(
            now.slots.shape[0], np.array(depths, dtype=np.float64)
        )
        return depth_values(
            believed * now.weights[:, None] if now.weights.size else believed,
            self.beliefs.lengths.reach(now.slots),
            depths,
            now.curve,
            drafting_ms,
            now.price,
            uniform=self.capabilities.uniform_only,
        )

    def _try_depth(self, now: Situation, believed: FloatArray, values: FloatArray) -> int | None:
        """Return a depth to verify in this step as a probe; a deeper one is drafted first."""
        slots, step = now.slots, now.context.step
        if not self.explorer.draws(step) or not self.beliefs.latency.is_clean(
            now.context.prefill_forecast_tokens, slots.shape[0]
        ):
            return None
        depths = self.capabilities.depths
        index = depths.index(self._depth)
        doubts, stale = self.beliefs.doubts(slots, believed, depths, index, now.curve, now.price)
        tried = self.explorer.depth(step, index, values, doubts, stale)
        if tried is None:
            return None
        if tried < index:
            return depths[tried]
        self.explorer.await_drafts(depths[tried])
        return None

    def _select(self, now: Situation, drafts: IntArray, reason: Reason) -> StepPlan:
        """Verify the best candidates, or what a probe wants to measure."""
        n, step = drafts.shape[0], now.context.step
        choice = choose_chains(
            now.survival,
            self.audit.shade,
            now.slots,
            drafts,
            now.curve,
            now.price,
            now.weights,
        )
        bounded, lens = now.within(choice)
        selection = bounded.selection
        count, reason, probe = selection.count, bounded.reason or reason, None
        if bounded.may_probe and not self.explorer.due_depth:  # one probe at a time
            probe = self.explorer.verify_count(step, n, selection, self.beliefs.latency)
        if probe is not None:
            count, reason = probe, Reason.PROBE
            lens = verify_lens(choice.candidates, selection, count, n)
        elif count:
            self._expect(now, choice.candidates, selection)
        expected = choice.tokens(count) if now.weights.size else selection.worth(count)
        return self._plan(now.context, lens, count, reason, now, expected, bounded.cap_ms)

    def _expect(self, now: Situation, candidates: Candidates, selection: Selection) -> None:
        """Let the audit note the least promising tokens of a choice."""
        count = selection.count
        first = count - self.audit.margin_count(count)
        order = selection.order[first:count]
        price = now.price * float(now.curve[count] - now.curve[first]) / (count - first)
        price /= now.mean_weight(candidates.request[order])
        self.audit.expect(
            now.context.step,
            Margin(candidates=candidates, order=order, slots=now.slots, price_tokens=price),
        )

    def _plan(
        self,
        context: StepContext,
        lens: IntArray,
        count: int,
        reason: Reason,
        now: Situation | None = None,
        expected_tokens: float = 0.0,
        cap_ms: float | None = None,
    ) -> StepPlan:
        """Build the plan that verifies ``lens``, ``count`` drafts in all."""
        n = lens.shape[0]
        draft_depth = self.explorer.due_depth or self._draft_depth(n, now)
        explored = reason is Reason.PROBE
        latency_ns, price = None, 0.0
        if now is not None:
            price = now.price
            latency_ns = int(1e6 * float(now.curve[min(count, now.curve.shape[0] - 1)]))
            if now.bounds is not None:
                longest_ms = float(now.bounds.upper_ms[count])
                room_ms = (now.bounds.plain_cap_ms if cap_ms is None else cap_ms) - longest_ms
                if cap_ms is None and not context.drafts.any():
                    room_ms = max(room_ms, now.room_to_begin_ms(draft_depth))
                draft_depth = self.drafting.within(n, draft_depth, room_ms)
                longest_ms += self.drafting.extra_ms(n, draft_depth)
                self.keeper.note(context.step, longest_ms, float(now.bounds.upper_ms[0]))
        return StepPlan(
            step=context.step,
            draft_depth=draft_depth,
            verify_lens=lens,
            depth=self._depth,
            reason=reason,
            explored=explored,
            propensity=self.explorer.rate if explored else 1.0,
            price_tokens_per_s=1000.0 * price,
            predicted_tokens=n + expected_tokens if n else None,
            predicted_latency_ns=latency_ns,
        )

    def _draft_depth(self, requests: int, now: Situation | None) -> int:
        """Return how deep to draft where no probe asks for a depth."""
        depth = self.drafting.asked(self._depth)
        if now is None:
            return depth
        return self.drafting.varied(requests, depth) if depth else self._look(requests, now.price)

    def _look(self, requests: int, price_tokens_per_ms: float) -> int:
        """Return how deep to draft where no drafts pay, to notice when they would."""
        depth = self.drafting.look_depth
        cost_tokens = price_tokens_per_ms * self.drafting.extra_ms(requests, depth)
        return depth if self.drafting.may_look() and self.explorer.looks(cost_tokens) else 0

    def _row(self, request: int) -> int:
        return int(self.beliefs.rows.find(np.array([request]))[0])


_NO_VALUES = np.zeros(0)
_PARTS = ("beliefs", "price", "audit", "switch", "explorer", "drafting", "keeper")


def _chosen_worth(worth: FloatArray, lens: IntArray) -> float:
    chosen = np.arange(worth.shape[1]) < lens[:, None]
    return float((worth * chosen).sum())
