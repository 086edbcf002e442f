"""A step's outcome in the terms of the model that learns how long steps take."""

from __future__ import annotations

from acclimate.controller.price import PriceOfTime
from acclimate.controller.records import StepOutcome
from acclimate.predictors.latency import StepLatency

STALL_RATIO = 3.0
"""A step that takes so many times as long as was expected is the machine's stall."""


def unstalled_ms(latency_ns: int, usual_ms: float) -> float:
    """Return how long a step took, a stall cut to `STALL_RATIO` times what was expected of it.

    >>> unstalled_ms(30_000_000, 20.0), unstalled_ms(400_000_000, 20.0)
    (30.0, 60.0)
    """
    return min(latency_ns / 1e6, STALL_RATIO * usual_ms)


def learn_time(
    latency: StepLatency, outcome: StepOutcome, *, beyond_ms: float = 0.0
) -> float | None:
    """Learn how long a step took, and return the milliseconds that were expected of it.

    None, and nothing is learned, where its duration is unknown. ``beyond_ms`` of it are known to
    come of what the model does not see.
    """
    if not outcome.latency_ns:
        return None
    step_ms = outcome.latency_ns / 1e6
    return beyond_ms + latency.learn(
        outcome.decode_requests,
        outcome.verified_tokens,
        latency_ms=max(step_ms - beyond_ms, 0.5 * step_ms),
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


def learn_price(
    price: PriceOfTime, latency: StepLatency, outcome: StepOutcome, usual_ms: float | None
) -> None:
    """Learn what a step's time earned, less the time that its prompts account for.

    ``usual_ms`` is what `learn_time` expected; None, and nothing is learned, where it says nothing.
    """
    if usual_ms is None or not outcome.latency_ns or not outcome.decode_requests:
        return
    step_ms = unstalled_ms(outcome.latency_ns, usual_ms)
    decode_ms = max(step_ms - latency.prefill(outcome.prefill_tokens), 0.2 * step_ms)
    price.learn(outcome.decode_requests, int(outcome.committed.sum()), decode_ms)
