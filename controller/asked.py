"""Which depth each recent step drafted: a draft that is as long as asked may have been cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.predictors.numerics import load_arrays, save_arrays

_KEPT = 64  # steps; a draft is verified one or two steps after it was made
_STATE = ("step", "depth")


class AskedDepths:
    """Draft depths of the latest steps, by the step that drafted.

    Examples
    --------
    >>> asked = AskedDepths()
    >>> asked.note(7, 3)
    >>> asked.of(np.array([7, -1, 2]), default=7).tolist()  # step 2 is long forgotten
    [3, 3, 0]
    """

    def __init__(self) -> None:
        self.step = np.full(_KEPT, -1)
        self.depth = np.zeros(_KEPT, dtype=np.int64)

    def note(self, step: int, depth: int) -> None:
        """Remember what a step drafted."""
        self.step[step % _KEPT] = step
        self.depth[step % _KEPT] = depth

    def of(self, steps: IntArray, default: int) -> IntArray:
        """Return the depth that each of ``steps`` drafted; 0 where it is not known.

        A drafter that found nothing leaves no step; ``default`` is then the step that asked it.
        """
        steps = np.where(steps < 0, default, steps)
        place = steps % _KEPT
        depths: IntArray = np.where(self.step[place] == steps, self.depth[place], 0)
        return depths

    def state(self) -> dict[str, Any]:
        """Return steps and depths as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)
