"""Cascade: speculate only while its measured utility, token gain over time cost, exceeds one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepOutcome
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.base import MeasuredPeer, PeerReason
from acclimate.experiments.peers.ucb_bandit import load_of

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

TRIAL_STEPS = 4
SET_STEPS = 16
_MAX_SET_STEPS = 1024
_SLOWDOWN_CAP = 0.05
_LOADS = 12


class Cascade(MeasuredPeer):
    """Test phases of short trials, set phases that use the best depth found.

    The utility of a depth is (tokens per step at it / tokens per step at depth 0) over (time per
    step at it / time at depth 0). A test phase tries depth 0 if its time is not known at this load,
    then climbs from the last good depth, or the middle one, while utility rises, first up, then
    down. If no depth reaches a utility of 1 the set phase runs at depth 0, and doubles each time
    that this happens again. A test phase waits while trials have cost more than 5 % of the time
    since the load began: time beyond what their tokens would have taken at depth 0.

    The paper does this per request at batch 1; here it is one decision for the batch, started anew
    when the decode count leaves its power of two. What the phases do follows the paper's abstract;
    their lengths (4 and 16 steps) and the order of the climb are ours. Steps with prefill, without
    a duration or in transition between depths are not measured.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.

    Examples
    --------
    >>> Cascade(Capabilities(max_depth=4, depths=(0, 1, 2, 4))).depth
    0
    """

    FOLLOWS: ClassVar[str] = "Cascade, arXiv 2506.20675v1"
    name = "cascade"

    def __init__(self, capabilities: Capabilities) -> None:
        super().__init__(capabilities, 0)
        self._positive = [d for d in capabilities.depths if d > 0]
        self._utility: dict[int, float] = {}
        self._load = -1
        self._start: int | None = None  # the depth a test phase starts from
        self._begin()

    def choose(self, context: StepContext) -> int:
        """Return the depth of the trial or the set phase; start anew at another load."""
        load = load_of(context.requests.shape[0], _LOADS)
        if load != self._load:
            self._load = load
            self._begin()
        return self._now

    def reason(self) -> str:
        """Say whether the depth is being measured."""
        return PeerReason.TRIAL if self._trying else PeerReason.RULE

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Measure the step, and go on to the next trial or phase when this one is over."""
        depth = self.executed(outcome)
        measured = outcome.latency_ns and not outcome.prefill_tokens and outcome.decode_requests
        if depth != self._now or not measured or self._load < 0:
            return ()
        if load_of(outcome.decode_requests, _LOADS) != self._load:
            return ()
        ms = (outcome.latency_ns or 0) / 1e6
        tokens = int(outcome.committed.sum()) / outcome.decode_requests
        self._elapsed_ms += ms
        self._steps += 1
        if self._trying:
            self._ms += ms
            self._tokens += tokens
            if self._base_ms and depth:
                self._lost_ms += max(ms - tokens * self._base_ms, 0.0)
            if self._steps >= TRIAL_STEPS:
                self._end_trial()
        elif self._steps >= self._set_steps and self._may_test():
            self._begin_test()
        return ()

    def state(self) -> dict[str, Any]:
        """Return the phase, the trials of this test and the time they cost."""
        return {
            **super().state(),
            **{name: getattr(self, f"_{name}") for name in _STATE},
            "utility": [[depth, value] for depth, value in self._utility.items()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        for name in _STATE:
            setattr(self, f"_{name}", state[name])
        self._utility = {int(depth): float(value) for depth, value in state["utility"]}

    def _begin(self) -> None:
        """Forget what was measured at another load."""
        self._base_ms = 0.0
        self._elapsed_ms = 0.0
        self._lost_ms = 0.0
        self._set_steps = SET_STEPS
        self._begin_test()

    def _begin_test(self) -> None:
        self._utility.clear()
        self._trying = bool(self._positive)
        self._try(self._first() if self._base_ms and self._positive else 0)

    def _first(self) -> int:
        return self._start or self._positive[len(self._positive) // 2]

    def _try(self, depth: int) -> None:
        self._now = depth
        self._steps = 0
        self._ms = 0.0
        self._tokens = 0.0

    def _end_trial(self) -> None:
        """Value the trial, and try the next depth or set the best."""
        if self._now == 0:
            # At depth 0 every request commits one token a step.
            self._base_ms = self._ms / self._tokens
            self._try(self._first())
            return
        self._utility[self._now] = self._tokens * self._base_ms / self._ms
        following = self._next()
        if following is not None:
            self._try(following)
            return
        best = max(self._utility, key=lambda depth: (self._utility[depth], -depth))
        self._trying = False
        if self._utility[best] >= 1.0:
            self._start, self._set_steps = best, SET_STEPS
            self._try(best)
        else:
            self._set_steps = min(2 * self._set_steps, _MAX_SET_STEPS)
            self._try(0)

    def _next(self) -> int | None:
        """Return the neighbour of the best depth that has not been tried, the deeper one first."""
        best = max(self._utility, key=lambda depth: (self._utility[depth], -depth))
        index = self._positive.index(best)
        for neighbour in (index + 1, index - 1):
            inside = 0 <= neighbour < len(self._positive)
            if inside and self._positive[neighbour] not in self._utility:
                return self._positive[neighbour]
        return None

    def _may_test(self) -> bool:
        return self._lost_ms <= _SLOWDOWN_CAP * self._elapsed_ms


_STATE = (
    "load",
    "start",
    "now",
    "trying",
    "steps",
    "set_steps",
    "ms",
    "tokens",
    "base_ms",
    "elapsed_ms",
    "lost_ms",
)


def build(config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None) -> Cascade:
    """Return the peer."""
    return Cascade(capabilities)
