"""From rows to everything that a comparison says: figures, and what tables are made of."""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import AGAIN, Arm
from acclimate.experiments.compare.cells import Cell
from acclimate.experiments.compare.promises_kept import Kept, promises_kept
from acclimate.experiments.compare.prompt_table import identical_shares, prompt_table
from acclimate.experiments.compare.ratios import CellRatios, Contrast
from acclimate.experiments.compare.rows import CellRow
from acclimate.experiments.compare.runs import pooled_run
from acclimate.experiments.figures import Figure
from acclimate.experiments.measures import measure
from acclimate.experiments.run_record import Run
from acclimate.experiments.statistics import holm


@dataclasses.dataclass(slots=True)
class CellFindings:
    """What one cell says.

    Parameters
    ----------
    processes
        The ratio of two processes without speculation, if there were two.
    runs
        By arm, rounds pooled.
    prompts, left_out
        Prompts compared, and those that some arm has no value for.
    speeds, drawn_speeds
        Shape (arms,) and (arms, draws): speeds of the sample and of the resamples.
    kept
        What became of promises, where something was promised.
    twin
        How far requests fell behind those of k0, beyond what k0 falls behind itself.
    """

    cell: Cell
    contrasts: list[Contrast]
    a_a: Figure
    processes: Figure | None
    best_static: str
    harmed: list[Figure]
    domains: list[Figure]
    runs: dict[str, Run]
    prompts: int
    left_out: int
    speeds: FloatArray
    drawn_speeds: FloatArray
    kept: Kept | None = None
    twin: list[Figure] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Findings:
    """What all cells say.

    Parameters
    ----------
    inferiority_p
        By arm, base and load: Holm-adjusted over the loads of that arm and base.
    identical
        By arm: share of answers that are those of k0, and how many there were.
    """

    rounds: int
    arms: tuple[Arm, ...]
    cells: list[CellFindings]
    inferiority_p: dict[tuple[str, str, str], float]
    identical: dict[str, tuple[float, int]]

    def figures(self) -> list[Figure]:
        """Return everything under its name."""
        found: list[Figure] = []
        for cell in self.cells:
            found += [contrast.figure for contrast in cell.contrasts]
            found += [cell.a_a, *cell.harmed, *cell.twin, *cell.domains]
            if cell.kept is not None:
                found += cell.kept.figures()
            if cell.processes is not None:
                found.append(cell.processes)
            if not cell.cell.domain:
                depth = next(arm.depth for arm in self.arms if arm.name == cell.best_static)
                found.append(Figure(f"best_static/depth/{cell.cell.load}", depth, unit="tokens"))
                for arm, run in cell.runs.items():
                    found += measure(run).figures(f"measures/{arm}/{cell.cell.load}")
        for (arm, base, load), p in self.inferiority_p.items():
            found.append(Figure(f"inferiority_p/{arm}/{base}/{load}", p))
        same = sum(share * count for share, count in self.identical.values())
        total = sum(count for _, count in self.identical.values())
        found.append(Figure("identical_tokens", same / total if total else None, n=total))
        for arm, (share, count) in self.identical.items():
            found.append(Figure(f"identical_tokens/{arm}", share, n=count))
        return found


def find(
    rows: Sequence[CellRow], arms: Sequence[Arm], *, max_depth: int, seed: int = 0
) -> Findings:
    """Analyse rows; a block that some arm did not run is passed over.

    Parameters
    ----------
    rows
        As a comparison wrote them, in order.
    arms
        That took part.
    max_depth
        The engine's depth.
    seed
        Of the bootstrap; every cell has a generator of its own.

    Raises
    ------
    ValueError
        No block was run by every arm.
    """
    kept = complete_cells(rows, [arm.name for arm in arms])
    if not kept:
        raise ValueError("rows must hold a block that every arm ran, got none")
    by_cell: dict[str, list[CellRow]] = defaultdict(list)
    for row in kept:
        by_cell[row.cell].append(row)
    single = {cell_of(name).load for name in by_cell if cell_of(name).domain}
    cells = []
    for index, (name, own) in enumerate(by_cell.items()):
        rng = np.random.default_rng((seed, index))
        made = _cell(cell_of(name), own, arms, max_depth, rng, single)
        if made is not None:
            cells.append(made)
    return Findings(
        rounds=len({row.round for row in kept}),
        arms=tuple(arms),
        cells=cells,
        inferiority_p=_adjusted([c for cell in cells for c in cell.contrasts]),
        identical=identical_shares(kept),
    )


def complete_cells(rows: Sequence[CellRow], arms: Sequence[str]) -> list[CellRow]:
    """Return the rows of those blocks that every arm ran; a killed run leaves one to some only."""
    ran: dict[tuple[int, str, int], set[str]] = defaultdict(set)
    for row in rows:
        ran[row.round, row.cell, row.block].add(row.arm)
    return [row for row in rows if ran[row.round, row.cell, row.block] >= set(arms)]


def cell_of(name: str) -> Cell:
    """Return the cell of a name.

    >>> cell_of("translation/c4") == Cell(concurrency=4, domain="translation")
    True
    >>> cell_of("c8x0.75") == Cell(concurrency=8, scale=0.75)
    True
    """
    domain, _, load = name.rpartition("/")
    found = re.fullmatch(r"(c|rate)([\d.]+)(?:x([\d.]+))?", load)
    if found is None:
        raise ValueError(f"cell must be named like c4 or rate0.6, got {name!r}")
    if found[1] == "c":
        scale = None if found[3] is None else float(found[3])
        return Cell(concurrency=int(found[2]), domain=domain, scale=scale)
    return Cell(rate=float(found[2]), domain=domain)


def _cell(
    cell: Cell,
    rows: list[CellRow],
    arms: Sequence[Arm],
    max_depth: int,
    rng: np.random.Generator,
    single: set[str],
) -> CellFindings | None:
    table = prompt_table(rows, [arm.name for arm in arms])
    if not table.prompts:
        return None
    ratios = CellRatios(cell, table, arms, rng)
    domains: list[Figure] = []
    if cell.concurrency is not None and not cell.domain and cell.load not in single:
        for arm in arms:
            if arm.depth is None or arm.name == AGAIN:
                domains += ratios.domains(arm.name)
    return CellFindings(
        cell=cell,
        contrasts=ratios.contrasts(),
        a_a=ratios.a_a(),
        processes=ratios.processes(),
        best_static=ratios.best_static,
        harmed=ratios.harmed(),
        domains=domains,
        runs={
            arm.name: pooled_run([row for row in rows if row.arm == arm.name], max_depth=max_depth)
            for arm in arms
        },
        prompts=len(table.prompts),
        left_out=table.left_out,
        speeds=ratios.speeds,
        drawn_speeds=ratios.drawn_speeds,
        kept=None if cell.scale is None else promises_kept(cell, rows, arms, rng),
        twin=[] if cell.domain else ratios.behind_twin(),
    )


def _adjusted(contrasts: Sequence[Contrast]) -> dict[tuple[str, str, str], float]:
    families: dict[tuple[str, str], list[Contrast]] = defaultdict(list)
    for contrast in contrasts:
        if contrast.p is not None:
            families[contrast.arm, contrast.base].append(contrast)
    return {
        (arm, base, contrast.cell.load): p
        for (arm, base), family in families.items()
        for contrast, p in zip(family, holm([c.p for c in family if c.p is not None]), strict=True)
    }
