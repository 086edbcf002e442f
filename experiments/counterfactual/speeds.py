"""How fast some steps were: sums, from which tokens per second follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from acclimate.controller.records import StepOutcome


@dataclasses.dataclass(frozen=True, slots=True)
class Speeds:
    """Sums over steps, from which speeds follow.

    ``plain`` concerns the steps without prompts: decode time apart.
    """

    tokens: int = 0
    seconds: float = 0.0
    plain_tokens: int = 0
    plain_seconds: float = 0.0
    steps: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[StepOutcome]) -> Speeds:
        """Sum up steps whose duration is known."""
        total = cls()
        for outcome in outcomes:
            if outcome.latency_ns is not None:
                tokens = int(outcome.committed.sum()) + outcome.first_tokens
                total += _one_step(tokens, outcome.latency_ns / 1e9, outcome.prefill_tokens == 0)
        return total

    def __add__(self, other: Speeds) -> Speeds:
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Speeds(*(a + b for a, b in zip(mine, theirs, strict=True)))

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second over all steps; NaN without any."""
        return self.tokens / self.seconds if self.seconds else float("nan")

    @property
    def decode_tokens_per_s(self) -> float:
        """Output tokens per second over steps without prompts; NaN without any."""
        return self.plain_tokens / self.plain_seconds if self.plain_seconds else float("nan")


def total_speeds(speeds: Iterable[Speeds]) -> Speeds:
    """Return what several sums make together."""
    return sum(speeds, start=Speeds())


def _one_step(tokens: int, seconds: float, plain: bool) -> Speeds:
    return Speeds(tokens, seconds, tokens * plain, seconds * plain, 1)
