"""How much of a decoding request's time goes to the prompts of others."""

from __future__ import annotations

from typing import Any

_WINDOW_STEPS = 100.0
_MOST = 0.5  # of all time: more is a burst of prompts, which ends


class PromptShare:
    """Share of the time of steps that decode which is spent on prompts in the same steps.

    Examples
    --------
    >>> share = PromptShare()
    >>> for prompts_ms in (0.0, 60.0) * 500:
    ...     share.add(100.0, prompts_ms)
    >>> round(share.value, 1)
    0.3
    """

    def __init__(self) -> None:
        self.step_ms = 0.0
        self.prompts_ms = 0.0

    @property
    def value(self) -> float:
        """The share, in [0, 0.5]; 0 before anything was seen."""
        return min(self.prompts_ms / self.step_ms, _MOST) if self.step_ms else 0.0

    def add(self, step_ms: float, prompts_ms: float) -> None:
        """Add a step that decoded, and what of its time its prompts account for."""
        self.step_ms += (step_ms - self.step_ms) / _WINDOW_STEPS
        self.prompts_ms += (min(prompts_ms, step_ms) - self.prompts_ms) / _WINDOW_STEPS

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {"step_ms": self.step_ms, "prompts_ms": self.prompts_ms}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.step_ms = float(state["step_ms"])
        self.prompts_ms = float(state["prompts_ms"])
