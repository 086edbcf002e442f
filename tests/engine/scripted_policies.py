"""Policies for engines under test: seeded play with depth and verify lengths, and three faults."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import (
    Capabilities,
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report


class ShuffledPolicy:
    """Draws a depth per step and a verify length per request, from seed and step alone."""

    name = "shuffled"

    def __init__(self, config: ControlConfig, capabilities: Capabilities) -> None:
        self.seed = config.seed
        self.capabilities = capabilities

    def admit(self, request: RequestInfo) -> None: ...

    def plan(self, context: StepContext) -> StepPlan:
        rng = np.random.default_rng((self.seed, context.step))
        most = self.capabilities.max_depth
        # Deep more often than shallow, so that many drafts are verified; 0 now and then.
        depth = int(rng.choice([0, 1, most // 2, most, most, most]))
        lens = np.minimum(rng.integers(0, most + 1, size=context.drafts.shape), context.drafts)
        if rng.random() < 0.7:
            lens = context.drafts.copy()
        return StepPlan(
            step=context.step,
            draft_depth=depth,
            verify_lens=np.minimum(lens, depth),
            depth=depth,
            reason="fixed",
        )

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        return ()

    def declare(self, change: Change) -> None: ...

    def forget(self, request: int) -> None: ...

    def report(self) -> Report:
        return Report()

    def state(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load(self, state: dict[str, Any]) -> None:
        self.seed = int(state["seed"])


class FaultyPolicy(ShuffledPolicy):
    """Plays on for ten steps, then does one thing wrong, once."""

    def __init__(self, config: ControlConfig, capabilities: Capabilities, fault: str) -> None:
        super().__init__(config, capabilities)
        self.name = fault
        self.calls = 0

    def plan(self, context: StepContext) -> StepPlan:
        self.calls += 1
        plan = super().plan(context)
        if self.calls != 10:
            return plan
        if self.name == "raises":
            raise RuntimeError("the policy does not know what to do")
        if self.name == "late":
            time.sleep(3)
            return plan
        return msgspec.structs.replace(plan, draft_depth=-7, verify_lens=plan.verify_lens + 50)


def shuffled(config: ControlConfig, capabilities: Capabilities) -> ShuffledPolicy:
    """Make a `ShuffledPolicy`; named in a configuration."""
    return ShuffledPolicy(config, capabilities)
