"""SGLang's adaptive steps: a moving average of accepted drafts against thresholds, per batch tier."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepOutcome
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.base import DepthPeer, moved, verified_drafts

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

Tiers = Mapping[int, Sequence[int]]
TIERS: Tiers = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
"""Candidate depths from a batch size up, as in 0.5.23."""
FIRST_TIERS: Tiers = {1: (1, 3, 7)}
"""The candidates of the first release: one tier for all batch sizes, never 0."""

EMA_WEIGHT = 0.2
WARM_UP_BATCHES = 10
INTERVAL_BATCHES = 5
_UP_BAND = 0.0
_DOWN_BAND = {1: -0.25}  # by tier; 0 in the others


class SglangAdaptive(DepthPeer):
    """One slot per tier, each with its own average of accepted drafts per request and its depth.

    After a warm-up, every fifth batch of a tier moves its depth: down while the average is at or
    below the next smaller candidate - 0.5 + the down band, else up while it is above the present
    candidate - 0.5. From depth 0, where nothing is accepted, it probes the next candidate each
    time. The average forgets by batches, whatever their size.

    Graph padding of the batch size is left out: a batch belongs to the tier of the largest key
    that is at most its size.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose; candidates deeper than that are dropped.
    tiers
        Candidate depths by smallest batch size.

    Examples
    --------
    >>> peer = SglangAdaptive(Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5)))
    >>> [peer.slot(batch).depth for batch in (1, 8, 32, 64)]
    [5, 1, 1, 0]
    """

    FOLLOWS: ClassVar[str] = "SGLang 0.5.23 --speculative-adaptive (EMA)"
    name = "sglang_adaptive"

    def __init__(
        self, capabilities: Capabilities, tiers: Tiers = TIERS, *, weight: float = EMA_WEIGHT
    ) -> None:
        self._keys = sorted(tiers)
        self._slots = {
            key: _Slot(tiers[key], capabilities.max_depth, _DOWN_BAND.get(key, 0.0), weight)
            for key in self._keys
        }
        super().__init__(capabilities, self._slots[self._keys[0]].depth)

    def slot(self, batch: int) -> _Slot:
        """Return the slot of the tier that a batch size belongs to."""
        return self._slots[self._keys[max(bisect.bisect_right(self._keys, batch) - 1, 0)]]

    def choose(self, context: StepContext) -> int:
        """Take the depth of the batch's tier."""
        return self.slot(context.requests.shape[0]).depth

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Feed the batch's accepted drafts to its tier."""
        _, _, accepted = verified_drafts(outcome)
        slot = self.slot(outcome.decode_requests)
        if outcome.decode_requests and not outcome.exempt and (accepted.size or slot.depth == 0):
            slot.update(float(accepted.mean()) if accepted.size else None)
        return ()

    def state(self) -> dict[str, Any]:
        """Return depth, average and batches of each tier."""
        slots = [[key, s.depth, s.average, s.batches] for key, s in self._slots.items()]
        return {**super().state(), "slots": slots}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        for key, depth, average, batches in state["slots"]:
            slot = self._slots[int(key)]
            slot.depth, slot.average, slot.batches = int(depth), float(average), int(batches)


class _Slot:
    """One tier."""

    def __init__(
        self, candidates: Sequence[int], max_depth: int, down_band: float, weight: float
    ) -> None:
        self.weight = weight
        self.candidates = [d for d in sorted(set(candidates)) if d <= max_depth] or [max_depth]
        self.down_band = down_band
        middle = self.candidates[len(self.candidates) // 2]
        self.depth = max_depth if max_depth in self.candidates else middle
        self.average = float(self.depth - 1)
        self.batches = 0

    def update(self, accepted: float | None) -> None:
        """Count a batch with so many accepted drafts per request (None: nothing was drafted)."""
        if accepted is not None and self.depth > 0:
            self.average = moved(self.average, accepted, self.weight)
        self.batches += 1
        due = self.batches - WARM_UP_BATCHES
        if due > 0 and due % INTERVAL_BATCHES == 0:
            self._move()

    def _move(self) -> None:
        index = self.candidates.index(self.depth)
        if self.depth == 0:
            self.depth = self.candidates[min(index + 1, len(self.candidates) - 1)]
            if self.depth > 0 and self.average < 0:
                self.average = float(self.depth - 1)
            return
        last = len(self.candidates) - 1
        if index > 0 and self.average <= self._floor(self.candidates[index - 1]):
            while index > 0 and self.average <= self._floor(self.candidates[index - 1]):
                index -= 1
        else:
            while index < last and self.average > self.candidates[index] - 0.5 + _UP_BAND:
                index += 1
        self.depth = self.candidates[index]

    def _floor(self, smaller: int) -> float:
        """Return the average at which a smaller candidate is taken; 0 is treated like 1."""
        return (0.5 if smaller == 0 else smaller - 0.5) + self.down_band


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> SglangAdaptive:
    """Return the peer with the tiers of 0.5.23."""
    return SglangAdaptive(capabilities)
