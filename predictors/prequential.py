"""Which of several predictors to believe: the one that predicted best of late."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from acclimate.predictors.numerics import FloatArray, check_range, load_arrays, save_arrays

_CLIP = 1e-3
_EVIDENCE_NATS = 5.0  # a likelihood ratio of 150: chance alone seldom gets there


class PrequentialChoice:
    """Compares candidates by discounted log loss of predictions made before the outcome was known.

    The choice changes only where another candidate's loss is lower by a margin, and by more than
    chance would have it, so that it does not flutter between two that are alike.

    Parameters
    ----------
    n_candidates
        Candidates; the first is believed until another is better.
    window_tokens
        Tokens after which a loss has decayed to 1/e.
    margin_nats
        By how much another must be better per token.

    Examples
    --------
    >>> choice = PrequentialChoice(2)
    >>> for _ in range(100):
    ...     choice.learn(np.array([[0.5, 0.9]]), np.array([True]))
    >>> choice.best, choice.losses.round(2).tolist()
    (1, [0.69, 0.11])

    References
    ----------
    Dawid: Statistical theory: the prequential approach. J. R. Statist. Soc. A 147, 1984.
    """

    def __init__(
        self, n_candidates: int, *, window_tokens: float = 2_000.0, margin_nats: float = 0.002
    ) -> None:
        if n_candidates < 1:
            raise ValueError(f"n_candidates must be >= 1, got {n_candidates}")
        self.window_tokens = window_tokens
        self.margin_nats = margin_nats
        self.best = 0
        self.totals = np.zeros(n_candidates)
        self.weight = np.zeros(1)

    @property
    def losses(self) -> FloatArray:
        """Log loss per token of each candidate, in nats; log 2 before there is evidence."""
        if self.weight[0] <= 0.0:
            return np.full(self.totals.shape, math.log(2.0))
        losses: FloatArray = self.totals / self.weight[0]
        return losses

    def learn(self, predictions: FloatArray, right: npt.NDArray[np.bool_]) -> None:
        """Score predictions, shape (tokens, candidates), by outcomes, shape (tokens,).

        A prediction that is not finite counts as the worst one can make.
        """
        if not right.shape[0]:
            return
        shown = np.where(right[:, None], predictions, 1.0 - predictions)
        shown = np.where(np.isfinite(shown), np.clip(shown, _CLIP, 1.0 - _CLIP), _CLIP)
        keep = math.exp(-right.shape[0] / self.window_tokens)
        self.totals *= keep
        self.totals -= np.log(shown).sum(axis=0)
        self.weight *= keep
        self.weight += right.shape[0]
        leader = int(np.argmin(self.totals))
        needed_nats = max(_EVIDENCE_NATS, self.margin_nats * float(self.weight[0]))
        if self.totals[self.best] - self.totals[leader] > needed_nats:
            self.best = leader

    def state(self) -> dict[str, Any]:
        """Return the sums and the choice."""
        return {**save_arrays(self, ("totals", "weight")), "best": self.best}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            It compares another number of candidates, or is not finite.
        """
        check_range("best", state["best"], 0, self.totals.size - 1)
        load_arrays(self, ("totals", "weight"), state, finite=True)
        self.best = int(state["best"])
