"""What several peers share: bookkeeping of a batch-wide depth, and of what was verified at it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
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

_PLANS_REMEMBERED = 64  # plans whose outcome never came are forgotten


class PeerReason(StrEnum):
    """Why a peer's plan is what it is, beside `acclimate.controller.reasons.Reason`."""

    RULE = "rule"  # the peer's own rule decided
    TRIAL = "trial"  # the peer measures this depth
    OFF = "off"  # the peer's gate has closed
    NO_CONFIDENCE = "no_confidence"  # the rule needs a confidence per draft, and there is none


class Peer:
    """A policy that keeps nothing of requests and reports nothing; peers say what differs.

    ``FOLLOWS`` names the engine or paper, and its version; tables show it.
    """

    FOLLOWS: ClassVar[str]
    name: str

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities

    def admit(self, request: RequestInfo) -> None:
        """Nothing to note."""

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Learn from one step; a peer raises no alarms."""
        return ()

    def declare(self, change: Change) -> None:
        """Nothing to note."""

    def forget(self, request: int) -> None:
        """Nothing to drop."""

    def report(self) -> Report:
        """Nothing to tell."""
        return Report()

    def allowed(self, depth: int) -> int:
        """Return the largest depth that the engine allows and that is at most ``depth``.

        Where drafts come whatever is asked, every depth up to the maximum is allowed. Where even
        the smallest allowed draft is deeper, it is drafted, and ``depth`` of it verified.
        """
        depth = max(0, min(depth, self.capabilities.max_depth))
        if not self.capabilities.asks_for_depth:
            return depth
        return max((d for d in self.capabilities.depths if d <= depth), default=depth)

    def make_plan(
        self, context: StepContext, depth: int, lens: IntArray, reason: str, *, drafted: int
    ) -> StepPlan:
        """Return a plan that verifies ``lens`` and drafts ``drafted``, as far as that is a choice.

        Parameters
        ----------
        depth
            The step's cap, at least the largest of ``lens``.
        lens
            Shape (n,): verify lengths, at most the drafts at hand.
        drafted
            Depth wanted of the next drafts; raised to the engine's smallest.
        """
        if self.capabilities.uniform_only and lens.size:
            lens = np.minimum(context.drafts, lens.max())
        if self.capabilities.asks_for_depth:
            drafted = max(drafted, self.capabilities.depths[0])
        else:
            drafted = self.capabilities.max_depth
        return StepPlan(
            step=context.step,
            draft_depth=drafted,
            verify_lens=lens,
            depth=depth,
            reason=reason if lens.size else Reason.IDLE,
        )


class DepthPeer(Peer):
    """A peer that decides one depth for the whole batch.

    The depth decided in a step is drafted in it, and caps what is verified in it. Subclasses
    decide in `choose`, learn in `observe`, and add to `state` and `load` what they learned.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    depth
        The depth before the first decision, rounded down to an allowed one.

    Examples
    --------
    >>> peer = DepthPeer(Capabilities(max_depth=5, depths=(0, 1, 3, 5)), depth=4)
    >>> peer.depth
    3
    """

    def __init__(self, capabilities: Capabilities, depth: int) -> None:
        super().__init__(capabilities)
        self.depth = self.allowed(depth)

    def choose(self, context: StepContext) -> int:
        """Return the depth for a step in which at least one request decodes."""
        return self.depth

    def reason(self) -> str:
        """Return why the depth last chosen is what it is."""
        return PeerReason.RULE

    def plan(self, context: StepContext) -> StepPlan:
        """Draft the chosen depth, and verify at most so many of the drafts at hand."""
        if context.requests.size:
            self.depth = self.allowed(self.choose(context))
        lens = np.minimum(context.drafts, self.depth)
        return self.make_plan(context, self.depth, lens, self.reason(), drafted=self.depth)

    def state(self) -> dict[str, Any]:
        """Return the depth in force."""
        return {"depth": self.depth}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.depth = int(state["depth"])


class MeasuredPeer(DepthPeer):
    """A peer that values a depth by the steps executed at it."""

    def __init__(self, capabilities: Capabilities, depth: int) -> None:
        super().__init__(capabilities, depth)
        self._planned: dict[int, tuple[int, int]] = {}

    def plan(self, context: StepContext) -> StepPlan:
        """Plan, and remember whether the depth has changed."""
        before = self.depth
        plan = super().plan(context)
        self._planned[context.step] = (before, self.depth)
        if len(self._planned) > _PLANS_REMEMBERED:
            del self._planned[next(iter(self._planned))]
        return plan

    def executed(self, outcome: StepOutcome) -> int | None:
        """Return the depth that a step both verified and drafted, None where it was in transition.

        Must be asked once per outcome. A late outcome names its own step, so that it is never
        credited to the depth that is in force by now.
        """
        before, depth = self._planned.pop(outcome.step, (0, -1))
        return depth if before == depth else None

    def state(self) -> dict[str, Any]:
        """Return the depth in force and the plans that wait for their outcome."""
        planned = [[step, *pair] for step, pair in self._planned.items()]
        return {**super().state(), "planned": planned}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        self._planned = {int(s): (int(a), int(b)) for s, a, b in state["planned"]}


def verified_drafts(outcome: StepOutcome) -> tuple[IntArray, IntArray, IntArray]:
    """Return request, verified and accepted tokens of each draft that was verified in a step.

    Hindsight is left out: no engine's own rule has it.
    """
    drafts = outcome.drafts
    rows = drafts.verified > 0
    if outcome.exempt:
        rows = np.zeros_like(rows)
    return drafts.request[rows], drafts.verified[rows], drafts.accepted[rows]


def confidence_of(context: StepContext, max_depth: int, unsaid: float) -> FloatArray | None:
    """Return the drafter's confidence in each draft, None where it shows none.

    Parameters
    ----------
    unsaid
        In [0, 1]: stands in for positions of which the drafter says nothing finite.

    Returns
    -------
    FloatArray or None
        Shape (n, max_depth), in [0, 1].
    """
    candidates = context.candidates
    if candidates is None or candidates.confidence is None:
        return None
    table = np.full((context.requests.shape[0], max_depth), unsaid)
    inside = (candidates.depth <= max_depth) & np.isfinite(candidates.confidence)
    rows, columns = candidates.request[inside], candidates.depth[inside] - 1
    table[rows, columns] = np.clip(candidates.confidence[inside], 0.0, 1.0)
    return table


def moved(average: float, sample: float, weight: float) -> float:
    """Return an exponential moving average after one more sample.

    >>> moved(1.0, 2.0, 0.2)
    1.2
    """
    return average + weight * (sample - average)
