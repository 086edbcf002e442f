"""What an oracle may ask of a simulation: true acceptance, true step time, true change-points."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import expit, logit  # type: ignore[import-untyped]

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.simulation.acceptance import DrawnDrafts
from acclimate.experiments.simulation.step_time import StepTime


class Truth(Protocol):
    """What is true of drafts made now, and of steps.

    ``change_points_ns`` are the instants at which acceptance begins to change, ascending.
    """

    step_time: StepTime
    change_points_ns: tuple[int, ...]

    def survival(self, requests: IntArray, now_ns: int) -> FloatArray:
        """Return P(the first i drafts are all accepted), shape (n, max_depth)."""

    def reach(self, requests: IntArray, now_ns: int) -> FloatArray:
        """Return P(the draft has at least i tokens), shape (n, max_depth)."""

    def acceptance(self, requests: IntArray, confidence: FloatArray, now_ns: int) -> FloatArray:
        """Return P(accepted) of drafts of which the drafter is so sure, shape (n, max_depth)."""


class DrawnTruth:
    """The truth behind `DrawnDrafts`: each request's own law, without the luck of its tokens.

    Where tokens scatter about a request's mean, that scatter is averaged over: an oracle knows
    acceptance as well as anybody can who does not see the drafter's confidence.

    Parameters
    ----------
    drafts
        Where the drafts come from.
    step_time
        How long steps really take, without noise.
    until_s
        Change-points are listed up to here.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> from acclimate.experiments.simulation.acceptance import Shift
    >>> from acclimate.experiments.simulation.regimes import Regime
    >>> from acclimate.experiments.simulation.table_time import TableTime
    >>> high, low = Regime.of_survival([0.8, 0.6]), Regime.of_survival([0.4, 0.2])
    >>> drop = Shift(at_s=10.0, regime_of=(1,))
    >>> drafts = DrawnDrafts([high, low], (0,), np.zeros(3, np.int64), shifts=[drop])
    >>> truth = DrawnTruth(drafts, TableTime([1, 1], [0, 2], [6.0, 7.0]))
    >>> truth.survival(int_array([2]), 0).round(6).tolist(), truth.change_points_ns
    ([[0.8, 0.6]], (10000000000,))
    >>> truth.survival(int_array([2]), 11_000_000_000).round(6).tolist()
    [[0.4, 0.2]]
    """

    def __init__(
        self, drafts: DrawnDrafts, step_time: StepTime, *, until_s: float = 86_400.0
    ) -> None:
        self.drafts = drafts
        self.step_time = step_time
        self.change_points_ns = tuple(round(1e9 * s) for s in drafts.change_points_s(until_s))
        self._of_request: dict[int, FloatArray] = {}

    def survival(self, requests: IntArray, now_ns: int) -> FloatArray:
        """Return P(the first i drafts are all accepted), shape (n, max_depth)."""
        rows = requests - 1
        weights = self.drafts.weights(now_ns / 1e9)[self.drafts.domain_of[rows]]
        result = np.zeros((rows.shape[0], self.drafts.max_depth))
        for regime in np.flatnonzero(weights.any(axis=0)).tolist():
            result += weights[:, regime, None] * self._survival(regime, rows)
        return result

    def reach(self, requests: IntArray, now_ns: int) -> FloatArray:
        """Return P(the draft has at least i tokens), shape (n, max_depth)."""
        weights = self.drafts.weights(now_ns / 1e9)[self.drafts.domain_of[requests - 1]]
        laws = np.stack([regime.reach for regime in self.drafts.regimes])
        return np.asarray(weights @ laws, dtype=np.float64)

    def acceptance(self, requests: IntArray, confidence: FloatArray, now_ns: int) -> FloatArray:
        """Return P(accepted) of drafts of which the drafter is so sure, shape (n, max_depth).

        Parameters
        ----------
        confidence
            Shape (n, max_depth), in [0, 1].
        """
        said = logit(np.clip(confidence, 1e-9, 1.0 - 1e-9))
        weights = self.drafts.weights(now_ns / 1e9)[self.drafts.domain_of[requests - 1]]
        result: FloatArray = np.zeros_like(said)
        for regime in np.flatnonzero(weights.any(axis=0)).tolist():
            law = self.drafts.regimes[regime]
            result += weights[:, regime, None] * expit(law.a + law.b * said)
        return result

    def domain_survival(self, domain: int, now_ns: int) -> FloatArray:
        """Return the mean over a domain's requests, shape (max_depth,)."""
        weights = self.drafts.weights(now_ns / 1e9)[domain]
        laws = np.stack([regime.survival() for regime in self.drafts.regimes])
        return np.asarray(weights @ laws, dtype=np.float64)

    def _survival(self, regime: int, rows: IntArray) -> FloatArray:
        law = self.drafts.regimes[regime]
        if law.spread == 0:
            return law.survival(np.zeros(1))
        if regime not in self._of_request:
            everyone = np.arange(self.drafts.domain_of.shape[0])
            self._of_request[regime] = law.survival(self.drafts.deviations(everyone))
        return self._of_request[regime][rows]
