"""Our policy: learn acceptance and latency, and verify what earns more than its time costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.audit import Margin, MarginAudit
from acclimate.controller.beliefs import Beliefs
from acclimate.controller.config import ControlConfig
from acclimate.controller.explore import Explorer
from acclimate.controller.price import PriceOfTime
from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
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
from acclimate.controller.select import choose_chains, depth_values, verify_lens
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

    Parameters
    ----------
    config
        Memory, stability and the price of exploring.
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

    @property
    def latency(self) -> StepLatency:
        """What is known of step times."""
        return self.beliefs.latency

    def admit(self, request: RequestInfo) -> None:
        """Give the request a row and its traffic class a slot."""
        opened = self.beliefs.admit(request)
        if opened is not None:
            self.audit.open_slot(opened)

    def forget(self, request: int) -> None:
        """Free the request's row; its slot keeps what it learned."""
        self.beliefs.forget(request)

    def declare(self, change: Change) -> None:
        """Keep little of the evidence that is over, and let detectors start afresh."""
        self.beliefs.shake()

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        n = context.requests.shape[0]
        if n == 0:
            return self._plan(context, np.zeros(0, dtype=np.int64), 0, Reason.IDLE)
        survey = self.beliefs.survey(context)
        slots, survival, at_hand = survey.slots, survey.survival, survey.drafts
        drafts = context.drafts
        curve = self.beliefs.latency.curve(
            n,
            n * self.capabilities.max_depth if self._chooses_depth else at_hand,
            prefill_tokens=context.prefill_forecast_tokens,
            context_tokens=survey.context_tokens,
            sampled_rows=survey.sampled_rows,
            draft_depth=self._draft_depth(),
        )
        price = self.price.tokens_per_ms(n, n / float(curve[0]), context.waiting_prompts)
        reason = Reason.PRICE if at_hand else Reason.NO_DRAFTS
        worth: FloatArray | None = None
        if self._chooses_depth:
            worth = survival * self.audit.shade[slots][:, None]
            due = self.explorer.take_drafts()
            values = self._depth_values(slots, worth, curve, price)
            self._depth = self.switch.decide(values, context.now_ns, float(curve[0]))
            reason = Reason.PRICE if self.switch.best in (None, self._depth) else Reason.HELD
            if due is None and self._tries_depths:
                due = self._try_depth(context, slots, worth, values, curve, price)
            if due is not None and at_hand:
                lens = np.minimum(drafts, due)
                count = int(np.add.reduce(lens))
                return self._plan(context, lens, count, Reason.PROBE, curve, price)
        capped = drafts
        if self._depth < self.capabilities.max_depth:
            capped = np.minimum(drafts, self._depth)
        if not at_hand:
            return self._plan(context, capped, 0, reason, curve, price)
        if self.capabilities.uniform_only and worth is not None:
            expected = _chosen_worth(worth, capped)
            count = int(np.add.reduce(capped))
            return self._plan(context, capped, count, reason, curve, price, expected)
        return self._select(context, slots, survival, capped, reason, curve, price)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step, and return what was noticed."""
        self.audit.settle(outcome)
        self.explorer.earn(int(np.add.reduce(outcome.committed)))
        learn_price(self.price, self.beliefs.latency, outcome, self.beliefs.learn_latency(outcome))
        slower = self.beliefs.time_alarms(outcome.step)
        return slower + self.beliefs.learn_drafts(outcome)

    def report(self) -> Report:
        """Return an account for people and trackers."""
        return Report(
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
            getattr(self, name).load(state[name])
        self._depth = int(state["depth"])

    def _depth_values(
        self, slots: IntArray, worth: FloatArray, curve: FloatArray, price: float
    ) -> FloatArray:
        """Return the objective of each allowed depth, in tokens."""
        depths = self.capabilities.depths
        drafting_ms = np.zeros(len(depths))
        if self.capabilities.asks_for_depth:
            # At depth 0 a model drafter still runs one pass, to keep its cache in step.
            passes = np.maximum(np.array(depths, dtype=np.float64), 1.0)
            drafting_ms = self.beliefs.latency.drafting(slots.shape[0], passes)
        return depth_values(
            worth,
            self.beliefs.lengths.reach(slots),
            depths,
            curve,
            drafting_ms,
            price,
            uniform=self.capabilities.uniform_only,
        )

    def _try_depth(
        self,
        context: StepContext,
        slots: IntArray,
        worth: FloatArray,
        values: FloatArray,
        curve: FloatArray,
        price: float,
    ) -> int | None:
        """Return a depth to verify in this step as a probe; a deeper one is drafted first."""
        if not self.explorer.draws(context.step) or not self.beliefs.latency.is_clean(
            context.prefill_forecast_tokens, slots.shape[0]
        ):
            return None
        depths = self.capabilities.depths
        index = depths.index(self._depth)
        doubts, stale = self.beliefs.doubts(slots, worth, depths, index, curve, price)
        tried = self.explorer.depth(context.step, index, values, doubts, stale)
        if tried is None:
            return None
        if tried < index:
            return depths[tried]
        self.explorer.await_drafts(depths[tried])
        return None

    def _select(
        self,
        context: StepContext,
        slots: IntArray,
        survival: FloatArray,
        drafts: IntArray,
        reason: Reason,
        curve: FloatArray,
        price: float,
    ) -> StepPlan:
        """Verify the best candidates, or what a probe wants to measure."""
        n = drafts.shape[0]
        choice = choose_chains(survival, self.audit.shade, slots, drafts, curve, price)
        candidates, selection, lens = choice.candidates, choice.selection, choice.lens
        count = selection.count
        probe = self.explorer.verify_count(context.step, n, selection, self.beliefs.latency)
        if probe is not None:
            count, reason = probe, Reason.PROBE
            lens = verify_lens(candidates, selection, count, n)
        elif count:
            first = count - self.audit.margin_count(count)
            self.audit.expect(
                context.step,
                Margin(
                    candidates=candidates,
                    order=selection.order[first:count],
                    slots=slots,
                    price_tokens=price * float(curve[count] - curve[first]) / (count - first),
                ),
            )
        return self._plan(context, lens, count, reason, curve, price, selection.worth(count))

    def _plan(
        self,
        context: StepContext,
        lens: IntArray,
        count: int,
        reason: Reason,
        curve: FloatArray | None = None,
        price: float = 0.0,
        expected_tokens: float = 0.0,
    ) -> StepPlan:
        """Build the plan that verifies ``lens``, ``count`` drafts in all."""
        n = lens.shape[0]
        draft_depth = self.explorer.due_depth or self._draft_depth()
        explored = reason is Reason.PROBE
        latency_ns = None
        if curve is not None:
            latency_ns = int(1e6 * float(curve[min(count, curve.shape[0] - 1)]))
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

    def _draft_depth(self) -> int:
        if not self.capabilities.asks_for_depth:
            return self.capabilities.max_depth
        if self._depth == 0 and self.capabilities.hindsight:
            return min(1, self.capabilities.max_depth)  # its fate is learned for free
        return self._depth


_PARTS = ("beliefs", "price", "audit", "switch", "explorer")


def _chosen_worth(worth: FloatArray, lens: IntArray) -> float:
    chosen = np.arange(worth.shape[1]) < lens[:, None]
    return float((worth * chosen).sum())
