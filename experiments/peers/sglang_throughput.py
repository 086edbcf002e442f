"""SGLang's throughput-aware steps: expected tokens per profiled cost, scored every tenth batch."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepOutcome
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.base import DepthPeer, verified_drafts
from acclimate.experiments.peers.step_cost import StepCost

if TYPE_CHECKING:
    from acclimate.experiments.simulation.step_time import StepTime
    from acclimate.experiments.simulation.truth import Truth

WINDOW_BATCHES = 20
INTERVAL_BATCHES = 10
TIERS: Mapping[int, Sequence[int]] = {1: (1, 3, 5, 7), 8: (1, 3, 5), 32: (1, 3), 128: (1,)}


class SglangThroughput(DepthPeer):
    """The candidate depth with the largest (1 + Σ survival) / cost at the present batch size.

    Survival per position is the mean over the last 20 batches, one sample a batch whatever its
    size, shared by all batch sizes; positions without data are extrapolated geometrically. Costs
    come from dummy runs at start-up. Every tenth batch, once all positions in use have a full
    window, the candidates of the batch's tier are scored; there is no band and no depth 0. Going
    shallower clears the windows of the positions left.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose; candidates deeper than that are dropped.
    profile
        Step times for the start-up table; None: costs are learned while serving.
    tiers
        Candidate depths by smallest batch size, all above 0.

    Examples
    --------
    >>> SglangThroughput(Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5))).depth
    5
    """

    FOLLOWS: ClassVar[str] = "SGLang pull request 28045, throughput_aware (after 0.5.23)"
    name = "sglang_throughput"

    def __init__(
        self,
        capabilities: Capabilities,
        profile: StepTime | None = None,
        tiers: Mapping[int, Sequence[int]] = TIERS,
    ) -> None:
        most = capabilities.max_depth
        self._tiers = {
            key: [d for d in sorted(steps) if d <= most] or [min(1, most)]
            for key, steps in tiers.items()
        }
        self._keys = sorted(tiers)
        every = {d for steps in self._tiers.values() for d in steps}
        first = self._tiers[self._keys[0]]
        super().__init__(capabilities, most if most in every else first[len(first) // 2])
        self.cost = StepCost(most, profile)
        self._windows = [deque[float](maxlen=WINDOW_BATCHES) for _ in range(most)]
        self._batches = 0

    def choose(self, context: StepContext) -> int:
        """Score the candidates when it is time, else keep the depth."""
        batches = self._batches
        due = batches > 0 and batches % INTERVAL_BATCHES == 0
        if not due or not self.cost.known or not self._warm():
            return self.depth
        batch = context.requests.shape[0]
        tier = self._keys[max(bisect.bisect_right(self._keys, batch) - 1, 0)]
        best, best_score = self.depth, 0.0
        for candidate in self._tiers[tier]:
            tokens = self.expected_tokens(candidate)
            cost_ms = self.cost.step_ms(batch, candidate)
            if tokens is not None and cost_ms > 0 and tokens / cost_ms > best_score:
                best, best_score = candidate, tokens / cost_ms
        if best < self.depth:
            for window in self._windows[best:]:
                window.clear()
        return best

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Add the batch's survival to the windows of the positions that were verified."""
        self.cost.learn(outcome)
        requests, verified, accepted = verified_drafts(outcome)
        if not requests.size:
            return ()
        for position in range(int(verified.max())):
            self._windows[position].append(float((accepted > position).mean()))
        self._batches += 1
        return ()

    def expected_tokens(self, depth: int) -> float | None:
        """Return 1 + the sum of survivals, None while there is nothing to extrapolate from."""
        rates: list[float] = []
        for window in self._windows[:depth]:
            if window:
                rates.append(sum(window) / len(window))
            elif not rates:
                return None
            else:
                rates.append(_extrapolated(rates))
        return 1.0 + sum(rates)

    def state(self) -> dict[str, Any]:
        """Return windows, batches and costs."""
        return {
            **super().state(),
            "windows": [list(window) for window in self._windows],
            "batches": self._batches,
            "cost": self.cost.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        for window, values in zip(self._windows, state["windows"], strict=True):
            window.clear()
            window.extend(float(value) for value in values)
        self._batches = int(state["batches"])
        self.cost.load(state["cost"])

    def _warm(self) -> bool:
        return all(len(window) == WINDOW_BATCHES for window in self._windows[: self.depth])


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> SglangThroughput:
    """Return the peer, its cost table measured on the true step time if that is known."""
    return SglangThroughput(capabilities, truth.step_time if truth is not None else None)


def _extrapolated(rates: list[float]) -> float:
    """Return the next survival, going on at the mean ratio of those before."""
    if len(rates) == 1:
        return rates[0]
    if rates[0] <= 0:
        return 0.0
    ratio: float = (rates[-1] / rates[0]) ** (1.0 / (len(rates) - 1))
    return max(0.0, min(rates[-1], rates[-1] * ratio))
