"""Remembers what acceptance was before each change, and recognises a mix that returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.numerics import FloatArray, load_arrays, save_arrays

_KEPT = 4  # per slot; the one that was in force longest ago makes room
_LEAST_TOKENS = 100.0  # in all positions, of a mix that is worth to be kept
_MOST_TOKENS = 150.0  # per position that a mix counts when it is compared or returns
_WORTH = 0.5  # of a token: those of one request are alike
_SURE = 1.0  # log Bayes factor from which a mix is the same


class KnownMixes:
    """Per slot a few mixes that were in force before, as counts per position.

    A mix that is over is put away. After a change, what came since is weighed under each of these
    (as a Beta prior of their counts) against a flat prior: a Bayes factor of e recognises it.

    Parameters
    ----------
    n_slots, max_depth
        As of `AcceptanceTable`.

    Examples
    --------
    >>> mixes, tokens = KnownMixes(1, 2), np.array([200.0, 100.0])
    >>> mixes.put_away(0, 0.9 * tokens, tokens)
    >>> since = np.array([40.0, 30.0])
    >>> mixes.recognise(0, 0.3 * since, since) is None
    True
    >>> accepted, graded = mixes.recognise(0, 0.9 * since, since)
    >>> (accepted / graded).round(2).tolist()
    [0.9, 0.9]
    """

    def __init__(self, n_slots: int, max_depth: int) -> None:
        self.counts = np.zeros((n_slots, _KEPT, 2, max_depth))
        self.ended = np.zeros((n_slots, _KEPT))  # rank of its latest end; 0 where none is kept
        self._seen = 0.0

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.counts[slot] = 0.0
        self.ended[slot] = 0.0

    def put_away(self, slot: int, accepted: FloatArray, graded: FloatArray) -> None:
        """Keep a mix that is over, in the place of the same one if it was known.

        Parameters
        ----------
        accepted, graded
            Shape (max_depth,): what was counted while it was in force.
        """
        if graded.sum() < _LEAST_TOKENS:
            return
        same = self._same(slot, accepted, graded)
        place = int(np.argmin(self.ended[slot])) if same is None else same
        scale = np.minimum(_MOST_TOKENS / np.maximum(graded, _MOST_TOKENS), 1.0)
        self.counts[slot, place] = accepted * scale, graded * scale
        self._seen += 1.0
        self.ended[slot, place] = self._seen

    def recognise(
        self, slot: int, accepted: FloatArray, graded: FloatArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """Return the counts of the mix that has returned, by what came since; None for a new one."""
        same = self._same(slot, accepted, graded)
        if same is None:
            return None
        return self.counts[slot, same, 0].copy(), self.counts[slot, same, 1].copy()

    def state(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {**save_arrays(self, _STATE), "seen": self._seen}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another shape.
        """
        shape = np.asarray(state["counts"]).shape
        if shape != self.counts.shape:
            raise ValueError(f"counts must be {self.counts.shape}, got {shape}")
        load_arrays(self, _STATE, state)
        self._seen = float(state["seen"])

    def _same(self, slot: int, accepted: FloatArray, graded: FloatArray) -> int | None:
        from scipy.special import betaln  # type: ignore[import-untyped]

        scale = _WORTH * np.minimum(_MOST_TOKENS / np.maximum(graded, _MOST_TOKENS), 1.0)
        right, wrong = scale * accepted, scale * np.maximum(graded - accepted, 0.0)
        kept = self.counts[slot]
        a, b = 1.0 + _WORTH * kept[:, 0], 1.0 + _WORTH * np.maximum(kept[:, 1] - kept[:, 0], 0.0)
        factors = betaln(a + right, b + wrong) - betaln(a, b)
        factors = (factors - betaln(1.0 + right, 1.0 + wrong)).sum(axis=-1)
        factors[self.ended[slot] == 0.0] = -np.inf
        best = int(np.argmax(factors))
        return best if factors[best] >= _SURE else None


_STATE = ("counts", "ended")
