"""The trained back-off model as a drafter of trees."""

from __future__ import annotations

import os

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.experiments.trees.draft import Law
from acclimate.integrations.ngram_files import load_backoff
from acclimate.predictors.ngram import BackoffModel


class BackoffDrafter:
    """Says what may come next by the counts of a text and by the request's own.

    Parameters
    ----------
    model
        The trained model.

    Examples
    --------
    >>> from acclimate.predictors.ngram import train_backoff
    >>> model = train_backoff([(np.array([1, 2, 3, 4] * 30), 1)] * 20, order=2)
    >>> BackoffDrafter(model).next_tokens(np.array([9, 3, 4, 1]), 1).tokens.tolist()
    [2]
    """

    def __init__(self, model: BackoffModel) -> None:
        self.model = model

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BackoffDrafter:
        """Read a model from a file; see `acclimate.integrations.ngram_files.load_backoff`."""
        return cls(load_backoff(path)[0])

    def next_tokens(self, ids: IntArray, most: int) -> Law:
        """Return up to ``most`` tokens that may come after ``ids``, likeliest first."""
        # A token behind the end is asked for, and not looked at.
        text = np.append(ids, np.int64(0))
        best, chances = self.model.rank(text, ids.shape[0], most)
        named = (best[0] >= 0) & (chances[0] > 0.0)
        return Law(best[0][named], chances[0][named])
