"""Shadow mode: what the plans would have made while the engine's own rule acted."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import IntArray, StepOutcome, StepPlan
from acclimate.controller.reports import ShadowReport
from acclimate.controller.step_time import learn_time, time_of, unstalled_ms
from acclimate.predictors.latency import StepLatency

_MAX_REQUESTS = 512
_MAX_OPEN = 8


class ShadowAccount:
    """Compares, step by step, a plan that did not act with what the engine did.

    Tokens rest on record: what the engine verified beyond the plan would have been cut, and a
    request commits its accepted drafts up to the planned length and one more. A plan that wants more
    than was verified is credited with what was. Time rests on a model that learns from the same
    steps: how much longer or shorter the step would have been with the planned number of verified
    and drafted tokens. Where the engine's rule always verifies the same number, nothing tells what
    fewer would take: such steps are counted as unknown and left out. Each step starts where the
    engine's own rule left it; in a closed loop, where a step that commits less is followed by more
    steps, the ratio of speeds is the one to look at.

    Parameters
    ----------
    max_depth
        Largest draft depth.
    window_steps
        Memory of the time model.

    Examples
    --------
    >>> ShadowAccount(max_depth=4).report() is None
    True
    """

    def __init__(self, max_depth: int, *, window_steps: float = 150.0) -> None:
        self.time = StepLatency(
            _MAX_REQUESTS, _MAX_REQUESTS * max(max_depth, 1), window_steps=window_steps
        )
        self.steps = 0
        self.unknown_steps = 0
        self.tokens = 0
        self.planned_tokens = 0
        self.seconds = 0.0
        self.planned_seconds = 0.0
        self._open: dict[int, tuple[IntArray, int]] = {}

    def expect(self, plan: StepPlan) -> None:
        """Note a plan until its step's outcome comes; of those that never come, few are kept."""
        self._open[plan.step] = (plan.verify_lens, plan.draft_depth)
        while len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open)))

    def settle(self, outcome: StepOutcome) -> None:
        """Add a step to the account; one of unknown duration or without drafts says nothing."""
        noted = self._open.pop(outcome.step, None)
        usual_ms = learn_time(self.time, outcome)
        if usual_ms is None or not outcome.latency_ns or noted is None or outcome.exempt:
            return
        if not self.time.slope_known(outcome.decode_requests):
            self.unknown_steps += 1
            return
        lens, draft_depth = noted
        n = outcome.requests.shape[0]
        lens = np.minimum(lens, outcome.drafts.verified[:n])
        cut = np.maximum(outcome.drafts.accepted[:n] - lens, 0)
        committed = int(outcome.committed.sum())
        would_ms = time_of(self.time, outcome, verified=int(lens.sum()), draft_depth=draft_depth)
        did_ms = time_of(
            self.time,
            outcome,
            verified=outcome.verified_tokens,
            draft_depth=outcome.draft_depth,
        )
        # A stall of the machine would have met either.
        step_ms = unstalled_ms(outcome.latency_ns, usual_ms)
        self.steps += 1
        self.tokens += committed
        self.planned_tokens += committed - int(np.minimum(cut, outcome.committed).sum())
        self.seconds += step_ms / 1e3
        self.planned_seconds += max(step_ms + would_ms - did_ms, 0.1 * step_ms) / 1e3

    def report(self) -> ShadowReport | None:
        """Return the account so far; None before anything happened."""
        if not self.steps + self.unknown_steps:
            return None
        if not self.tokens:
            return ShadowReport(steps=0, unknown_steps=self.unknown_steps)
        speed, planned = self.tokens / self.seconds, self.planned_tokens / self.planned_seconds
        return ShadowReport(
            steps=self.steps,
            unknown_steps=self.unknown_steps,
            tokens_per_s=speed,
            planned_tokens_per_s=planned,
            speed_ratio=planned / speed,
        )
