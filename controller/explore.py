"""Probes: steps drawn at random to measure what choosing alone would leave unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from acclimate.controller.draws import Draws
from acclimate.controller.records import FloatArray
from acclimate.controller.select import Selection
from acclimate.predictors.latency import StepLatency

BoolArray = npt.NDArray[np.bool_]

_PURPOSE = 1
_RATE = 0.15  # of the steps in which a probe is wanted and affordable
_ALLOWANCE_TOKENS = 10.0
_ENOUGH_STEPS = 4.0
_HOPE = 1.64  # standard errors
_AGAIN_SHARE = 0.025  # of the probes' share
_LOOK_SHARE = 0.5  # of the probes' share, on top


class Explorer:
    """Decides when to probe, and keeps the account of what probes cost.

    Three things would stay unknown: the duration of a step without drafts where drafts always pay
    (an extrapolated k0 makes every price wrong), the cost of drafts where they never pay, and
    acceptance at depths that are never drafted. A probe's cost is what the chosen plan was expected
    to earn beyond it. A look is cheaper: drafts that are made and not verified, where what becomes of
    them is seen in the tokens that come.

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
        self.spent_again_tokens = 0.0  # on what had been measured before, and found wanting
        self.looked_tokens = 0.0
        self.due_depth = 0  # of drafts that a probe asked for and that are still to be verified
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

    def draws(self, step: int) -> bool:
        """Whether chance allows a probe in this step; what a probe needs to know costs time."""
        return self.share > 0.0 and self._draws.uniform(step) < _RATE

    def depth(
        self, step: int, index: int, values: FloatArray, doubts: FloatArray, stale: BoolArray
    ) -> int | None:
        """Return the index of a depth to try in this step instead of the chosen one, or None.

        A depth is tried while it could be the best for all that is known; one that could not, a
        rare second time once its last measurement has faded, for engines change.

        Parameters
        ----------
        step
            The step's number.
        index
            The chosen depth.
        values, doubts
            Shape (depths,): each depth's objective in tokens, and its standard error.
        stale
            Shape (depths,): whether its last measurement has faded.
        """
        if not self.draws(step):
            return None
        losses = np.maximum(values[index] - values, 0.0)
        hopes = values + _HOPE * doubts
        hopes[index] = -np.inf
        best = int(np.argmax(hopes))
        if hopes[best] > values[index]:
            return best if self._pay(float(losses[best])) else None
        stale[index] = False
        if not stale.any():
            return None
        cheapest = int(np.argmin(np.where(stale, losses, np.inf)))
        again = self.spent_again_tokens + float(losses[cheapest])
        if again > _AGAIN_SHARE * self.share * self.earned_tokens:
            return None
        self.spent_again_tokens = again
        return cheapest

    def await_drafts(self, depth: int) -> None:
        """Note that a probe asks for drafts of this depth, to be verified in the next step."""
        self.due_depth = depth

    def take_drafts(self) -> int | None:
        """Return the depth of the drafts now at hand if a probe asked for them, else None."""
        due, self.due_depth = self.due_depth, 0
        return due or None

    def looks(self, cost_tokens: float) -> bool:
        """Whether drafts are made in this step, at such a cost, only to see what becomes of them."""
        if self.looked_tokens + cost_tokens > _LOOK_SHARE * self.share * self.earned_tokens:
            return False
        self.looked_tokens += cost_tokens
        return True

    def earn(self, tokens: int) -> None:
        """Count committed tokens, of which probes may cost a share."""
        self.earned_tokens += tokens

    def state(self) -> dict[str, Any]:
        """Return the account."""
        return {
            "spent_tokens": self.spent_tokens,
            "spent_again_tokens": self.spent_again_tokens,
            "earned_tokens": self.earned_tokens,
            "looked_tokens": self.looked_tokens,
            "due_depth": self.due_depth,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.spent_tokens = float(state["spent_tokens"])
        self.earned_tokens = float(state["earned_tokens"])
        self.spent_again_tokens = float(state["spent_again_tokens"])
        self.due_depth = int(state["due_depth"])
        self.looked_tokens = float(state.get("looked_tokens", 0.0))

    def _affordable(self, cost_tokens: float, step: int) -> bool:
        return self.draws(step) and self._pay(cost_tokens)

    def _pay(self, cost_tokens: float) -> bool:
        budget = _ALLOWANCE_TOKENS + self.share * self.earned_tokens
        if not self.share or self.spent_tokens + cost_tokens > budget:
            return False
        self.spent_tokens += cost_tokens
        return True
