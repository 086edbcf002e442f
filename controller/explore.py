"""Probes: steps drawn at random to measure what choosing alone would leave unknown."""

from __future__ import annotations

from typing import Any

from acclimate.controller.draws import Draws
from acclimate.controller.records import Capabilities, FloatArray
from acclimate.controller.select import Selection
from acclimate.predictors.latency import StepLatency

_PURPOSE = 1
_RATE = 0.15  # of the steps in which a probe is wanted and affordable
_ALLOWANCE_TOKENS = 10.0
_ENOUGH_STEPS = 4.0


class Explorer:
    """Decides when to probe, and keeps the account of what probes cost.

    Three things would stay unknown: the duration of a step without drafts where drafts always pay
    (an extrapolated k0 makes every price wrong), the cost of drafts where they never pay, and
    acceptance where unverified drafts cannot be graded in hindsight. A probe's cost is what the
    chosen plan was expected to earn beyond it.

    Parameters
    ----------
    seed
        Key of the draws.
    share
        Tokens that probes may cost, as a share of the tokens committed; 0 for no probes at all.
    """

    rate = _RATE

    def __init__(self, seed: int, share: float) -> None:
        self.share = share
        self.spent_tokens = 0.0
        self.earned_tokens = 0.0
        self.drafts_due = False  # a probe asked for drafts that are still to be verified
        self._draws = Draws(seed, _PURPOSE)

    def verify_count(
        self, step: int, requests: int, selection: Selection, latency: StepLatency
    ) -> int | None:
        """Return how many candidates a probe verifies instead of the chosen ones, or None."""
        if selection.count:
            wanted, known = 0, latency.evidence(requests, 0) >= _ENOUGH_STEPS
        else:
            wanted = selection.gains.shape[0] - 1
            known = latency.slope_known(requests)
        if known:
            return None
        cost = float(selection.gains[selection.count] - selection.gains[wanted])
        return wanted if self._affordable(cost, step) else None

    def draft_depth(
        self, step: int, requests: int, capabilities: Capabilities, extra: FloatArray, price: float
    ) -> int:
        """Return a depth to draft although the depth is 0 and nothing is graded in hindsight.

        The most that the drafts could earn, all accepted, must exceed their cost: on a saturated
        engine no probe is worth its time.
        """
        depth = next((d for d in capabilities.depths if d > 0), 0)
        verified = min(requests * depth, extra.shape[0] - 1)
        cost = price * float(extra[verified] - extra[0])
        if not depth or cost >= requests * depth or not self._affordable(max(cost, 0.0), step):
            return 0
        self.drafts_due = True
        return depth

    def take_drafts(self) -> bool:
        """Whether the drafts now at hand are those that a probe asked for."""
        due, self.drafts_due = self.drafts_due, False
        return due

    def earn(self, tokens: int) -> None:
        """Count committed tokens, of which probes may cost a share."""
        self.earned_tokens += tokens

    def state(self) -> dict[str, Any]:
        """Return the account."""
        return {
            "spent_tokens": self.spent_tokens,
            "earned_tokens": self.earned_tokens,
            "drafts_due": self.drafts_due,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.spent_tokens = float(state["spent_tokens"])
        self.earned_tokens = float(state["earned_tokens"])
        self.drafts_due = bool(state["drafts_due"])

    def _affordable(self, cost_tokens: float, step: int) -> bool:
        budget = _ALLOWANCE_TOKENS + self.share * self.earned_tokens
        if (
            not self.share
            or self.spent_tokens + cost_tokens > budget
            or self._draws.uniform(step) >= _RATE
        ):
            return False
        self.spent_tokens += cost_tokens
        return True
