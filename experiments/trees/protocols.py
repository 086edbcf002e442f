"""What the engine needs of a target: passes over trees, and one path kept of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from acclimate.controller.records import FloatArray, IntArray


class Laws(Protocol):
    """What a target says behind the nodes of a pass, row after row."""

    def choices(self, row: int) -> IntArray:
        """Return the likeliest token behind each of a row's nodes, shape (m + 1,), the root first."""

    def behind(self, row: int, temperature: float) -> Callable[[int], FloatArray]:
        """Return what gives a row's law behind a node, shape (vocab,); node -1 is the root."""


class Target(Protocol):
    """A target with a cache: rows ``0 … n - 1`` are the requests in service.

    A row's newest token is not in the cache: it is the root, node 0, of the next pass.
    """

    max_requests: int
    capacity: int

    def prefill(self, first_row: int, prompts: Sequence[IntArray]) -> Laws:
        """Compute prompts into empty rows; the laws are behind their last tokens."""

    def verify(
        self, tokens: Sequence[IntArray], parents: Sequence[IntArray], depths: Sequence[IntArray]
    ) -> Laws:
        """Compute the trees of rows 0, 1, …, the root of each first: its parent is -1, its depth 0."""

    def accept(self, row: int, path: Sequence[int]) -> None:
        """Keep the nodes of a path of the last pass, the root first; the others are lost."""

    def move(self, source: int, target: int) -> None:
        """Put a row's tokens into another row, whose own are lost."""

    def clear(self, row: int) -> None:
        """Forget a row's tokens."""
