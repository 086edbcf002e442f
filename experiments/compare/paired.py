"""Times of several arms for the same prompts in several rounds, the machine's speed taken out."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray


class PairedTimes:
    """What every arm takes for every prompt, relative to what all arms take in the same round.

    In a round the arms run a prompt within a short time. There each arm's time is divided by the
    geometric mean of all arms' times, so that the speed of the machine in that round cancels. The
    median of that over rounds is the arm's, so that a stall in one of them does not count; it is
    given back in seconds by the median of the means.

    Parameters
    ----------
    times_s
        Shape (arms, prompts, rounds), above 0; NaN where nothing was measured. A round in which
        some arm has no value for a prompt is passed over for that prompt.

    Examples
    --------
    The second round was twice as slow for everybody, and the arms differ by a factor of two:

    >>> times = PairedTimes(np.array([[[1.0, 2.0]], [[2.0, 4.0]]]))
    >>> times.typical_s().round(3).tolist()
    [[1.5], [3.0]]
    """

    def __init__(self, times_s: FloatArray) -> None:
        self.mean_s = np.exp(np.log(times_s).mean(axis=0))  # NaN unless all arms have a value
        self.relative = times_s / self.mean_s
        measured = np.isfinite(self.mean_s)
        self.complete = measured.any(axis=1)
        self._groups = [
            (np.flatnonzero((measured == pattern).all(axis=1)), np.flatnonzero(pattern))
            for pattern in np.unique(measured[self.complete], axis=0)
        ]

    def typical_s(self, rng: np.random.Generator | None = None) -> FloatArray:
        """Return the time per arm and prompt, shape (arms, prompts); NaN where there is none.

        Parameters
        ----------
        rng
            If given, rounds are drawn anew with replacement: what the machine's noise, which
            differs from round to round, would have made of the same prompts.
        """
        typical = np.full(self.relative.shape[:2], np.nan)
        for prompts, rounds in self._groups:
            if rng is not None:
                rounds = rng.choice(rounds, size=rounds.size)
            own = np.ix_(prompts, rounds)
            middle = np.median(self.relative[:, own[0], own[1]], axis=2)
            typical[:, prompts] = middle * np.median(self.mean_s[own], axis=1)
        return typical

    def only(self, prompts: np.ndarray) -> PairedTimes:
        """Return the same for some of the prompts."""
        return PairedTimes(self.relative[:, prompts] * self.mean_s[prompts])
