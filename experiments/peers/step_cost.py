"""What a step costs, as peers know it: a profile taken at start-up, or learned where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import StepOutcome
from acclimate.controller.step_time import learn_time
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS = 512
_GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class StepCost:
    """Milliseconds per step against requests and depth.

    Engines that price a step run dummy batches at start-up, on a grid of batch sizes, and look
    costs up afterwards. ``profile`` is what they would measure; the grid is kept, not the profile,
    and never learns again. Without a profile the cost is learned while serving, which is kinder to
    the peer than its own table under drift, and less kind before the first steps.

    Parameters
    ----------
    max_depth
        Largest depth.
    profile
        The engine's step time, asked once; None where there is none.

    Examples
    --------
    >>> cost = StepCost(max_depth=2, profile=None)
    >>> cost.known
    False
    """

    def __init__(self, max_depth: int, profile: StepTime | None) -> None:
        self.max_depth = max_depth
        self.grid_ms: np.ndarray[Any, np.dtype[np.float64]] | None = None
        self._latency = StepLatency(_MAX_REQUESTS, _MAX_REQUESTS * max(max_depth, 1))
        if profile is not None:
            self.grid_ms = np.array(
                [[_measured_ms(profile, n, k) for k in range(max_depth + 1)] for n in _GRID]
            )

    @property
    def known(self) -> bool:
        """Whether there is a profile, or at least one step was measured."""
        return self.grid_ms is not None or self._latency.steps > 0

    def step_ms(self, requests: int, depth: int) -> float:
        """Return the cost of drafting and verifying ``depth`` tokens for each request.

        With a profile: that of the next larger batch size on the grid.
        """
        if self.grid_ms is not None:
            row = min(int(np.searchsorted(_GRID, requests)), len(_GRID) - 1)
            return float(self.grid_ms[row, depth])
        curve = self._latency.curve(requests, requests * depth, draft_depth=depth)
        return float(curve[-1])

    def learn(self, outcome: StepOutcome) -> None:
        """Learn from a step, unless there is a profile."""
        if self.grid_ms is None:
            learn_time(self._latency, outcome)

    def state(self) -> dict[str, Any]:
        """Return the grid, or what was learned."""
        if self.grid_ms is not None:
            return {"grid_ms": self.grid_ms.copy()}
        return {"latency": self._latency.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, with a profile or without as it was."""
        if "grid_ms" in state:
            self.grid_ms = np.array(state["grid_ms"], dtype=np.float64)
        else:
            self.grid_ms = None
            self._latency.load(state["latency"])


def _measured_ms(profile: StepTime, requests: int, depth: int) -> float:
    return profile.step_ms(StepMakeUp(requests, requests * depth, draft_depth=depth))
