"""A step's cost by its number of tokens, on the sizes that graphs are captured for."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, StepOutcome
from acclimate.controller.step_time import learn_time
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS = 512
_CAPTURED = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
_BEYOND = (768, 1024, 2048, 4096, 8192)


class TokenCost:
    """Milliseconds of a step that verifies 0, 1, … drafts, by tokens in all, as vLLM profiles it.

    Up to the largest captured size a step pads to the next one, so that cost is a staircase; above
    it cost is linear between sizes. It never falls with size. The profile is of whole drafts: a
    size holds ``size / (max_depth + 1)`` requests. Without a profile the cost is learned while
    serving.

    Parameters
    ----------
    max_depth
        The engine's depth.
    profile
        The engine's step time, asked once; None where there is none.
    """

    def __init__(self, max_depth: int, profile: StepTime | None) -> None:
        self.sizes_ms: FloatArray | None = None
        self.drafting_ms: FloatArray | None = None
        self._latency = StepLatency(_MAX_REQUESTS, _MAX_REQUESTS * max(max_depth, 1))
        if profile is not None:
            verify, draft = [], []
            for size in (*_CAPTURED, *_BEYOND):
                requests = max(size // (max_depth + 1), 1)
                verify.append(profile.step_ms(StepMakeUp(requests, size - requests)))
            for requests in range(_MAX_REQUESTS + 1):
                drafted, plain = (
                    profile.step_ms(StepMakeUp(max(requests, 1), 0, draft_depth=depth))
                    for depth in (max_depth, 0)
                )
                draft.append(max(drafted - plain, 0.0))
            self.sizes_ms = np.maximum.accumulate(np.array(verify))
            self.drafting_ms = np.array(draft)

    @property
    def known(self) -> bool:
        """Whether there is a profile, or at least one step was measured."""
        return self.sizes_ms is not None or self._latency.steps > 0

    def curve(self, requests: int, drafts: int, prefill_tokens: int, depth: int) -> FloatArray:
        """Return milliseconds with 0, 1, … ``drafts`` verified, shape (drafts + 1,)."""
        if self.sizes_ms is None or self.drafting_ms is None:
            return self._latency.curve(
                requests, drafts, prefill_tokens=prefill_tokens, draft_depth=depth
            )
        tokens = requests + prefill_tokens + np.arange(drafts + 1)
        padded = np.searchsorted(_CAPTURED, tokens)
        above = self.sizes_ms[len(_CAPTURED) :]
        smooth = np.interp(tokens, _BEYOND, above)
        captured = self.sizes_ms[np.minimum(padded, len(_CAPTURED) - 1)]
        verify = np.where(tokens <= _CAPTURED[-1], captured, smooth)
        total: FloatArray = verify + self.drafting_ms[min(requests, _MAX_REQUESTS)]
        return total

    def learn(self, outcome: StepOutcome) -> None:
        """Learn from a step, unless there is a profile."""
        if self.sizes_ms is None:
            learn_time(self._latency, outcome)

    def state(self) -> dict[str, Any]:
        """Return the profile, or what was learned."""
        if self.sizes_ms is None or self.drafting_ms is None:
            return {"latency": self._latency.state()}
        return {"sizes_ms": self.sizes_ms.copy(), "drafting_ms": self.drafting_ms.copy()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, with a profile or without as it was."""
        if "latency" in state:
            self.sizes_ms = self.drafting_ms = None
            self._latency.load(state["latency"])
        else:
            self.sizes_ms = np.array(state["sizes_ms"], dtype=np.float64)
            self.drafting_ms = np.array(state["drafting_ms"], dtype=np.float64)
