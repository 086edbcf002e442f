"""The audit at the margin: do the tokens admitted last earn what they cost?

Choosing what looks best selects what is overestimated. So predictions are checked among the tokens
that were chosen, and of these among the least promising: per slot, the survival that was realised
against the survival that was predicted, and against the price at which they were admitted.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from acclimate.controller.records import (
    Candidates,
    FloatArray,
    IntArray,
    StepOutcome,
    int_array,
)
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import geometric_buckets, load_arrays, save_arrays

_MARGIN_DIVISOR = 4  # the margin is the last quarter of the chosen tokens
_MAX_OPEN = 8
_SHRINKAGE_TOKENS = 20.0
_SHADE_RANGE = (0.5, 1.25)


@dataclasses.dataclass(frozen=True, slots=True)
class Margin:
    """The least promising tokens that a plan admitted, and what they have to earn.

    Parameters
    ----------
    candidates
        What could be verified, with unshaded survival.
    order
        The marginal candidates, as indices into ``candidates``.
    slots
        Shape (n,): slots of the plan's requests.
    price_tokens
        What the time of one of these tokens would have earned elsewhere.
    """

    candidates: Candidates
    order: IntArray
    slots: IntArray
    price_tokens: float

    def state(self) -> dict[str, Any]:
        """Return the marginal tokens as plain data."""
        return {
            "request": self.candidates.request[self.order].tolist(),
            "depth": self.candidates.depth[self.order].tolist(),
            "survival": self.candidates.survival[self.order].tolist(),
            "slots": self.slots.tolist(),
            "price_tokens": self.price_tokens,
        }

    @classmethod
    def load(cls, state: dict[str, Any]) -> Margin:
        """Build from a `state`."""
        request, depth = int_array(state["request"]), int_array(state["depth"])
        survival = np.array(state["survival"], dtype=np.float64)
        return cls(
            candidates=Candidates(request, np.full_like(request, -1), depth, survival),
            order=np.arange(request.shape[0]),
            slots=int_array(state["slots"]),
            price_tokens=float(state["price_tokens"]),
        )


class MarginAudit:
    """Realised against predicted survival of marginal tokens, as a shade on survival per slot.

    Parameters
    ----------
    n_slots
        Slots kept apart.
    max_requests
        Largest decode count for the account of gains per load.
    window_tokens
        Marginal tokens after which evidence has decayed to 1/e.
    """

    def __init__(self, n_slots: int, max_requests: int, *, window_tokens: float = 200.0) -> None:
        self.window_tokens = window_tokens
        self.realised = np.zeros(n_slots)
        self.predicted = np.zeros(n_slots)
        self.shade = np.ones(n_slots)
        self._load = geometric_buckets(max_requests, exact=16, per_octave=8)
        self._last = max_requests
        n_loads = int(self._load[-1]) + 1
        self.load_tokens = np.zeros(n_loads)
        self.load_gain = np.zeros(n_loads)
        self._open: dict[int, Margin] = {}

    @staticmethod
    def margin_count(chosen: int) -> int:
        """Return how many of the least promising chosen tokens are the margin."""
        return -(-chosen // _MARGIN_DIVISOR)

    def expect(self, step: int, margin: Margin) -> None:
        """Note a step's margin until its outcome comes; of those that never come, few are kept."""
        self._open[step] = margin
        while len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open)))

    def settle(self, outcome: StepOutcome) -> None:
        """Learn from a step's margin, if it had one and was executed as planned."""
        margin = self._open.pop(outcome.step, None)
        if margin is None or outcome.exempt:
            return
        gained, tokens = _learn(
            margin.candidates.request,
            margin.candidates.depth,
            margin.candidates.survival,
            margin.order,
            margin.slots,
            outcome.drafts.verified,
            outcome.drafts.accepted,
            self.realised,
            self.predicted,
            self.shade,
            math.exp(-1.0 / self.window_tokens),
        )
        load = self._load[min(outcome.decode_requests, self._last)]
        fade = math.exp(-tokens / (5.0 * self.window_tokens))
        self.load_tokens[load] = self.load_tokens[load] * fade + tokens
        gained -= margin.price_tokens * tokens
        self.load_gain[load] = self.load_gain[load] * fade + gained

    def gain(self, requests: int | None = None) -> float | None:
        """Return realised survival minus price per marginal token, at one load or over all."""
        where: Any = slice(None)
        if requests is not None:
            where = self._load[min(requests, self._last)]
        tokens = float(np.sum(self.load_tokens[where]))
        return float(np.sum(self.load_gain[where])) / tokens if tokens > 0 else None

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.realised[slot] = self.predicted[slot] = 0.0
        self.shade[slot] = 1.0

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays."""
        margins = [[step, margin.state()] for step, margin in self._open.items()]
        return {**save_arrays(self, _STATE), "open": margins}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)
        self._open = {int(step): Margin.load(margin) for step, margin in state["open"]}


_STATE = ("realised", "predicted", "shade", "load_tokens", "load_gain")


@compiled(
    "Tuple((f8, i8))(i8[::1], i8[::1], f8[::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    "f8[::1], f8[::1], f8[::1], f8)"
)
def _learn(
    request: IntArray,
    depth: IntArray,
    survival: FloatArray,
    order: IntArray,
    slots: IntArray,
    verified: IntArray,
    accepted: IntArray,
    realised: FloatArray,
    predicted: FloatArray,
    shade: FloatArray,
    keep: float,
) -> tuple[float, int]:
    """Learn the margin's tokens, and return how many were accepted of how many executed."""
    gained, tokens = 0.0, 0
    for j in order:
        if verified[request[j]] < depth[j]:
            continue  # the engine's budget cut it
        hit = 1.0 if accepted[request[j]] >= depth[j] else 0.0
        s = slots[request[j]]
        realised[s] = realised[s] * keep + hit
        predicted[s] = predicted[s] * keep + survival[j]
        ratio = (realised[s] + _SHRINKAGE_TOKENS) / (predicted[s] + _SHRINKAGE_TOKENS)
        shade[s] = min(max(ratio, _SHADE_RANGE[0]), _SHADE_RANGE[1])
        gained += hit
        tokens += 1
    return gained, tokens
