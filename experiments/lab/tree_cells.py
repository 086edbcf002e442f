"""Cells of ``acclimate lab trees``: what is run apart from all else, and goes on after a kill."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec


class TreeCell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell.

    Parameters
    ----------
    key
        Unique; its first part says what is run.
    options
        What the part's function is called with.
    """

    key: str
    options: dict[str, Any] = {}

    @property
    def part(self) -> str:
        """What is run."""
        return self.key.partition("/")[0]


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's result: columns of numbers, and names where columns need them."""

    key: str
    numbers: dict[str, list[float | None]] = {}
    names: dict[str, list[str]] = {}

    @property
    def part(self) -> str:
        """What was run."""
        return self.key.partition("/")[0]

    def column(self, name: str) -> list[float]:
        """Return a column that has no gaps."""
        return [float(value) for value in self.numbers[name] if value is not None]


IDENTITY, SAMPLING, WORTH, SWAP, SHIFT, SPEED = (
    "identity", "sampling", "worth", "swap", "shift", "speed",
)  # fmt: skip
_WORK = {
    IDENTITY: "tree_identity:identity_cell",
    SAMPLING: "tree_sampling:sampling_cell",
    WORTH: "tree_shapes:worth_cell",
    SWAP: "tree_swap:swap_cell",
    SHIFT: "tree_shift:shift_cell",
}


def run_tree_cell(cell: TreeCell) -> TreeRow:
    """Run a cell; those of speed need what came before, and have a session of their own."""
    module, _, name = _WORK[cell.part].partition(":")
    work: Callable[..., TreeRow] = getattr(
        import_module(f"acclimate.experiments.lab.{module}"), name
    )
    return work(cell.key, **cell.options)
