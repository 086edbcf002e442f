"""vLLM's estimator of acceptance from a draft's confidence: a pooled logistic, refitted in rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.numerics import load_arrays, save_arrays

REFIT_STEPS = 100
_DAMPING = 50.0  # a round of so many observations moves a coefficient half a full step
_RIDGE = 1e-3
_MAX_LOG_ODDS = 40.0
_START_SLOPE, _START_INTERCEPT = 0.5, -0.2


class AcceptanceEstimator:
    """P(accepted) = sigmoid(slope · logit(confidence) + intercept of the position).

    The slope is shared by all positions. Drafts that the target has judged are gathered for a round
    of 100 steps; then one damped Newton step moves the coefficients, and the round starts afresh.

    Parameters
    ----------
    max_depth
        Positions.

    Examples
    --------
    >>> estimator = AcceptanceEstimator(max_depth=2)
    >>> estimator.predict(estimator.features(np.array([[0.5, 0.9]]))).round(2).tolist()
    [[0.45, 0.71]]
    """

    def __init__(self, max_depth: int) -> None:
        self.slope = np.array([_START_SLOPE])
        self.intercepts = np.full(max_depth, _START_INTERCEPT)
        self.information = np.zeros((max_depth, 3))
        self.gradient = np.zeros((max_depth, 2))
        self.counts = np.zeros(max_depth)
        self.steps = 0

    @staticmethod
    def features(confidence: FloatArray) -> FloatArray:
        """Return log-odds of confidences in [0, 1], clipped to ±40."""
        with np.errstate(divide="ignore"):
            odds = np.log(confidence) - np.log1p(-confidence)
        clipped: FloatArray = np.clip(odds, -_MAX_LOG_ODDS, _MAX_LOG_ODDS)
        return clipped

    def predict(self, features: FloatArray) -> FloatArray:
        """Return conditional acceptance, shape (n, max_depth), from features of that shape."""
        probability: FloatArray = 1.0 / (1.0 + np.exp(-self.slope * features - self.intercepts))
        return probability

    def learn(
        self, features: FloatArray, predicted: FloatArray, verified: IntArray, accepted: IntArray
    ) -> None:
        """Gather the verdicts of one step: accepted drafts, and the first rejected one."""
        position = np.arange(features.shape[1])
        seen = (position <= accepted[:, None]) & (position < verified[:, None])
        weight = np.where(seen, predicted * (1.0 - predicted), 0.0)
        residual = np.where(seen, (position < accepted[:, None]) - predicted, 0.0)
        self.information += np.stack(
            [(weight * features**2).sum(0), (weight * features).sum(0), weight.sum(0)], axis=1
        )
        self.gradient += np.stack([(residual * features).sum(0), residual.sum(0)], axis=1)
        self.counts += seen.sum(0)

    def end_step(self) -> None:
        """Count a step, and refit at the end of a round."""
        self.steps += 1
        if self.steps % REFIT_STEPS == 0:
            self._refit()

    def state(self) -> dict[str, Any]:
        """Return coefficients and the round's sums."""
        return {**save_arrays(self, _STATE), "steps": self.steps}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)
        self.steps = int(state["steps"])

    def _refit(self) -> None:
        """Solve the arrowhead system for slope and intercepts, damp, move, and clear."""
        cross, own = self.information[:, 1], self.information[:, 2] + _RIDGE
        shared = self.information[:, 0].sum() + _RIDGE - (cross**2 / own).sum()
        pull = self.gradient[:, 0].sum() - (cross * self.gradient[:, 1] / own).sum()
        observed = self.counts.sum()
        step = pull / shared * observed / (observed + _DAMPING)
        if self.slope[0] + step < 0.0:
            step = 0.0
        moves = (self.gradient[:, 1] - cross * step) / own
        self.slope += step
        self.intercepts += moves * self.counts / (self.counts + _DAMPING)
        self.information[:] = 0.0
        self.gradient[:] = 0.0
        self.counts[:] = 0.0


_STATE = ("slope", "intercepts", "information", "gradient", "counts")
