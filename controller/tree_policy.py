"""Our policy for an engine of trees: depth, width and nodes by the price of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

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
from acclimate.controller.row_filling import RowFilling, places_filled
from acclimate.controller.select import UNWEIGHTED
from acclimate.controller.step_time import learn_price, learn_time
from acclimate.controller.tree_audit import NodeMargin, TreeAudit
from acclimate.controller.tree_beliefs import TreeBeliefs
from acclimate.controller.tree_choice import TreeReach, TreeStep
from acclimate.controller.tree_shape import TreeShape
from acclimate.controller.trees import deepest_kept, sibling_ranks
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS = 512
_MAX_VERIFIED = 8_192
_NONE = np.zeros(0, dtype=np.int64)
_NO_NODES = Candidates(_NONE, _NONE, _NONE, np.zeros(0))
_FADED_STEPS = 0.2  # decayed steps at which a measurement has faded
_PARTS = (
    "latency",
    "price",
    "audit",
    "shape",
    "explorer",
    "reach",
    "filling",
    "keeper",
)


class TreePolicy:
    """Verifies those nodes of the drafted trees that earn more than their time costs.

    The drafter's probabilities are corrected per domain, depth and request by what was learned, and
    multiplied along paths. Survival then never rises along a path, so that the best m nodes are a
    connected tree for every m: each m is examined at the price of time, for all requests together.

    Where trees are accepted more or less than was believed, beliefs of that class are learned anew
    from the nodes since the change.

    Promises enter as what a token of each request is worth, as a price of delay, and as bounds on how
    long the step may be; without promises nothing of it is looked at.

    Parameters
    ----------
    config
        Memory, the price of exploring, and guarantees.
    capabilities
        What the engine lets a policy choose.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> engine = Capabilities(
    ...     max_depth=4, depths=(0, 1, 2, 3, 4), max_width=2, free_drafts=True, hindsight=True)
    >>> policy = TreePolicy(ControlConfig(), engine)
    >>> policy.admit(RequestInfo(request=1, prompt_tokens=20, max_tokens=50, domain="code"))
    >>> tree = Candidates(
    ...     int_array([0, 0, 0]), int_array([-1, -1, 0]), int_array([1, 1, 2]),
    ...     np.array([0.8, 0.1, 0.6]), np.array([0.8, 0.1, 0.75]))
    >>> context = StepContext(
    ...     step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
    ...     requests=int_array([1]), drafts=int_array([2]), committed=int_array([1]),
    ...     context_tokens=int_array([21]), tokens_left=int_array([49]), candidates=tree)
    >>> plan = policy.plan(context)
    >>> plan.kept.tolist(), plan.verify_lens.tolist(), plan.draft_depth, plan.draft_width
    ([0, 1, 2], [2], 4, 2)
    """

    name = "adaptive_tree"

    def __init__(self, config: ControlConfig, capabilities: Capabilities) -> None:
        learn = config.learn
        self.capabilities = capabilities
        self.beliefs = TreeBeliefs(learn, max(capabilities.max_depth, 1))
        self.latency = StepLatency(
            _MAX_REQUESTS,
            _MAX_VERIFIED,
            window_steps=learn.latency_window_steps,
            capture_sizes=capabilities.capture_sizes,
            prices_drafting=capabilities.asks_for_depth,
        )
        self.price = PriceOfTime(_MAX_REQUESTS, window_s=learn.rate_window_s)
        self.audit = TreeAudit(learn.max_slots)
        self.shape = TreeShape(capabilities)
        self.reach = TreeReach(learn.max_slots)
        self.filling = RowFilling(_MAX_REQUESTS)
        self._drafting = Drafting(capabilities, self.latency)
        self.keeper = PromiseKeeper(config.slo, plain_depth=0 if self._drafting.decides else None)
        self.explorer = Explorer(config.seed, 0.0 if config.shadow else learn.probe_share)

    def admit(self, request: RequestInfo) -> None:
        """Give the request a row and its traffic class a slot."""
        if request.request in self.beliefs.rows:
            self.forget(request.request)
        row, opened = self.beliefs.admit(request)
        if opened is not None:
            self.audit.open_slot(opened)
            self.reach.open_slot(opened)
        self.keeper.admit(row, request)

    def forget(self, request: int) -> None:
        """Free the request's row; its slot keeps what it learned."""
        row = self.beliefs.forget(request)
        if row is not None:
            self.keeper.forget(row)

    def declare(self, change: Change) -> None:
        """Doubt what was learned of the drafter."""
        self.beliefs.shake()

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        n = context.requests.shape[0]
        nothing = np.zeros(0, dtype=np.int64)
        candidates = context.candidates
        if n == 0:
            return self._plan(context, nothing, nothing, Reason.IDLE)
        rows = self.beliefs.rows.find(context.requests)
        at_hand = 0 if candidates is None else candidates.request.shape[0]
        shape = self.shape.at(n)
        curve = self.latency.curve(
            n,
            at_hand,
            prefill_tokens=context.prefill_forecast_tokens,
            context_tokens=int(context.context_tokens.sum()),
            sampled_rows=int(self.beliefs.rows.sampled[rows].sum()),
            draft_depth=shape.depth,
        )
        now = self._step(context, rows, curve, shape.depth)
        if candidates is None or not at_hand:
            lens = np.zeros(n, dtype=np.int64)
            return self._plan(context, nothing, lens, Reason.NO_DRAFTS, now)
        limited = now.choose()
        selection, reason = limited.selection, limited.reason or Reason.PRICE
        count, probe = selection.count, None
        if limited.may_probe and not (count and self._measured(n, curve)):
            probe = self.explorer.verify_count(context.step, n, selection, self.latency)
        nodes, order = now.nodes, selection.order
        if probe is not None:
            count, reason = probe, Reason.PROBE
        elif count:
            self.audit.expect(
                context.step,
                NodeMargin.of(
                    order, count, now.slots, nodes.survival, now.curve, now.price, now.weights
                ),
            )
        kept = np.sort(order[:count])
        if probe is None:
            ranks = sibling_ranks(nodes.request, nodes.parent, n)[kept]
            counts = np.bincount(nodes.request[kept], minlength=n)
            said = candidates.survival[kept]
            self.shape.note(nodes.depth[kept], ranks, said, counts)
        lens = deepest_kept(nodes.request, nodes.depth, kept, n)
        expected = now.tokens(selection, count)
        return self._plan(context, kept, lens, reason, now, expected, limited.cap_ms)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step."""
        nodes = outcome.nodes
        self.audit.settle(outcome.step, None if outcome.exempt else nodes)
        self.explorer.earn(int(outcome.committed.sum()))
        usual_ms = self._learn_time(outcome)
        learn_price(self.price, self.latency, outcome, usual_ms)
        if self.keeper.keeps_accounts:
            rows = self.beliefs.rows.find(outcome.requests)
            self.keeper.observe(outcome, rows, self.latency, usual_ms)
        if nodes is None or outcome.exempt:
            return ()
        alarms, renewed = self.beliefs.learn(outcome.step, outcome.requests, nodes)
        for slot in renewed:
            self.audit.open_slot(slot)
        return alarms

    def report(self) -> Report:
        """Return an account for people and trackers."""
        return msgspec.structs.replace(
            self.keeper.report(),
            slots=self.beliefs.reports(),
            marginal_gain=self.audit.gain(),
        )

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {
            **self.beliefs.state(),
            **{name: getattr(self, name).state() for name in _PARTS},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.beliefs.load(state)
        for name in _PARTS:
            if name in state:  # older snapshots know nothing of promises
                getattr(self, name).load(state[name])

    def _step(
        self, context: StepContext, rows: IntArray, curve: FloatArray, draft_depth: int
    ) -> TreeStep:
        """Return what a step is decided from, promises included if there are any."""
        n, at_hand = rows.shape[0], curve.shape[0] - 1
        nodes = _NO_NODES
        if context.candidates is not None and at_hand:
            # Of more nodes than the table of step times holds, the drafter's last are left.
            tree, survival = context.candidates, self.beliefs.survival(context, context.candidates)
            nodes = Candidates(
                tree.request[:at_hand], tree.parent[:at_hand], tree.depth[:at_hand],
                survival[:at_hand],
            )  # fmt: skip
        slots = self.beliefs.rows.slot[rows][nodes.request]
        believed = nodes.survival * self.audit.shade[slots]
        if not self.keeper.active:
            price = self.price.tokens_per_ms(n, n / float(curve[0]), context.waiting_prompts)
            believed, curve = self.filling.limit(
                nodes.request, believed, UNWEIGHTED, curve, price, n
            )
            return TreeStep(nodes, slots, believed, curve, price)
        drafts_fully = int(nodes.depth.max(initial=0)) > self._drafting.look_depth
        best = self.reach.look(
            self.beliefs.rows.slot[rows], nodes.request, believed, learn=drafts_fully
        )
        terms = self.keeper.terms(context, rows, best, curve, self.latency)
        price = self.price.tokens_per_ms(n, n / float(curve[0]), terms.waiting)
        price += terms.delay_tokens_per_ms
        weights = terms.weights[nodes.request]
        believed, curve = self.filling.limit(nodes.request, believed, weights, curve, price, n)
        draft_ms = self._drafting.extra_ms(n, draft_depth)
        bounds = self.keeper.bounds(terms, curve, self.latency, draft_ms=draft_ms)
        return TreeStep(nodes, slots, believed, curve, price, weights, bounds)

    def _learn_time(self, outcome: StepOutcome) -> float | None:
        """Learn how long a step took, and what of it filled rows up; see `step_time.learn_time`."""
        n, places = outcome.decode_requests, places_filled(outcome.nodes, outcome.decode_requests)
        usual_ms = learn_time(self.latency, outcome, beyond_ms=self.filling.ms(places))
        if usual_ms is not None and outcome.latency_ns:
            self.filling.learn(
                n, outcome.verified_tokens, places, outcome.latency_ns / 1e6 - usual_ms,
                self.latency.verified_ms,
            )  # fmt: skip
        return usual_ms

    def _draft_depth(
        self, depth: int, now: TreeStep, n: int, count: int, cap_ms: float | None
    ) -> int:
        """Return how deep to draft within the bounds of a step, at most ``depth``."""
        bounds = now.bounds
        if bounds is None:
            return depth
        room_ms = (bounds.plain_cap_ms if cap_ms is None else cap_ms) - bounds.upper_ms[count]
        if not now.slots.size:
            # The first drafts are paid a step before they yield, and neighbours judge them then.
            room_ms = max(room_ms, min(bounds.twin_ms, bounds.first_ms) - bounds.upper_ms[0])
        return self._drafting.within(n, depth, float(room_ms))

    def _measured(self, requests: int, curve: FloatArray) -> bool:
        """Whether a step of so many requests without drafts was measured, and not too long ago."""
        known = self.latency.doubt(requests, 0, float(curve[0])) is not None
        return known and self.latency.evidence(requests, 0) >= _FADED_STEPS

    def _plan(
        self,
        context: StepContext,
        kept: IntArray,
        lens: IntArray,
        reason: Reason,
        now: TreeStep | None = None,
        expected_tokens: float = 0.0,
        cap_ms: float | None = None,
    ) -> StepPlan:
        n, count = lens.shape[0], kept.shape[0]
        explored = reason is Reason.PROBE
        shape = self.shape.at(n)
        depth, price, latency_ns = shape.depth, 0.0, None
        if now is not None:
            price, latency_ns = now.price, int(1e6 * float(now.curve[count]))
            depth = self._draft_depth(depth, now, n, count, cap_ms)
            if now.bounds is not None:
                longest_ms = now.bounds.upper_ms[count] + self._drafting.extra_ms(n, depth)
                self.keeper.note(context.step, float(longest_ms), float(now.bounds.upper_ms[0]))
        return StepPlan(
            step=context.step,
            draft_depth=depth,
            draft_width=shape.width,
            draft_nodes=shape.nodes,
            draft_floor=shape.floor,
            verify_lens=lens,
            kept=kept,
            depth=self.capabilities.max_depth,
            reason=reason,
            explored=explored,
            propensity=self.explorer.rate if explored else 1.0,
            price_tokens_per_s=1000.0 * price,
            predicted_tokens=n + expected_tokens if n else None,
            predicted_latency_ns=latency_ns,
        )


def build(config: ControlConfig, capabilities: Capabilities) -> TreePolicy:
    """Return the policy, for a configuration that names it as ``package.module:factory``."""
    return TreePolicy(config, capabilities)
