"""What one step is decided from: what is believed of it, what time is worth, what promises allow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from acclimate.controller.bounds import Limited, StepBounds
from acclimate.controller.reasons import Reason
from acclimate.controller.records import FloatArray, IntArray, StepContext
from acclimate.controller.select import (
    UNWEIGHTED,
    ChainChoice,
    chain_candidates,
    verify_lens,
)


class Situation(NamedTuple):
    """A step of n requests before it is decided.

    Parameters
    ----------
    context
        What the engine says.
    slots, survival
        Shape (n,) and (n, max_depth): each request's slot, and survival as it is believed.
    curve
        Milliseconds with 0, 1, … verified drafts.
    price
        Tokens per millisecond, λ.
    weights
        Shape (n,): what a token of each request is worth; empty where all are worth the same.
    bounds
        How long the step may be; None if nothing forbids any length.
    """

    context: StepContext
    slots: IntArray
    survival: FloatArray
    curve: FloatArray
    price: float
    weights: FloatArray = UNWEIGHTED
    bounds: StepBounds | None = None

    def weighted(self, believed: FloatArray) -> FloatArray:
        """Return what drafts are worth, shape (n, max_depth), for their survival."""
        if not self.weights.size:
            return believed
        worth: FloatArray = believed * self.weights[:, None]
        return worth

    def mean_weight(self, requests: IntArray) -> float:
        """Return what a token of these requests is worth on average."""
        return float(self.weights[requests].mean()) if self.weights.size else 1.0

    def may_verify(self, believed: FloatArray, depth: int) -> bool:
        """Whether promises allow all requests to verify alike, so deep."""
        if self.bounds is None:
            return True
        return self.best_depth(believed, (0, depth), np.zeros(2))[0] == depth

    def best_depth(
        self, believed: FloatArray, depths: tuple[int, ...], values: FloatArray
    ) -> tuple[int, Reason | None, float | None]:
        """Return the depth for all requests alike, why it is not the last, and the step's bound.

        Parameters
        ----------
        believed
            Shape (n, max_depth): survival.
        depths, values
            To choose from, ascending, and the objective of each; the last is what is wanted.
        """
        bounds = self.bounds
        if bounds is None:
            return depths[-1], None, None
        drafts = self.context.drafts
        depth, cap_ms = bounds.best_depth(believed, drafts, depths, values)
        if depth == depths[-1]:
            return depth, None, cap_ms
        return depth, bounds.reason(int(np.minimum(drafts, depths[-1]).sum())), cap_ms

    def room_to_begin_ms(self, depth: int) -> float:
        """Return how long drafting may take where no draft is at hand; minus infinity for never.

        The first drafts are paid a step before they yield. They are judged as in the steps that
        follow, in which drafts are verified and made at once: a plain step that leaves no room for
        them would else rule them out for ever. The bounds of twins and of waiting prompts hold as
        they stand.

        Parameters
        ----------
        depth
            How deep to draft.
        """
        bounds = self.bounds
        if bounds is None:
            return np.inf
        chain = chain_candidates(self.survival, np.clip(self.context.tokens_left - 1, 0, depth))
        caps_ms = bounds.caps_ms(chain, chain.survival, np.argsort(-chain.survival, kind="stable"))
        room_ms = (caps_ms - bounds.upper_ms[: caps_ms.shape[0]])[1:].max(initial=-np.inf)
        return float(min(room_ms, min(bounds.twin_ms, bounds.first_ms) - bounds.upper_ms[0]))

    def within(self, choice: ChainChoice) -> tuple[Limited, IntArray]:
        """Return what bounds leave of a choice of single drafts, and how many of each request's."""
        selection, bounds = choice.selection, self.bounds
        if bounds is None:
            return Limited(selection), choice.lens
        limited, lens = bounds.limit(selection, choice.candidates, choice.believed), choice.lens
        if limited.reason is not None:
            chosen = limited.selection
            lens = verify_lens(choice.candidates, chosen, chosen.count, lens.shape[0])
        return limited, lens
