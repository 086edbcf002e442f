"""A UCB bandit over depths: no model, only tokens per millisecond of what was tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepOutcome
from acclimate.controller.reports import Alarm
from acclimate.controller.select_kernels import first_best
from acclimate.experiments.peers.base import MeasuredPeer, PeerReason
from acclimate.predictors.numerics import load_arrays, save_arrays

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

HOLD_STEPS = 5
_LOADS = 12  # powers of two


class UcbBandit(MeasuredPeer):
    """UCB1 with the engine's depths as arms and committed tokens per millisecond as reward.

    Loads are kept apart, by powers of two of the decode count; a reward is taken relative to the
    best seen at its load. An arm is held for five steps, since a depth drafted in one step is
    verified in the next; steps in transition, with prefill or without a duration give no reward.
    It never forgets: after a shift every arm must unlearn its whole past.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose; every depth is an arm.
    width
        Factor of the confidence radius, ``width · sqrt(2 ln t / n)``.

    Examples
    --------
    >>> UcbBandit(Capabilities(max_depth=3, depths=(0, 1, 3))).arms
    (0, 1, 3)
    """

    FOLLOWS: ClassVar[str] = "UCB1 over depths, after BanditSpec (arXiv 2505.15141)"
    name = "ucb_bandit"

    def __init__(self, capabilities: Capabilities, width: float = 0.5) -> None:
        self.arms = capabilities.depths
        super().__init__(capabilities, self.arms[-1])
        self.width = width
        self.pulls = np.zeros((_LOADS, len(self.arms)))
        self.rewards = np.zeros((_LOADS, len(self.arms)))
        self.largest = np.zeros(_LOADS)
        self._load = -1
        self._held = 0

    def choose(self, context: StepContext) -> int:
        """Hold the arm, or take the one with the largest upper bound at this load."""
        load = load_of(context.requests.shape[0], _LOADS)
        if load == self._load and self._held < HOLD_STEPS:
            self._held += 1
            return self.depth
        self._load, self._held = load, 1
        return self.arms[self._best(load)]

    def reason(self) -> str:
        """Say that a depth is being measured while an arm has hardly been tried."""
        return PeerReason.TRIAL if self.pulls[self._load].min() < 1 else PeerReason.RULE

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Reward the arm that the step executed."""
        depth = self.executed(outcome)
        if depth not in self.arms or not outcome.latency_ns or outcome.prefill_tokens:
            return ()
        if outcome.decode_requests == 0:
            return ()
        load, arm = load_of(outcome.decode_requests, _LOADS), self.arms.index(depth)
        reward = int(outcome.committed.sum()) / (outcome.latency_ns / 1e6)
        self.largest[load] = max(self.largest[load], reward)
        self.pulls[load, arm] += 1
        self.rewards[load, arm] += reward
        return ()

    def state(self) -> dict[str, Any]:
        """Return pulls and rewards per load and arm."""
        arrays = save_arrays(self, _STATE)
        return {**super().state(), **arrays, "load": self._load, "held": self._held}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        load_arrays(self, _STATE, state)
        self._load, self._held = int(state["load"]), int(state["held"])

    def _best(self, load: int) -> int:
        pulls = self.pulls[load]
        untried = np.flatnonzero(pulls == 0)
        if untried.size:
            return int(untried[0])
        means = self.rewards[load] / pulls / self.largest[load]
        radius = self.width * np.sqrt(2.0 * math.log(pulls.sum()) / pulls)
        return int(first_best(means + radius))


_STATE = ("pulls", "rewards", "largest")


def load_of(requests: int, loads: int) -> int:
    """Return the power of two that a decode count belongs to, below ``loads``.

    >>> [load_of(n, 12) for n in (1, 2, 3, 4, 64)]
    [0, 1, 1, 2, 6]
    """
    return min(max(requests, 1).bit_length() - 1, loads - 1)


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> UcbBandit:
    """Return the peer."""
    return UcbBandit(capabilities)
