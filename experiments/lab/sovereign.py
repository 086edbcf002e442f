"""``acclimate lab sovereign``: what speculation is worth by headroom, and who is harmed by it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from acclimate.experiments.lab.cell_grid import run_missing
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.scenario_digest import about_scenario
from acclimate.experiments.lab.sovereign_cell import (
    ACCEPTANCES,
    ALWAYS_ON,
    BASE,
    CURVES,
    HEADROOM,
    HEADROOMS,
    SHIELDS,
    SovereignCell,
    run_sovereign_cell,
)
from acclimate.experiments.lab.sovereign_cluster import (
    CLUSTER_ARMS,
    ROUTERS,
    ClusterCell,
    run_cluster_cell,
)
from acclimate.experiments.lab.sovereign_findings import (
    ROWS,
    Row,
    SovereignFindings,
    find_sovereign,
)
from acclimate.experiments.lab.tracking import Group
from acclimate.experiments.simulation.scenario import Scenario

SWEEP_ARMS = (BASE, ALWAYS_ON, HEADROOM, "ours_externality", "ours")

Cell = SovereignCell | ClusterCell

_COMMAND = "lab sovereign"


def run_sovereign(
    *,
    seeds: int = 2,
    length: float = 1.0,
    run: LabRun = LabRun(),
) -> SovereignFindings:
    """Sweep the headroom on three curves, share engines between tenants, and serve a cluster.

    Parameters
    ----------
    seeds
        Runs of each cell, counted on from the run's seed.
    length
        Factor on the time that is simulated.
    run
        Processes, folder, seed and the like.

    Raises
    ------
    ValueError
        The folder holds something else, or an option is out of range.
    RuntimeError
        Cells failed, or the run was stopped; what is done is kept.
    """
    if not length > 0:
        raise ValueError(f"length must be > 0, got {length}")
    cells = sovereign_cells(run.seeds(seeds), length)
    names = [*CURVES, *(f"neighbours_{curve}" for curve in CURVES), "cluster"]
    settings = {
        "seeds": seeds, "seed": run.seed, "length": length,
        "scenarios": {
            name: about_scenario(Scenario.read(f"sovereign/{name}")) for name in names
        },
    }  # fmt: skip
    with run.open_store(_COMMAND, settings, ROWS) as store:
        run_missing(run_cell, store, cells, run.jobs)
        found = find_sovereign(store.header, store.rows)
        console = lab_console()
        found.print(console)
        conclude(store, found.figures, lambda: groups_of_sovereign(found), console, run)
    return found


def run_cell(cell: Cell) -> Row:
    """Run a cell of either kind; the same cell gives the same row."""
    if isinstance(cell, ClusterCell):
        return run_cluster_cell(cell)
    return run_sovereign_cell(cell)


def sovereign_cells(seeds: range, length: float) -> list[Cell]:
    """Return every cell: the cluster, which takes longest, the sweep, the tenants and the plans."""
    cells: list[Cell] = [
        ClusterCell(router=router, arm=arm, seed=seed, length=length)
        for router, arm, seed in itertools.product(ROUTERS, CLUSTER_ARMS, seeds)
    ]
    cells += [
        SovereignCell(
            curve=curve, arm=arm, acceptance=acceptance, headroom=headroom, seed=seed, length=length
        )
        for curve, acceptance, headroom, arm, seed in itertools.product(
            CURVES, ACCEPTANCES, HEADROOMS, SWEEP_ARMS, seeds
        )
    ]
    for curve in CURVES:
        arms = (BASE, ALWAYS_ON, HEADROOM, *SHIELDS, *plans_of(curve))
        cells += [
            SovereignCell(curve=curve, arm=arm, seed=seed, length=length)
            for arm, seed in itertools.product(arms, seeds)
        ]
    return cells


def plans_of(curve: str) -> Iterator[str]:
    """Yield plans with a fixed depth per tenant, no deeper where drafts are worse.

    Examples
    --------
    >>> len(list(plans_of("f2"))), next(plans_of("f2"))
    (19, 'plan:0-1-0')
    """
    depths = Scenario.read(f"sovereign/neighbours_{curve}").engine.depths or ()
    for assistant, chat, code in itertools.combinations_with_replacement(depths, 3):
        if code:  # no depth at all is the arm without speculation
            yield f"plan:{assistant}-{code}-{chat}"


def groups_of_sovereign(found: SovereignFindings) -> list[Group]:
    """Return one nested run for each arm."""
    names = [*(point.arm for point in found.sweep), *(point.arm for point in found.neighbours)]
    return [
        Group(
            arm,
            {"arm": arm},
            [figure for figure in found.figures if figure.name.startswith(f"sovereign/{arm}/")],
            strip=f"sovereign/{arm}/",
        )
        for arm in dict.fromkeys(names)
    ]
