"""AdaServe: a depth by load alone, then drafts for each request's target first and the rest after."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import (
    Capabilities,
    FloatArray,
    IntArray,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.controller.select import chain_candidates, select, verify_lens
from acclimate.experiments.peers.base import Peer, PeerReason, confidence_of
from acclimate.experiments.peers.step_cost import StepCost

if TYPE_CHECKING:
    from acclimate.experiments.simulation.step_time import StepTime
    from acclimate.experiments.simulation.truth import Truth


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """Settings of the shape rule and of the verify budget.

    Parameters
    ----------
    budget_tokens
        Tokens that a step may verify, one root per request included; also the rule's B₁.
    offset
        The rule's c₁.
    least_depth
        Smallest draft depth, cut to the engine's.
    acceptance
        Conditional acceptance believed where the drafter shows no confidence.
    """

    budget_tokens: int = 256
    offset: int = 1
    least_depth: int = 3
    acceptance: float = 0.7

    def depth(self, requests: int, max_depth: int) -> int:
        """Return ⌊B₁/(n + c₁)⌋ - 1 within [least_depth, max_depth].

        >>> [Shape().depth(n, max_depth=8) for n in (1, 30, 40, 200)]
        [8, 7, 5, 3]
        """
        wanted = self.budget_tokens // (requests + self.offset) - 1
        return max(min(self.least_depth, max_depth), min(wanted, max_depth))


class AdaServe(Peer):
    """Selects drafts for latency targets first, then for throughput, under a fixed budget.

    The draft depth follows from the number of requests; neither acceptance nor latency enters, and
    nothing is ever learned of acceptance: a drafter's confidence is believed as it is, and where
    there is none every token counts as accepted with probability 0.7. A request with a TPOT target
    needs A = (l + T)/TPOT - o tokens from this step, for l seconds since its first token, o tokens
    after it and a step of T seconds, at most its draft and one. The first pass gives each request
    drafts until their expected yield meets A, the second spends the rest of the budget by survival.
    A chain has width 1, and so the rule for width does not show.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    descending
        Whether the neediest request is served first, as in the paper; its code serves the least
        needy first.
    profile
        Step times from which T is taken; None: the last step's duration.
    shape
        Budget and shape rule.
    truth
        What a simulation knows: acceptance is then true, given what the drafter says; a yardstick
        for what belief alone costs.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> peer = AdaServe(Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4)))
    >>> context = StepContext(
    ...     step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
    ...     requests=int_array([1]), drafts=int_array([4]), committed=int_array([1]),
    ...     context_tokens=int_array([21]), tokens_left=int_array([49]))
    >>> peer.plan(context).verify_lens.tolist()
    [4]
    """

    FOLLOWS: ClassVar[str] = "AdaServe, arXiv 2501.12162v2"

    def __init__(
        self,
        capabilities: Capabilities,
        *,
        descending: bool = True,
        profile: StepTime | None = None,
        shape: Shape | None = None,
        truth: Truth | None = None,
    ) -> None:
        super().__init__(capabilities)
        self.name = "adaserve" if descending else "adaserve_code"
        if truth is not None:
            self.name = "adaserve_true"
        self._truth = truth
        self.descending = descending
        self.shape = shape or Shape()
        self._cost = None if profile is None else StepCost(capabilities.max_depth, profile)
        self._last_step_s = 0.0
        self._tpot_s: dict[int, float] = {}
        self._first: dict[int, tuple[int, int]] = {}

    def admit(self, request: RequestInfo) -> None:
        """Note the request's TPOT target, if it has one."""
        if request.slo is not None and request.slo.tpot_s is not None:
            self._tpot_s[request.request] = request.slo.tpot_s

    def forget(self, request: int) -> None:
        """Drop the request."""
        self._tpot_s.pop(request, None)
        self._first.pop(request, None)

    def plan(self, context: StepContext) -> StepPlan:
        """Draft by the shape rule, and spend the budget in two passes."""
        n = context.requests.shape[0]
        depth = self.allowed(self.shape.depth(n, self.capabilities.max_depth))
        drafts = np.minimum(context.drafts, depth)
        lens = self._select(context, drafts, depth) if n else drafts
        return self.make_plan(context, depth, lens, PeerReason.RULE, drafted=depth)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Remember how long a step takes; acceptance is not looked at."""
        if outcome.latency_ns:
            self._last_step_s = outcome.latency_ns / 1e9
        return ()

    def needs(self, context: StepContext, depth: int) -> FloatArray:
        """Return the tokens that each request needs from this step, shape (n,), 0 without a target.

        Examples
        --------
        >>> from acclimate.controller.records import Slo, int_array
        >>> peer = AdaServe(Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4)))
        >>> peer.admit(RequestInfo(
        ...     request=1, prompt_tokens=9, max_tokens=50, slo=Slo(tpot_s=0.05)))
        >>> def at(step: int, now_ns: int, committed: int) -> StepContext:
        ...     return StepContext(
        ...         step=step, now_ns=now_ns, waiting_prompts=0, prefill_forecast_tokens=0,
        ...         requests=int_array([1]), drafts=int_array([4]),
        ...         committed=int_array([committed]), context_tokens=int_array([20]),
        ...         tokens_left=int_array([40]))
        >>> peer.needs(at(1, 0, 1), depth=4).tolist()
        [0.0]
        >>> peer.needs(at(2, 200_000_000, 3), depth=4).tolist()
        [2.0]
        """
        step_s = self._step_s(context.requests.shape[0], depth)
        needs = np.zeros(context.requests.shape[0])
        requests, committed = context.requests.tolist(), context.committed.tolist()
        for row, (request, tokens) in enumerate(zip(requests, committed, strict=True)):
            tpot_s = self._tpot_s.get(request)
            if tpot_s is not None:
                first_ns, first_tokens = self._first.setdefault(request, (context.now_ns, tokens))
                since_s = (context.now_ns - first_ns) / 1e9
                needs[row] = (since_s + step_s) / tpot_s - (tokens - first_tokens)
        return np.clip(needs, 0.0, depth + 1.0)

    def state(self) -> dict[str, Any]:
        """Return targets, first tokens and the step's duration."""
        return {
            "tpot_s": [[request, value] for request, value in self._tpot_s.items()],
            "first": [[request, *pair] for request, pair in self._first.items()],
            "last_step_s": self._last_step_s,
            "cost": None if self._cost is None else self._cost.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, with a profile or without as it was."""
        self._tpot_s = {int(request): float(value) for request, value in state["tpot_s"]}
        self._first = {int(request): (int(ns), int(c)) for request, ns, c in state["first"]}
        self._last_step_s = float(state["last_step_s"])
        self._cost = None
        if state["cost"] is not None:
            self._cost = StepCost(self.capabilities.max_depth, None)
            self._cost.load(state["cost"])

    def _select(self, context: StepContext, drafts: IntArray, depth: int) -> IntArray:
        survival = self._survival(context)
        budget = max(self.shape.budget_tokens - drafts.shape[0], 0)
        needs = self.needs(context, depth)
        lens = np.zeros_like(drafts)
        order = np.argsort(-needs if self.descending else needs, kind="stable")
        for row in order.tolist():
            expected = 1.0
            while budget and expected < needs[row] and lens[row] < drafts[row]:
                expected += survival[row, lens[row]]
                lens[row] += 1
                budget -= 1
        # What the first pass took is worth most to the second, so that prefixes stay whole.
        survival[np.arange(survival.shape[1]) < lens[:, None]] = 2.0
        candidates = chain_candidates(survival, drafts)
        size = candidates.survival.size
        ranked = select(candidates.survival, np.zeros(size + 1), 0.0)
        return verify_lens(candidates, ranked, min(size, int(lens.sum()) + budget), drafts.shape[0])

    def _survival(self, context: StepContext) -> FloatArray:
        """Return survival as the drafter's confidence or the truth has it, (n, max_depth)."""
        most, usual = self.capabilities.max_depth, self.shape.acceptance
        believed = confidence_of(context, most, unsaid=usual)
        if self._truth is not None:
            requests, now_ns = context.requests, context.now_ns
            if believed is None:
                return self._truth.survival(requests, now_ns).copy()
            believed = self._truth.acceptance(requests, believed, now_ns)
        elif believed is None:
            believed = np.full((context.requests.shape[0], most), usual)
        survival: FloatArray = believed.cumprod(axis=1)
        return survival

    def _step_s(self, requests: int, depth: int) -> float:
        if self._cost is None:
            return self._last_step_s
        return self._cost.step_ms(requests, depth) / 1000.0


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> AdaServe:
    """Return the peer with the paper's order."""
    return AdaServe(capabilities, profile=truth.step_time if truth is not None else None)


def build_code_order(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> AdaServe:
    """Return the peer with the order of the published code."""
    return AdaServe(
        capabilities, descending=False, profile=truth.step_time if truth is not None else None
    )
