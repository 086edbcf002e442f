"""What a step is made of, and how long it takes."""

from __future__ import annotations

from typing import Protocol

import msgspec

from acclimate.controller.records import FloatArray


class StepMakeUp(msgspec.Struct, frozen=True, gc=False):
    """What decides how long a step takes.

    Parameters
    ----------
    requests
        Requests that decode.
    verified
        Draft tokens of all of them that are verified.
    prefill_tokens
        Prompt tokens in the step.
    context_tokens
        Sum over the decoding requests.
    sampled_rows
        Decoding requests that sample at a temperature.
    draft_depth
        Tokens that are drafted for each of them in this step.

    Examples
    --------
    >>> StepMakeUp(4, 8, draft_depth=2)
    StepMakeUp(requests=4, verified=8, prefill_tokens=0, context_tokens=0, sampled_rows=0, draft_depth=2)
    """

    requests: int
    verified: int
    prefill_tokens: int = 0
    context_tokens: int = 0
    sampled_rows: int = 0
    draft_depth: int = 0


class StepTime(Protocol):
    """Milliseconds of a step by its make-up, its drafting included."""

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of one step."""

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations with 0, 1, … ``makeup.verified`` drafts verified, shape (m + 1,)."""
