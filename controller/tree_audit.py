"""The audit at the margin of draft trees: do the nodes admitted last earn what was promised?"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray, NodeOutcomes, int_array
from acclimate.controller.select import UNWEIGHTED
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import load_arrays, save_arrays

_MARGIN_DIVISOR = 4  # the margin is the last quarter of the chosen nodes
_MAX_OPEN = 8
_SHRINKAGE_TOKENS = 20.0
_SHADE_RANGE = (0.5, 1.25)
_STATE = ("realised", "predicted", "shade", "account")


@dataclasses.dataclass(frozen=True, slots=True)
class NodeMargin:
    """The least promising nodes that a plan admitted.

    Parameters
    ----------
    nodes
        Their indices into the step's candidates.
    slots, survival
        Of each: its slot, and its unshaded survival.
    price_tokens
        What the time of one of them would have earned elsewhere.
    """

    nodes: IntArray
    slots: IntArray
    survival: FloatArray
    price_tokens: float

    @classmethod
    def of(
        cls,
        order: IntArray,
        count: int,
        slots: IntArray,
        survival: FloatArray,
        milliseconds: FloatArray,
        price_tokens_per_ms: float,
        weights: FloatArray = UNWEIGHTED,
    ) -> NodeMargin:
        """Return the margin of the best ``count`` candidates, at least one.

        Parameters
        ----------
        order
            Candidates, best first.
        slots, survival
            Shape (m,): of each candidate.
        milliseconds
            Duration of a step with 0, 1, … verified nodes.
        weights
            Shape (m,): what a token of each candidate is worth; by default 1.
        """
        first = count + (-count // _MARGIN_DIVISOR)
        nodes = order[first:count]
        if weights.size:
            price_tokens_per_ms /= float(weights[nodes].mean())
        return cls(
            nodes,
            slots[nodes],
            survival[nodes],
            price_tokens_per_ms
            * float(milliseconds[count] - milliseconds[first])
            / (count - first),
        )


class TreeAudit:
    """Realised against predicted survival of marginal nodes, as a shade on survival per slot.

    Parameters
    ----------
    n_slots
        Slots kept apart.
    window_tokens
        Marginal nodes after which evidence has decayed to 1/e.
    """

    def __init__(self, n_slots: int, *, window_tokens: float = 200.0) -> None:
        self.window_tokens = window_tokens
        self.realised = np.zeros(n_slots)
        self.predicted = np.zeros(n_slots)
        self.shade = np.ones(n_slots)
        self.account = np.zeros(2)  # marginal nodes, and what they earned beyond their price
        self._open: dict[int, NodeMargin] = {}

    def expect(self, step: int, margin: NodeMargin) -> None:
        """Note a step's margin until its outcome comes; of those that never come, few are kept."""
        self._open[step] = margin
        while len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open)))

    def settle(self, step: int, nodes: NodeOutcomes | None) -> None:
        """Learn from a step's margin, if it had one and was executed."""
        margin = self._open.pop(step, None)
        if margin is None or nodes is None:
            return
        hits = nodes.accepted[margin.nodes]
        _learn(
            margin.slots,
            margin.survival,
            hits,
            nodes.verified[margin.nodes],
            self.realised,
            self.predicted,
            self.shade,
            math.exp(-1.0 / self.window_tokens),
        )
        tokens = margin.nodes.shape[0]
        self.account *= math.exp(-tokens / (5.0 * self.window_tokens))
        self.account += (tokens, float(hits.sum()) - margin.price_tokens * tokens)

    def gain(self) -> float | None:
        """Return realised survival minus price per marginal node; None before there was one."""
        tokens, gained = self.account.tolist()
        return gained / tokens if tokens > 0.0 else None

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.realised[slot] = self.predicted[slot] = 0.0
        self.shade[slot] = 1.0

    def state(self) -> dict[str, Any]:
        """Return the sums as arrays, and the margins that wait for their outcome."""
        margins = [
            [step, m.nodes.tolist(), m.slots.tolist(), m.survival.tolist(), m.price_tokens]
            for step, m in self._open.items()
        ]
        return {**save_arrays(self, _STATE), "open": margins}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)
        self._open = {
            int(step): NodeMargin(
                int_array(nodes), int_array(slots), np.array(survival, dtype=np.float64), price
            )
            for step, nodes, slots, survival, price in state["open"]
        }


@compiled("void(i8[::1], f8[::1], i8[::1], i8[::1], f8[::1], f8[::1], f8[::1], f8)")
def _learn(
    slots: IntArray,
    survival: FloatArray,
    accepted: IntArray,
    verified: IntArray,
    realised: FloatArray,
    predicted: FloatArray,
    shade: FloatArray,
    keep: float,
) -> None:
    for j in range(slots.shape[0]):
        if not verified[j]:
            continue
        s = slots[j]
        realised[s] = realised[s] * keep + accepted[j]
        predicted[s] = predicted[s] * keep + survival[j]
        ratio = (realised[s] + _SHRINKAGE_TOKENS) / (predicted[s] + _SHRINKAGE_TOKENS)
        shade[s] = min(max(ratio, _SHADE_RANGE[0]), _SHADE_RANGE[1])
