"""What a comparison says of the drafter that all its arms share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.experiments.compare.arms import ADAPTIVE, BASE
from acclimate.experiments.compare.findings import CellFindings, Findings
from acclimate.experiments.compare.ratios import BEST
from acclimate.experiments.compare.rows import CellRow
from acclimate.experiments.compare.worker import DRAFT_CALLS, DRAFT_NS
from acclimate.experiments.figures import Figure
from acclimate.experiments.statistics import interval


def drafter_figures(name: str, found: Findings, rows: Sequence[CellRow]) -> list[Figure]:
    """Return what drafting cost, and what the adaptive arm made of it.

    Parameters
    ----------
    name
        The drafter's.
    found, rows
        Of the comparison.

    Returns
    -------
    list
        ``drafter/<name>/ms_per_step``, over the steps of all arms but k0; the adaptive arm's ratio
        to k0 and to the best fixed depth at each concurrency; and to the best single depth over all
        concurrencies, where a ratio over several is the geometric mean.
    """
    figures = [_milliseconds(name, rows)]
    closed = [cell for cell in found.cells if cell.cell.concurrency and not cell.cell.domain]
    for cell in closed:
        for contrast in cell.contrasts:
            if contrast.arm == ADAPTIVE and contrast.base in (BASE, BEST):
                said = contrast.figure
                figures.append(
                    Figure(
                        f"drafter/{name}/ratio/{ADAPTIVE}/{contrast.base}/{cell.cell.load}",
                        said.value, said.low, said.high, n=said.n,
                    )
                )  # fmt: skip
    mix = _mix(name, found, closed)
    return figures if mix is None else [*figures, mix]


def _milliseconds(name: str, rows: Sequence[CellRow]) -> Figure:
    drafted = [row.status for row in rows if DRAFT_CALLS in row.status and row.arm != BASE]
    calls = sum(status[DRAFT_CALLS] for status in drafted)
    total_ns = sum(status[DRAFT_NS] for status in drafted)
    value = total_ns / calls / 1e6 if calls else None
    return Figure(f"drafter/{name}/ms_per_step", value, unit="ms", n=calls)


def _mix(name: str, found: Findings, cells: Sequence[CellFindings]) -> Figure | None:
    """Return the adaptive arm's speed over that of the one depth that is best over all loads."""
    names = [arm.name for arm in found.arms]
    fixed = [row for row, arm in enumerate(found.arms) if arm.static]
    if not cells or ADAPTIVE not in names or not fixed:
        return None
    ours = names.index(ADAPTIVE)
    mean = np.mean([np.log(cell.speeds) for cell in cells], axis=0)
    draws = np.mean([np.log(cell.drawn_speeds) for cell in cells], axis=0)
    ratio = float(np.exp(mean[ours] - mean[fixed].max()))
    # The depth is chosen inside each draw, as it is per cell.
    drawn = np.exp(draws[ours] - draws[fixed].max(axis=0))
    prompts = min(cell.prompts for cell in cells)
    return interval(f"drafter/{name}/ratio/{ADAPTIVE}/{BEST}", ratio, drawn, prompts)
