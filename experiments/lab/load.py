"""``acclimate lab load``: does a policy find the best depth of a published table at every load?"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from acclimate.experiments.lab.cell_grid import run_missing
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.load_cell import (
    BATCHES,
    BOUNDARIES,
    SURVIVALS,
    LoadCell,
    LoadRow,
    run_load_cell,
)
from acclimate.experiments.lab.load_findings import LoadFindings, find_load
from acclimate.experiments.lab.tracking import Group

_COMMAND = "lab load"


def run_load(
    *,
    arm: str = "adaptive",
    seeds: int = 5,
    until_s: float = 30.0,
    warm_up_s: float = 10.0,
    run: LabRun = LabRun(),
) -> LoadFindings:
    """Run an arm on every row and batch of the table and at the boundary, and show what it chose.

    Parameters
    ----------
    arm
        Whom to examine; ``k0`` and, at the boundary, every fixed depth run beside it.
    seeds
        Runs of each cell, counted on from the run's seed.
    until_s, warm_up_s
        Simulated seconds of a run, and those of them that do not count.
    run
        Processes, folder, seed and the like.

    Raises
    ------
    ValueError
        The folder holds something else, or an option is out of range.
    RuntimeError
        Cells failed, or the run was stopped; what is done is kept.
    """
    if not 0 <= warm_up_s < until_s:
        raise ValueError(f"warm_up_s must be in [0, until_s {until_s}), got {warm_up_s}")
    cells = load_cells(arm, run.seeds(seeds), until_s, warm_up_s)
    settings = {
        "arm": arm, "seeds": seeds, "seed": run.seed, "until_s": until_s, "warm_up_s": warm_up_s,
    }  # fmt: skip
    with run.open_store(_COMMAND, settings, LoadRow) as store:
        run_missing(run_load_cell, store, cells, run.jobs)
        found = find_load(store.header, store.rows)
        console = lab_console()
        found.print(console)
        conclude(store, found.figures, lambda: groups_of_load(found), console, run)
    return found


def load_cells(arm: str, seeds: range, until_s: float, warm_up_s: float) -> list[LoadCell]:
    """Return every cell: table and boundary without noise, then with it."""
    fixed = tuple(f"k{depth}" for depth in range(4))
    cells = []
    for noisy in (False, True):
        for row, batch in itertools.product(SURVIVALS, BATCHES):
            cells += _of_arms(
                (arm, "k0"),
                LoadCell(
                    survival=row,
                    batch=batch,
                    noisy=noisy,
                    arm=arm,
                    seed=0,
                    until_s=until_s,
                    warm_up_s=warm_up_s,
                ),
                seeds,
            )
        for kind in BOUNDARIES:
            cells += _of_arms(
                (arm, *fixed),
                LoadCell(
                    boundary=kind,
                    noisy=noisy,
                    arm=arm,
                    seed=0,
                    until_s=until_s,
                    warm_up_s=warm_up_s,
                ),
                seeds,
            )
    return cells


def _of_arms(arms: Sequence[str], cell: LoadCell, seeds: range) -> list[LoadCell]:
    return [
        msgspec.structs.replace(cell, arm=name, seed=seed)
        for name in dict.fromkeys(arms)
        for seed in seeds
    ]


def groups_of_load(found: LoadFindings) -> list[Group]:
    """Return one nested run for each row and batch, and one for each boundary."""
    figures = defaultdict(list)
    for figure in found.figures:
        parts = figure.name.split("/")
        if len(parts) > 3:
            figures["/".join(parts[1:3])].append(figure)
    return [
        Group(name, {"cell": name, "arm": found.arm}, group, strip=f"load/{name}/")
        for name, group in figures.items()
    ]
