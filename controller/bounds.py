"""What promises leave of a step: how long it may be, against how long it would be at worst."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from acclimate.controller.externality import longest_steps_ms
from acclimate.controller.reasons import Reason
from acclimate.controller.records import Candidates, FloatArray, IntArray
from acclimate.controller.select import Selection, chain_candidates
from acclimate.controller.select_kernels import first_best
from acclimate.predictors.compiled import compiled

_ROUNDING = 1e-9


class Limited(NamedTuple):
    """What bounds leave of a choice.

    Parameters
    ----------
    selection
        The choice.
    reason
        Why it is less than would pay; None if it is not.
    may_probe
        Whether a probe in its place may verify what it likes: everything, or nothing.
    cap_ms
        How long the step may be; None for no bound.
    """

    selection: Selection
    reason: Reason | None = None
    may_probe: bool = True
    cap_ms: float | None = None


class StepBounds(NamedTuple):
    """How long a step of n requests may be, whatever it verifies of its drafts.

    Parameters
    ----------
    upper_ms
        Shape (m + 1,): how long it takes at worst with 0, 1, … verified drafts, if it drafts as
        little as it can.
    twin_ms
        How long it may be for nobody's twin to get away (`acclimate.controller.twin`).
    first_ms
        How long it may be for the prompts that wait.
    pace_ms, left_tokens
        Shape (n,): of requests with a target (`acclimate.controller.externality`).
    """

    upper_ms: FloatArray
    twin_ms: float
    first_ms: float
    pace_ms: FloatArray
    left_tokens: FloatArray

    @property
    def plain_cap_ms(self) -> float:
        """How long the step may be if it verifies nothing."""
        return min(self.twin_ms, self.first_ms, float(self.pace_ms.min(initial=np.inf)))

    def caps_ms(self, candidates: Candidates, survival: FloatArray, order: IntArray) -> FloatArray:
        """Return how long the step may be with the first 0, 1, … candidates, shape (m + 1,).

        Parameters
        ----------
        candidates, survival
            Shape (m,): the drafts, and their survival as it is believed.
        order
            Shape (m,): in which they are taken.
        """
        return longest_steps_ms(
            order,
            candidates.request,
            candidates.depth,
            survival,
            self.pace_ms,
            self.left_tokens,
            min(self.twin_ms, self.first_ms),
        )

    def allowed(self, caps_ms: FloatArray) -> npt.NDArray[np.bool_]:
        """Return which numbers of candidates the step may verify, of `caps_ms`; 0 always."""
        return _allowed(self.upper_ms, caps_ms)

    @staticmethod
    def best_count(gains: FloatArray, allowed: npt.NDArray[np.bool_]) -> int:
        """Return the best number of candidates among those that are allowed.

        Parameters
        ----------
        gains
            Shape (m + 1,): the objective above that of verifying nothing.
        allowed
            Shape (m + 1,): as `allowed` gives it.

        Examples
        --------
        >>> none = np.zeros(0)
        >>> bounds = StepBounds(np.array([10.0, 12.0, 11.0]), 11.5, np.inf, none, none)
        >>> bounds.best_count(np.array([0.0, 2.0, 1.0]), bounds.allowed(np.full(3, 11.5)))
        2
        """
        return first_best(np.where(allowed, gains, -np.inf))

    def limit(self, selection: Selection, candidates: Candidates, survival: FloatArray) -> Limited:
        """Return what of a choice is allowed: the best number of candidates that is.

        Parameters
        ----------
        selection
            Chosen by worth, of these candidates.
        candidates, survival
            Shape (m,): as in `caps_ms`.
        """
        caps_ms = self.caps_ms(candidates, survival, selection.order)
        allowed, reason = self.allowed(caps_ms), None
        if not allowed[selection.count]:
            reason = self.reason(selection.count)
            count = self.best_count(selection.gains, allowed)
            selection = dataclasses.replace(selection, count=count)
        may_probe = selection.count > 0 or bool(allowed[-1])
        return Limited(selection, reason, may_probe, float(caps_ms[selection.count]))

    def best_depth(
        self, believed: FloatArray, drafts: IntArray, depths: tuple[int, ...], values: FloatArray
    ) -> tuple[int, float]:
        """Return the best depth for all requests alike, and how long its step may be.

        Parameters
        ----------
        believed
            Shape (n, max_depth): survival.
        drafts
            Shape (n,): at hand.
        depths, values
            Depths to choose from, ascending, and the objective of each. The last is taken if it is
            allowed, the first if nothing else is.
        """
        chain = chain_candidates(believed, np.minimum(drafts, depths[-1]))
        caps = self.caps_ms(chain, chain.survival, np.arange(chain.request.shape[0]))
        counts = np.minimum(drafts[:, None], depths).sum(axis=0)
        allowed = self.allowed(caps)[counts]
        allowed[0] = True
        best = len(depths) - 1
        if not allowed[best]:
            best = int(np.argmax(np.where(allowed, values, -np.inf)))
        return depths[best], float(caps[counts[best]])

    def reason(self, count: int) -> Reason:
        """Say why so many drafts are too many."""
        return Reason.TWIN if self.upper_ms[count] > self.twin_ms else Reason.NEIGHBOURS


@compiled("b1[::1](f8[::1], f8[::1])")
def _allowed(upper_ms: FloatArray, caps_ms: FloatArray) -> npt.NDArray[np.bool_]:
    allowed = np.ones(caps_ms.shape[0], dtype=np.bool_)
    for m in range(1, caps_ms.shape[0]):
        allowed[m] = upper_ms[m] <= caps_ms[m] * (1.0 + _ROUNDING)
    return allowed
