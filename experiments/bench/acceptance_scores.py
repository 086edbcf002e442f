"""How good predicted probabilities are: log loss, Brier score, calibration error, differences."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.figures import Figure
from acclimate.experiments.statistics import RESAMPLES, interval, resample

BINS = 10
ENOUGH_TOKENS = 5_000
"""Graded tokens from which on a domain's calibration error is judged by itself."""
_CLIP = 1e-3
_PERFECT_DRAWS = 1_000
_QUANTILE = 0.95

BoolArray = npt.NDArray[np.bool_]


def log_losses(predicted: FloatArray, right: BoolArray) -> FloatArray:
    """Return the log loss of each token in nats, predictions clipped to [0.001, 0.999].

    >>> log_losses(np.array([0.5, 0.0]), np.array([True, True])).round(3).tolist()
    [0.693, 6.908]
    """
    shown = np.clip(np.where(right, predicted, 1.0 - predicted), _CLIP, 1.0 - _CLIP)
    losses: FloatArray = -np.log(shown)
    return losses


def calibration_error(predicted: FloatArray, right: BoolArray, bins: int = BINS) -> float:
    """Return the expected calibration error over bins of equal mass.

    >>> calibration_error(np.array([0.2, 0.2, 0.8, 0.8]), np.array([0, 1, 1, 1], bool), bins=2)
    0.25
    """
    order = np.argsort(predicted, kind="stable")
    gap = np.cumsum(np.concatenate([[0.0], (predicted - right)[order]]))
    edges = np.linspace(0, predicted.size, bins + 1).astype(np.int64)
    return float(np.abs(np.diff(gap[edges])).sum() / predicted.size)


def perfect_calibration_error(predicted: FloatArray, rng: np.random.Generator) -> float:
    """Return the 95th percentile of the calibration error if each prediction were the truth."""
    errors = [
        calibration_error(predicted, rng.random(predicted.size) < predicted)
        for _ in range(_PERFECT_DRAWS)
    ]
    return float(np.quantile(errors, _QUANTILE))


class Scores:
    """Scores of several models over the same tokens, with intervals over the same draws of prompts.

    Parameters
    ----------
    right
        Shape (n,): outcomes.
    prompt, domain
        Shape (n,): what is drawn anew, and what calibration is judged by.
    names
        Of the domains.
    rng
        Draws prompts and perfect predictors' outcomes.
    """

    def __init__(
        self,
        right: BoolArray,
        prompt: IntArray,
        domain: IntArray,
        names: list[str],
        rng: np.random.Generator,
    ) -> None:
        self._right, self._domain, self._names, self._rng = right, domain, names, rng
        prompts, self._prompt = np.unique(prompt, return_inverse=True)
        self._n = int(prompts.size)
        draws = resample(self._n, rng, RESAMPLES)
        self._weight = np.zeros((RESAMPLES, self._n))
        np.add.at(self._weight, (np.arange(RESAMPLES)[:, None], draws), 1.0)
        self._tokens = self._weight @ np.bincount(self._prompt, minlength=self._n)

    def figures(self, model: str, predicted: FloatArray) -> list[Figure]:
        """Return a model's log loss, Brier score and calibration errors.

        A domain's calibration error has its number of tokens as ``n``; for a small one
        ``ece_perfect`` is what 95 in 100 perfect predictors stay below.
        """
        name = f"acceptance/{model}"
        figures = [
            self._mean(f"{name}/log_loss", log_losses(predicted, self._right), "nats"),
            self._mean(f"{name}/brier", (predicted - self._right) ** 2),
            Figure(f"{name}/ece/all", calibration_error(predicted, self._right), n=predicted.size),
        ]
        for number, domain in enumerate(self._names):
            mine = self._domain == number
            tokens = int(mine.sum())
            if not tokens:
                continue
            error = calibration_error(predicted[mine], self._right[mine])
            figures.append(Figure(f"{name}/ece/{domain}", error, n=tokens))
            if tokens < ENOUGH_TOKENS:
                limit = perfect_calibration_error(predicted[mine], self._rng)
                figures.append(Figure(f"{name}/ece_perfect/{domain}", limit, n=tokens))
        return figures

    def gain(self, model: str, rival: str, ours: FloatArray, theirs: FloatArray) -> Figure:
        """Return by how many nats per token a model's log loss is below a rival's, paired."""
        less = log_losses(theirs, self._right) - log_losses(ours, self._right)
        return self._mean(f"acceptance/{model}/log_loss_below/{rival}", less, "nats")

    def _mean(self, name: str, values: FloatArray, unit: str = "") -> Figure:
        sums = np.bincount(self._prompt, values, minlength=self._n)
        draws = (self._weight @ sums) / self._tokens
        return interval(name, float(values.mean()), draws, self._n, unit)
