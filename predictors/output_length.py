"""How long answers get, per class: what is still to come of one that has written so many tokens."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.numerics import geometric_buckets, load_arrays, save_arrays

_ENOUGH_ANSWERS = 5.0
_STATE = ("counts", "table")


class OutputLength:
    """A quantile of the whole length of an answer, given that it is longer than so many tokens.

    Lengths are counted in buckets that widen with length. An answer that has outlived most others
    is compared with those that did so too.

    Parameters
    ----------
    n_classes
        Classes kept apart.
    quantile
        In (0, 1).
    window_answers
        Answers after which a class's evidence has decayed to 1/e.
    max_tokens
        Longer answers count as this long.

    Attributes
    ----------
    table
        Shape (n_classes, n_buckets): tokens of the whole answer, by class and by the `bucket` of
        those written; infinite where too little was seen.
    bucket
        Shape (max_tokens + 1,).

    Examples
    --------
    >>> lengths = OutputLength(n_classes=1, quantile=0.5, window_answers=1000.0)
    >>> for _ in range(50):
    ...     lengths.learn(0, 12)
    ...     lengths.learn(0, 8)
    >>> lengths.expected(0, 3), lengths.expected(0, 10), lengths.expected(0, 40)
    (8.0, 12.0, inf)
    """

    def __init__(
        self,
        n_classes: int,
        *,
        quantile: float = 0.9,
        window_answers: float = 200.0,
        max_tokens: int = 32_768,
    ) -> None:
        if not 0.0 < quantile < 1.0:
            raise ValueError(f"quantile must be in (0, 1), got {quantile}")
        self.quantile = quantile
        self.max_tokens = max_tokens
        self.bucket = geometric_buckets(max_tokens, exact=16, per_octave=4)
        n_buckets = int(self.bucket[-1]) + 1
        # Every bucket up to the last is there; an answer counts as the longest of its bucket.
        self._longest = np.searchsorted(self.bucket, np.arange(n_buckets), side="right") - 1.0
        self._keep = math.exp(-1.0 / window_answers)
        self.counts = np.zeros((n_classes, n_buckets))
        self.table = np.full((n_classes, n_buckets), np.inf)

    def learn(self, kind: int, tokens: int) -> None:
        """Add an answer of a class, at least one token long."""
        counts = self.counts[kind]
        counts *= self._keep
        counts[self.bucket[max(1, min(tokens, self.max_tokens))]] += 1.0
        upto = counts.cumsum()
        longer = upto[-1] - upto  # than all of this bucket
        place = upto.searchsorted(upto + self.quantile * longer)
        known = self._longest[np.minimum(place, upto.shape[0] - 1)]
        self.table[kind] = np.where(longer >= _ENOUGH_ANSWERS, known, np.inf)

    def expected(self, kind: int, written: int) -> float:
        """Return the tokens of a whole answer of which ``written`` are there; infinite if unknown."""
        return float(self.table[kind, self.bucket[max(0, min(written, self.max_tokens))]])

    def mean(self) -> float | None:
        """Return the tokens of an answer on average over all classes; None until there are some.

        >>> lengths = OutputLength(n_classes=2)
        >>> for _ in range(5):
        ...     lengths.learn(0, 12)
        ...     lengths.learn(1, 8)
        >>> lengths.mean()
        10.0
        """
        counts = self.counts.sum(axis=0)
        answers = float(counts.sum())
        return float(counts @ self._longest) / answers if answers >= _ENOUGH_ANSWERS else None

    def state(self) -> dict[str, Any]:
        """Return counts and table as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state has another number of classes or buckets.
        """
        load_arrays(self, _STATE, state)
        # What was infinite is nothing in JSON, and comes back as not a number.
        self.table[np.isnan(self.table)] = np.inf
