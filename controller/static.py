"""A fixed depth: the baseline that every other policy is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.reasons import Reason
from acclimate.controller.records import (
    Capabilities,
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report


class StaticPolicy:
    """Verify at most ``depth`` drafts of every request, always.

    Depth 0 is ``k0``: a speculating engine told to verify nothing. Where the fate of unverified
    drafts can be seen, drafting goes on, so that arms differ in what they verify alone.

    Parameters
    ----------
    depth
        In ``[0, capabilities.max_depth]``.
    capabilities
        What the engine allows.

    Examples
    --------
    >>> StaticPolicy(5, Capabilities(max_depth=4, depths=(0, 4)))
    Traceback (most recent call last):
        ...
    ValueError: depth must be in [0, 4], got 5
    """

    def __init__(self, depth: int, capabilities: Capabilities) -> None:
        if not 0 <= depth <= capabilities.max_depth:
            raise ValueError(f"depth must be in [0, {capabilities.max_depth}], got {depth}")
        self.name = f"static:{depth}"
        self.depth = depth
        self._draft_depth = capabilities.max_depth if capabilities.free_drafts else depth

    def admit(self, request: RequestInfo) -> None:
        """Nothing to note."""

    def plan(self, context: StepContext) -> StepPlan:
        """Verify the first ``depth`` drafts of every request."""
        return StepPlan(
            step=context.step,
            draft_depth=self._draft_depth,
            verify_lens=np.minimum(context.drafts, self.depth),
            depth=self.depth,
            reason=Reason.FIXED,
        )

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Nothing to learn."""
        return ()

    def declare(self, change: Change) -> None:
        """Nothing to note."""

    def forget(self, request: int) -> None:
        """Nothing to drop."""

    def report(self) -> Report:
        """Nothing to tell."""
        return Report()

    def state(self) -> dict[str, Any]:
        """Return the depth."""
        return {"depth": self.depth}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the depth."""
        self.depth = int(state["depth"])
