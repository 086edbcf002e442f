"""The target's laws behind the nodes of a batch, from the logits of one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from acclimate.controller.records import FloatArray, IntArray

_FEW = 2**21  # probabilities that are computed at once, whether they are asked for or not


class TargetLaws:
    """First choices and probabilities behind each row's nodes, computed as far as they are asked for.

    Parameters
    ----------
    logits
        Shape (nodes of all rows, vocab), row after row, the root of each row first.
    sizes
        Nodes per row, the root included.
    """

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        self._logits = logits
        self._begins = np.concatenate([[0], np.cumsum(sizes)])
        self._best: IntArray | None = None
        self._laws: dict[float, FloatArray] = {}

    def choices(self, row: int) -> IntArray:
        """Return the likeliest token behind each of a row's nodes, shape (m + 1,)."""
        if self._best is None:
            self._best = self._logits.argmax(dim=-1).cpu().numpy()
        return self._best[self._begins[row] : self._begins[row + 1]]

    def behind(self, row: int, temperature: float) -> Callable[[int], FloatArray]:
        """Return what gives a row's law behind a node, shape (vocab,); node -1 is the root."""
        first = int(self._begins[row]) + 1
        if self._logits.numel() <= _FEW:
            if temperature not in self._laws:
                self._laws[temperature] = softmax(self._logits, temperature)
            laws = self._laws[temperature]
            return lambda node: laws[first + node]

        def law(node: int) -> FloatArray:
            return softmax(self._logits[first + node], temperature)

        return law


def softmax(logits: Tensor, temperature: float) -> FloatArray:
    """Return probabilities in double precision, shape (…, vocab).

    >>> softmax(torch.tensor([0.0, 0.0]), 1.0).tolist()
    [0.5, 0.5]
    """
    law: FloatArray = torch.softmax(logits.double() / temperature, dim=-1).cpu().numpy()
    return law
