"""A target of an experiment, and whether it was reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

TARGET_HEAD = ("target", "reached", "what was measured")
"""Names of the columns of `Target.row`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What was to be reached.

    Parameters
    ----------
    name
        The target in words.
    met
        Whether it was reached; None where nothing could be judged.
    told
        What was measured, and where it fell short.
    """

    name: str
    met: bool | None
    told: str

    @property
    def verdict(self) -> str:
        """One word for a table."""
        return {True: "yes", False: "no", None: "not judged"}[self.met]

    @property
    def row(self) -> list[str]:
        """The target as a row of a table."""
        return [self.name, self.verdict, self.told]

    @property
    def line(self) -> str:
        """The target in a sentence.

        >>> Target("as fast as before", False, "lowest 0.98").line
        'Not reached: as fast as before (lowest 0.98).'
        """
        verdict = {True: "Reached", False: "Not reached", None: "Not judged"}[self.met]
        return f"{verdict}: {self.name} ({self.told})."


def target_table(title: str, targets: Sequence[Target]) -> Table:
    """Return targets as a table for a terminal."""
    from rich.table import Table

    table = Table(*TARGET_HEAD, title=title)
    for target in targets:
        table.add_row(*target.row, style="bold red" if target.met is False else None)
    return table
