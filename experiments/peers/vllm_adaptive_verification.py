"""vLLM's adaptive verification: the drafts worth most by confidence, as many as the step can pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import (
    Capabilities,
    FloatArray,
    IntArray,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.controller.select import chain_candidates, select, verify_lens
from acclimate.experiments.peers.acceptance_estimator import AcceptanceEstimator
from acclimate.experiments.peers.base import Peer, PeerReason, confidence_of, verified_drafts
from acclimate.experiments.peers.token_cost import TokenCost

if TYPE_CHECKING:
    from acclimate.experiments.simulation.step_time import StepTime
    from acclimate.experiments.simulation.truth import Truth

_STEPS_REMEMBERED = 8  # verdicts come at most a step or two late


class VllmAdaptiveVerification(Peer):
    """Admit the drafts of largest survival, up to the count that maximises tokens per millisecond.

    Survival is the running product of the estimator's probabilities. The number of drafts is
    chosen on the CPU from the *last* step's probabilities (1 for a new request), since the present
    ones are still on the GPU; which drafts fill it is decided by the present ones. Costs come from
    a table measured at start-up. Drafting always goes to the full depth.

    In vLLM 0.32 this exists for the ``dspark`` drafter. A drafter with a trained confidence head
    is believed as it is; all others go through the estimator, and so do all here. Where the engine
    shows no confidence, all drafts are verified and the plan's reason says so.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    profile
        Step times for the start-up table; None: costs are learned while serving.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> peer = VllmAdaptiveVerification(Capabilities(max_depth=2, depths=(0, 1, 2)))
    >>> context = StepContext(
    ...     step=1, now_ns=0, waiting_prompts=0, prefill_forecast_tokens=0,
    ...     requests=int_array([1]), drafts=int_array([2]), committed=int_array([1]),
    ...     context_tokens=int_array([21]), tokens_left=int_array([49]))
    >>> plan = peer.plan(context)
    >>> plan.verify_lens.tolist(), str(plan.reason)
    ([2], 'no_confidence')
    """

    FOLLOWS: ClassVar[str] = "vLLM 0.32.0 enable_adaptive_verification, acceptance estimator"
    name = "vllm_adaptive_verification"

    def __init__(self, capabilities: Capabilities, profile: StepTime | None = None) -> None:
        super().__init__(capabilities)
        self.estimator = AcceptanceEstimator(capabilities.max_depth)
        self.cost = TokenCost(capabilities.max_depth, profile)
        self._last: dict[int, FloatArray] = {}
        self._pending: dict[int, dict[int, FloatArray]] = {}

    def plan(self, context: StepContext) -> StepPlan:
        """Choose the budget, then spend it."""
        most = self.capabilities.max_depth
        confidence = confidence_of(context, most, unsaid=0.5)
        if confidence is None or not context.requests.size:
            reason, lens = PeerReason.NO_CONFIDENCE, context.drafts
        else:
            reason, lens = PeerReason.RULE, self._admit(context, confidence)
        return self.make_plan(context, most, lens, reason, drafted=most)

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Grade the step's drafts against what was predicted of them; refit every 100 steps."""
        self.cost.learn(outcome)
        pending = self._pending.pop(outcome.step, {})
        requests, verified, accepted = verified_drafts(outcome)
        known = np.array([request in pending for request in requests.tolist()], dtype=bool)
        if known.any():
            features = np.array([pending[request] for request in requests[known].tolist()])
            self.estimator.learn(
                features, self.estimator.predict(features), verified[known], accepted[known]
            )
        if pending:
            self.estimator.end_step()
        return ()

    def forget(self, request: int) -> None:
        """Drop the request's last probabilities."""
        self._last.pop(request, None)

    def state(self) -> dict[str, Any]:
        """Return the estimator, the cost table, and what awaits a verdict."""
        return {
            "estimator": self.estimator.state(),
            "cost": self.cost.state(),
            "last": [[request, row.tolist()] for request, row in self._last.items()],
            "pending": [
                [step, [[request, row.tolist()] for request, row in rows.items()]]
                for step, rows in self._pending.items()
            ],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.estimator.load(state["estimator"])
        self.cost.load(state["cost"])
        self._last = {int(request): np.array(row) for request, row in state["last"]}
        self._pending = {
            int(step): {int(request): np.array(row) for request, row in rows}
            for step, rows in state["pending"]
        }

    def _admit(self, context: StepContext, confidence: FloatArray) -> IntArray:
        features = self.estimator.features(confidence)
        present = self.estimator.predict(features)
        requests = context.requests.tolist()
        new = np.ones(self.capabilities.max_depth)
        last = np.array([self._last.get(request, new) for request in requests])
        self._last.update(zip(requests, present, strict=True))
        self._pending[context.step] = dict(zip(requests, features, strict=True))
        if len(self._pending) > _STEPS_REMEMBERED:
            del self._pending[next(iter(self._pending))]
        budget = self._budget(context, last.cumprod(axis=1))
        candidates = chain_candidates(present.cumprod(axis=1), context.drafts)
        ranked = select(candidates.survival, np.zeros(candidates.survival.size + 1), 0.0)
        return verify_lens(candidates, ranked, budget, len(requests))

    def _budget(self, context: StepContext, survival: FloatArray) -> int:
        """Return the number of drafts with most expected tokens per millisecond."""
        at_hand = int(context.drafts.sum())
        if not self.cost.known:
            return at_hand
        position = np.arange(survival.shape[1])
        scores = np.sort(survival[position < context.drafts[:, None]])[::-1]
        n = context.requests.shape[0]
        tokens = n + np.concatenate(([0.0], scores.cumsum()))
        cost_ms = self.cost.curve(
            n, at_hand, context.prefill_forecast_tokens, self.capabilities.max_depth
        )
        last = cost_ms.shape[0]
        return int(np.argmax(tokens[:last] / cost_ms))


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> VllmAdaptiveVerification:
    """Return the peer, its cost table measured on the true step time if that is known."""
    return VllmAdaptiveVerification(capabilities, truth.step_time if truth is not None else None)
