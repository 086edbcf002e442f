"""Options of commands that draft over recorded answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from acclimate.experiments.cli.lists import counts

if TYPE_CHECKING:
    from acclimate.experiments.offsets import Lookup

Depth = Annotated[int, typer.Option("--depth", min=1, help="Tokens per draft.")]
Window = Annotated[str, typer.Option("--window", help="n-gram lookup, MIN,MAX.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, help="In service.")]
FirstTokens = Annotated[
    int | None, typer.Option("--first-tokens", min=2, help="Cut answers to so many.")
]


def lookup_of(window: str, depth: int) -> Lookup:
    """Return the drafter that a window, MIN,MAX, and a depth ask for.

    Raises
    ------
    BadParameter
        The window is something else than two whole numbers above 0.
    ValueError
        The window is empty.
    """
    from acclimate.experiments.offsets import Lookup

    sizes = counts(window, "--window")
    if len(sizes) != 2:
        raise typer.BadParameter(f"must be MIN,MAX, got {window!r}", param_hint="--window")
    return Lookup(sizes[0], sizes[1], max_depth=depth)
