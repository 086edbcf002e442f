"""Step times from a latency curve that was learned."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import ConfigEvent, SnapshotEvent
from acclimate.controller.records import FloatArray
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.integrations.trace_reader import Trace
from acclimate.predictors.latency import StepLatency


class CurveTime:
    """Step times from a learned `StepLatency`.

    Beyond what the model keeps apart, a verified token costs what it costs on the global line.

    Examples
    --------
    >>> from acclimate.experiments.simulation.step_time import StepMakeUp
    >>> model = StepLatency(max_requests=8, max_verified=8)
    >>> for step in range(200):
    ...     _ = model.learn(4, step % 9, latency_ms=20.0 + 0.5 * (step % 9))
    >>> times = CurveTime(model)
    >>> round(times.step_ms(StepMakeUp(4, 8))), times.curve(StepMakeUp(4, 20)).shape
    (24, (21,))
    """

    def __init__(self, model: StepLatency) -> None:
        self.model = model

    @classmethod
    def from_trace(cls, trace: Trace) -> CurveTime:
        """Take the curve that the adaptive policy had learned at a trace's last snapshot.

        Raises
        ------
        ValueError
            The trace has no snapshot of the adaptive policy.
        """
        from acclimate.controller.adaptive import AdaptivePolicy

        config: dict[str, Any] = {}
        found: tuple[dict[str, Any], dict[str, Any]] | None = None
        for event in trace:
            if isinstance(event, ConfigEvent):
                config = event.config
            elif isinstance(event, SnapshotEvent) and event.policy == "adaptive":
                found = config, event.state
        if found is None:
            raise ValueError("a latency curve needs a snapshot of the adaptive policy, got none")
        policy = AdaptivePolicy(ControlConfig.read(found[0]), trace.header.engine.capabilities)
        model = policy.beliefs.latency
        try:
            # The rest of the state may be of another release's learners.
            model.load(found[1]["beliefs"]["latency"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"a snapshot must hold a latency curve, got none: {error}") from error
        return cls(model)

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of one step."""
        return float(self.curve(makeup)[-1])

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations with 0, 1, … ``makeup.verified`` drafts verified, shape (m + 1,)."""
        most = makeup.verified
        times = self.model.curve(
            makeup.requests,
            most,
            prefill_tokens=makeup.prefill_tokens,
            context_tokens=makeup.context_tokens,
            sampled_rows=makeup.sampled_rows,
            draft_depth=makeup.draft_depth,
        )
        if times.size > most:
            return times
        beyond = np.arange(1, most + 2 - times.size)
        return np.append(times, times[-1] + self.model.verified_ms * beyond)
