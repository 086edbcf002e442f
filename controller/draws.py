"""Counter-based random numbers, so that gaps and counterfactual policies share draws."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray

_BLOCK = 1024


class Draws:
    """A uniform number for every (seed, purpose, step), whatever was asked before.

    Philox is keyed by the seed and counted by purpose and step, in cached blocks.

    Parameters
    ----------
    seed
        Key of the generator, >= 0.
    purpose
        A number that keeps independent uses apart.

    Examples
    --------
    >>> Draws(seed=1, purpose=2).uniform(5000) == Draws(seed=1, purpose=2).uniform(5000)
    True
    """

    def __init__(self, seed: int, purpose: int) -> None:
        self.seed = seed
        self.purpose = purpose
        self._block = -1
        self._values: FloatArray = np.empty(0)

    def uniform(self, step: int) -> float:
        """Return a number in [0, 1) that depends on seed, purpose and ``step`` alone."""
        block, offset = divmod(step, _BLOCK)
        if block != self._block:
            bits = np.random.Philox(key=self.seed, counter=[0, 0, block, self.purpose])
            self._values = np.random.Generator(bits).random(_BLOCK)
            self._block = block
        return float(self._values[offset])
