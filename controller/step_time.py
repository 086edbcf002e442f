"""A step's outcome in the terms of the model that learns how long steps take."""

from __future__ import annotations

from acclimate.controller.records import StepOutcome
from acclimate.predictors.latency import StepLatency


def learn_time(latency: StepLatency, outcome: StepOutcome) -> float | None:
    """Learn how long a step took, and return the milliseconds that were expected of it.

    None, and nothing is learned, where its duration is unknown.
    """
    if not outcome.latency_ns:
        return None
    return latency.learn(
        outcome.decode_requests,
        outcome.verified_tokens,
        latency_ms=outcome.latency_ns / 1e6,
        prefill_tokens=outcome.prefill_tokens,
        context_tokens=outcome.context_tokens,
        sampled_rows=outcome.sampled_rows,
        draft_depth=outcome.draft_depth,
    )


def time_of(
    latency: StepLatency, outcome: StepOutcome, *, verified: int, draft_depth: int
) -> float:
    """Return the milliseconds expected of a step, had it verified and drafted otherwise."""
    curve = latency.curve(
        outcome.decode_requests,
        verified,
        prefill_tokens=outcome.prefill_tokens,
        context_tokens=outcome.context_tokens,
        sampled_rows=outcome.sampled_rows,
        draft_depth=draft_depth,
    )
    return float(curve[-1])
