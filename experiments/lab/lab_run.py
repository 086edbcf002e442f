"""How a lab is run, whatever it asks: in how many processes, from which seed, and into which folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from acclimate.experiments.lab.cell_store import CellStore, Keyed

R = TypeVar("R", bound="Keyed")
_HOME = Path("acclimate-out/lab")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LabRun:
    """What every lab can be told beside its own question.

    Parameters
    ----------
    jobs
        Processes; by default one for each core.
    out
        New folder for results and figures; by default one that is named after the lab and the time.
    resume
        Go on with what ``out`` holds.
    mlflow
        Whether to track the experiment: a parent run, and a nested one for each group of cells.
    json
        A second place for the figures.
    seed
        Of everything drawn.

    Examples
    --------
    >>> LabRun(seed=7).seeds(3)
    range(7, 10)
    """

    jobs: int | None = None
    out: Path | None = None
    resume: bool = False
    mlflow: bool = True
    json: Path | None = None
    seed: int = 0

    def seeds(self, count: int) -> range:
        """Return the seeds of so many runs of a cell, counted on from ``seed``.

        Raises
        ------
        ValueError
            There are none.
        """
        if count < 1:
            raise ValueError(f"seeds must be >= 1, got {count}")
        return range(self.seed, self.seed + count)

    def open_store(self, command: str, settings: Mapping[str, Any], row: type[R]) -> CellStore[R]:
        """Open the folder for a lab's cells.

        Parameters
        ----------
        command, settings, row
            As in `CellStore`.

        Raises
        ------
        ValueError
            The folder is not empty, holds nothing to go on with, or holds another experiment.
        """
        # The command line reads this module for every command, and must start quickly.
        from acclimate.experiments.lab.cell_store import CellStore

        out = self.out or _new_folder(command)
        return CellStore(out, command, settings, row, resume=self.resume)


def _new_folder(command: str) -> Path:
    """Return where the results of a run go that is not told where, such as of ``lab load``."""
    return _HOME / f"{command.removeprefix('lab ')}-{time.strftime('%Y%m%d-%H%M%S')}"
