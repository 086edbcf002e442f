"""Our policy for an engine of trees: depth, width and nodes by the price of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.explore import Explorer
from acclimate.controller.price import PriceOfTime
from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    Change,
    FloatArray,
    IntArray,
    NodeOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report
from acclimate.controller.requests import RequestRows
from acclimate.controller.select import select
from acclimate.controller.slot_reports import slot_reports
from acclimate.controller.slot_watch import COMMON_SIGNAL, SLOT_SIGNAL
from acclimate.controller.slots import SlotTable
from acclimate.controller.step_time import learn_price, learn_time
from acclimate.controller.tree_audit import NodeMargin, TreeAudit
from acclimate.controller.tree_drift import ALL, TreeDrift, families
from acclimate.controller.tree_paths import PathWorth
from acclimate.controller.tree_shape import TreeShape
from acclimate.controller.trees import conditionals, deepest_kept, path_survival, sibling_ranks
from acclimate.predictors.calibration import Calibration
from acclimate.predictors.draft_calibration import DraftCalibration
from acclimate.predictors.draft_memory import DraftMemory, DraftNodes
from acclimate.predictors.drift import Shift
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS = 512
_MAX_VERIFIED = 8_192
_FADED_STEPS = 0.2  # decayed steps at which a measurement has faded
_PARTS = (
    "slots",
    "rows",
    "drafter",
    "drift",
    "memory",
    "paths",
    "calibration",
    "latency",
    "price",
    "audit",
    "shape",
    "explorer",
)


class TreePolicy:
    """Verifies those nodes of the drafted trees that earn more than their time costs.

    The drafter's probabilities are corrected per domain, depth and request by what was learned, and
    multiplied along paths. Survival then never rises along a path, so that the best m nodes are a
    connected tree for every m: each m is examined at the price of time, for all requests together.

    Where trees are accepted more or less than was believed, beliefs of that class are learned anew
    from the nodes since the change.

    Parameters
    ----------
    config
        Memory, and the price of exploring.
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
        learn, depth = config.learn, max(capabilities.max_depth, 1)
        self.capabilities = capabilities
        self.slots = SlotTable(learn.max_slots)
        self.rows = RequestRows()
        # A step grades several siblings per token.
        self.drafter = DraftCalibration(
            learn.max_slots,
            depth,
            window_tokens=2.0 * learn.acceptance_window_tokens,
            request_window_tokens=4.0 * learn.request_window_tokens,
        )
        self.drift = TreeDrift(learn.max_slots)
        self.memory = DraftMemory(learn.max_slots)
        self.paths = PathWorth(learn.max_slots)
        self.calibration = Calibration(
            learn.max_slots, window_tokens=2.0 * learn.acceptance_window_tokens
        )
        self.latency = StepLatency(
            _MAX_REQUESTS, _MAX_VERIFIED, window_steps=learn.latency_window_steps
        )
        self.price = PriceOfTime(_MAX_REQUESTS, window_s=learn.rate_window_s)
        self.audit = TreeAudit(learn.max_slots)
        self.shape = TreeShape(capabilities)
        self.explorer = Explorer(config.seed, 0.0 if config.shadow else learn.probe_share)

    def admit(self, request: RequestInfo) -> None:
        """Give the request a row and its traffic class a slot."""
        if request.request in self.rows:
            self.forget(request.request)
        placement = self.slots.place(request)
        row = self.rows.add(request.request, slot=placement.slot, sampled=request.sampled)
        self.drafter.reserve(self.rows.capacity)
        self.drafter.open_request(row)
        if placement.opened:
            self.drafter.open_slot(placement.slot, placement.pool)
            self.drift.open_slot(placement.slot)
            self.memory.open_slot(placement.slot)
            self.paths.open_slot(placement.slot)
            self.calibration.open_slot(placement.slot)
            self.audit.open_slot(placement.slot)

    def forget(self, request: int) -> None:
        """Free the request's row; its slot keeps what it learned."""
        row = self.rows.remove(request)
        if row is not None:
            self.slots.leave(int(self.rows.slot[row]))

    def declare(self, change: Change) -> None:
        """Doubt what was learned of the drafter."""
        self.drafter.shake()
        self.drift.restart()

    def plan(self, context: StepContext) -> StepPlan:
        """Decide one step."""
        n = context.requests.shape[0]
        nothing = np.zeros(0, dtype=np.int64)
        candidates = context.candidates
        if n == 0:
            return self._plan(context, nothing, nothing, Reason.IDLE)
        rows = self.rows.find(context.requests)
        at_hand = 0 if candidates is None else candidates.request.shape[0]
        curve = self.latency.curve(
            n,
            at_hand,
            prefill_tokens=context.prefill_forecast_tokens,
            context_tokens=int(context.context_tokens.sum()),
            sampled_rows=int(self.rows.sampled[rows].sum()),
            draft_depth=self.shape.depth,
        )
        price = self.price.tokens_per_ms(n, n / float(curve[0]), context.waiting_prompts)
        if candidates is None or not at_hand:
            return self._plan(
                context, nothing, np.zeros(n, dtype=np.int64), Reason.NO_DRAFTS, curve, price
            )
        # Of more nodes than the table of step times holds, the drafter's last are left.
        at_hand = curve.shape[0] - 1
        request, parent = candidates.request[:at_hand], candidates.parent[:at_hand]
        slots = self.rows.slot[rows][request]
        survival = self.survival(context, candidates)[:at_hand]
        selection = select(survival * self.audit.shade[slots], curve, price)
        count, reason = selection.count, Reason.PRICE
        probe = None
        if not (count and self._measured(n, curve)):
            probe = self.explorer.verify_count(context.step, n, selection, self.latency)
        if probe is not None:
            count, reason = probe, Reason.PROBE
        elif count:
            self.audit.expect(
                context.step,
                NodeMargin.of(selection.order, count, slots, survival, curve, price),
            )
        kept = np.sort(selection.order[:count])
        depth = candidates.depth[:at_hand]
        if probe is None:
            ranks = sibling_ranks(request, parent, n)[kept]
            self.shape.note(depth[kept], ranks, np.bincount(request[kept], minlength=n))
        lens = deepest_kept(request, depth, kept, n)
        return self._plan(context, kept, lens, reason, curve, price, selection.worth(count))

    def survival(self, context: StepContext, candidates: Candidates) -> FloatArray:
        """Return P(the path to each candidate is accepted) as it is believed, shape (m,)."""
        rows = self.rows.find(context.requests)[candidates.request]
        said = candidates.confidence
        if said is None:
            said = conditionals(candidates.parent, candidates.survival)
        slots = self.rows.slot[rows]
        conditional = self.drafter.conditional(slots, rows, candidates.depth, said)
        product = path_survival(
            candidates.request, candidates.parent, conditional, context.requests.shape[0]
        )
        return self.paths.apply(slots, candidates.parent, candidates.depth, product)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step."""
        nodes = outcome.nodes
        self.audit.settle(outcome.step, None if outcome.exempt else nodes)
        self.explorer.earn(int(outcome.committed.sum()))
        learn_price(self.price, self.latency, outcome, learn_time(self.latency, outcome))
        if nodes is None or outcome.exempt:
            return ()
        return self._learn_nodes(outcome.step, outcome.requests, nodes)

    def report(self) -> Report:
        """Return an account for people and trackers."""
        return Report(
            slots=slot_reports(self.slots, self.calibration), marginal_gain=self.audit.gain()
        )

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {name: getattr(self, name).state() for name in _PARTS}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        for name in _PARTS:
            getattr(self, name).load(state[name])
        self.drafter.reserve(self.rows.capacity)

    def _measured(self, requests: int, curve: FloatArray) -> bool:
        """Whether a step of so many requests without drafts was measured, and not too long ago."""
        known = self.latency.doubt(requests, 0, float(curve[0])) is not None
        return known and self.latency.evidence(requests, 0) >= _FADED_STEPS

    def _learn_nodes(self, step: int, requests: IntArray, nodes: NodeOutcomes) -> list[Alarm]:
        """Learn a step's graded nodes; where a class has shifted, learn it anew."""
        row_of = self.rows.find(requests)
        all_rows = row_of[nodes.request]
        all_slots = self.rows.slot[all_rows]
        believed = self.drafter.conditional(all_slots, all_rows, nodes.depth, nodes.confidence)
        product = path_survival(nodes.request, nodes.parent, believed, requests.shape[0])
        self.paths.learn(all_slots, nodes.depth, product, nodes.accepted, nodes.verified)
        known = np.flatnonzero(nodes.graded)
        owners, rows, slots = nodes.request[known], all_rows[known], all_slots[known]
        depth, said, accepted = nodes.depth[known], nodes.confidence[known], nodes.accepted[known]
        graded = families(nodes.request, nodes.parent, believed[known], nodes.accepted, known)
        self.memory.add(
            DraftNodes(slots, rows, requests[owners], depth, said, accepted), graded.of_node
        )
        self.calibration.learn(self.drafter.learn(slots, rows, depth, said, accepted))
        shifted = self.drift.observe(self.rows.slot[row_of], row_of, graded)
        if ALL not in shifted:
            for slot, shift in shifted.items():
                self._learn_anew(slot, shift.tokens_since)
            return [self._alarm(step, slot, shift, SLOT_SIGNAL) for slot, shift in shifted.items()]
        everything = shifted[ALL]
        self.drafter.shake_pools()
        served = np.flatnonzero(self.drift.seen).tolist()
        shares = [self.drift.share(slot) for slot in served]
        for slot, share in zip(served, shares, strict=True):
            self._learn_anew(slot, share * everything.tokens_since)
        return [self._alarm(step, max(served), everything, COMMON_SIGNAL)]

    def _learn_anew(self, slot: int, families_since: float) -> None:
        since = self.memory.latest(slot, families=families_since)
        # Rows are used again: only a request that still has its own has a history.
        rows = np.where(self.rows.find(since.owner) == since.rows, since.rows, 0)
        self.drafter.learn_anew(slot, rows, since.depth, since.said, since.accepted)
        self.drift.open_slot(slot)
        self.paths.open_slot(slot)
        self.audit.open_slot(slot)

    def _alarm(self, step: int, slot: int, shift: Shift, signal: str) -> Alarm:
        return Alarm(
            step=step,
            slot=slot,
            label=self.slots.label(slot),
            signal=signal,
            before=shift.before,
            after=shift.after,
            graded_tokens=int(self.calibration.graded_tokens[slot]),
            tokens_since=shift.tokens_since,
            statistic=shift.statistic,
        )

    def _plan(
        self,
        context: StepContext,
        kept: IntArray,
        lens: IntArray,
        reason: Reason,
        curve: FloatArray | None = None,
        price: float = 0.0,
        expected_tokens: float = 0.0,
    ) -> StepPlan:
        explored = reason is Reason.PROBE
        return StepPlan(
            step=context.step,
            draft_depth=self.shape.depth,
            draft_width=self.shape.width,
            draft_nodes=self.shape.nodes,
            verify_lens=lens,
            kept=kept,
            depth=self.capabilities.max_depth,
            reason=reason,
            explored=explored,
            propensity=self.explorer.rate if explored else 1.0,
            price_tokens_per_s=1000.0 * price,
            predicted_tokens=lens.shape[0] + expected_tokens if lens.size else None,
            predicted_latency_ns=None if curve is None else int(1e6 * float(curve[kept.size])),
        )


def build(config: ControlConfig, capabilities: Capabilities) -> TreePolicy:
    """Return the policy, for a configuration that names it as ``package.module:factory``."""
    return TreePolicy(config, capabilities)
