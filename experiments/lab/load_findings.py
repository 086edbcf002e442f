"""What the cells of ``lab load`` say: efficiency of the chosen depth, gain, switches."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from acclimate.experiments.figures import Figure, interval_text
from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.lab.intervals import mean_over_seeds
from acclimate.experiments.lab.load_cell import (
    BATCHES,
    BOUNDARIES,
    DEPTHS,
    SURVIVALS,
    LoadRow,
    true_speeds,
)

if TYPE_CHECKING:
    from rich.console import Console

LEAST_EFFICIENCY = 0.98
LEAST_WHERE_LITTLE = 0.95  # the whole gain is below 7 %
LITTLE_GAIN = 1.07
MOST_SWITCHES_PER_MIN = 12.0
"""More often than every five seconds is a storm, where the dwell is half a second."""

_BASE = "k0"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadFinding:
    """One row and batch of the table, with or without noise.

    Parameters
    ----------
    best, gain
        The depth of the largest true speed, and that speed over depth 0's.
    chosen
        Per seed, the depth of most steps.
    efficiency
        True speed of the chosen depths over the best, mean over seeds.
    worst
        The same of the worst seed.
    ratio
        Speed over that of ``k0``, paired by seed.
    """

    survival: str
    batch: int
    noisy: bool
    best: int
    gain: float
    chosen: tuple[int, ...]
    efficiency: Figure
    worst: float
    ratio: Figure

    @property
    def target(self) -> float:
        """What every seed must reach."""
        if not self.noisy:
            return 1.0
        return LEAST_EFFICIENCY if self.gain >= LITTLE_GAIN else LEAST_WHERE_LITTLE

    @property
    def met(self) -> bool:
        """Whether every seed reached the target."""
        return self.worst >= self.target - 1e-9

    @property
    def not_below_base(self) -> bool:
        """Whether the lower bound of the gain over ``k0`` is at least 1, to a thousandth."""
        low = self.ratio.value if self.ratio.low is None else self.ratio.low
        return low is not None and low >= 0.9995


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryFinding:
    """A load that swings between 4 and 5 requests, with a cliff between.

    Parameters
    ----------
    switches_per_min
        Changes of the depth after the warm-up.
    ratio
        Speed over that of the best fixed depth, paired by seed; and which depth that is.
    """

    boundary: str
    noisy: bool
    switches_per_min: Figure
    ratio: Figure
    best: str
    shares: tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class LoadFindings:
    """What all cells say."""

    arm: str
    seeds: int
    cells: tuple[LoadFinding, ...]
    boundaries: tuple[BoundaryFinding, ...]

    @property
    def figures(self) -> list[Figure]:
        """Everything under its name."""
        found: list[Figure] = []
        for noisy, what in ((True, "with noise"), (False, "exact")):
            cells = [cell for cell in self.cells if cell.noisy is noisy]
            met = sum(cell.met for cell in cells)
            name = "load/cells_met" if noisy else "load/cells_met_exact"
            found.append(Figure(name, met, n=len(cells), unit=f"cells {what}"))
        for cell in self.cells:
            found += [cell.efficiency, cell.ratio]
        for boundary in self.boundaries:
            found += [boundary.switches_per_min, boundary.ratio]
        return found

    def print(self, console: Console) -> None:
        """Show both tables, and in a sentence each what was not reached."""
        console.print(self._table())
        console.print(self._boundary_table())
        for line in self.verdicts():
            console.print(f"• {line}", highlight=False, soft_wrap=True)

    def verdicts(self) -> list[str]:
        """Return what was reached and what not, one sentence each."""
        lines = []
        for noisy, goal in (
            (False, "without noise the chosen depth is the best"),
            (True, "with noise it reaches 98 % of the best, 95 % where the gain is below 7 %"),
        ):
            cells = [cell for cell in self.cells if cell.noisy is noisy]
            missed = [cell for cell in cells if not cell.met]
            told = ", ".join(
                f"{c.survival} at {c.batch} ({_depths(c.chosen)} for {c.best}: {c.worst:.3f})"
                for c in missed
            )
            lines.append(
                f"{goal}, in every seed: {len(cells) - len(missed)} of {len(cells)} cells"
                + (f"; not in {told}" if told else "")
            )
        below = [
            f"{c.survival} at {c.batch}{' with noise' if c.noisy else ''} ({c.ratio.text})"
            for c in self.cells
            if not c.not_below_base
        ]
        lines.append(
            "the lower bound of the gain is nowhere below k0" if not below
            else f"the lower bound of the gain is below k0 in {', '.join(below)}"
        )  # fmt: skip
        stormy = [
            f"{b.boundary}{' with noise' if b.noisy else ''} ({b.switches_per_min.text})"
            for b in self.boundaries
            if (b.switches_per_min.value or 0.0) > MOST_SWITCHES_PER_MIN
        ]
        lines.append(
            f"no switch storm between 4 and 5 requests (at most {MOST_SWITCHES_PER_MIN:.0f} a "
            "minute)" if not stormy else f"a switch storm: {', '.join(stormy)}"
        )  # fmt: skip
        return lines

    def _table(self) -> object:
        from rich.table import Table

        table = Table(
            title=f"{self.arm} on the published table: depth chosen against the best, of the worst "
            f"of {self.seeds} seeds; ! misses the target"
        )
        for heading in ("survival", "batch", "best", "gain"):
            table.add_column(heading, justify="right")
        for heading in ("exact: chosen", "share", "speed / k0", "noisy: chosen", "share",
                        "speed / k0"):  # fmt: skip
            table.add_column(heading, justify="right", no_wrap=True)
        pairs: dict[tuple[str, int], list[LoadFinding]] = defaultdict(list)
        for cell in self.cells:
            pairs[cell.survival, cell.batch].append(cell)
        for (survival, batch), both in pairs.items():
            cells = [survival, str(batch), str(both[0].best), f"{both[0].gain:.2f}"]
            for cell in both:
                mark = "" if cell.met else " !"
                share = f"{cell.worst:.3f}{mark}"
                cells += [_depths(cell.chosen), share, interval_text(cell.ratio, ".2f")]
            table.add_row(*cells)
        return table

    def _boundary_table(self) -> object:
        from rich.table import Table

        table = Table(title="between 4 and 5 requests, with a cliff between")
        for heading in ("what swings", "noise", "switches/min", "best fixed depth",
                        "speed / best fixed", "share of steps per depth"):  # fmt: skip
            table.add_column(heading)
        for b in self.boundaries:
            shares = " ".join(f"{k}:{s:.0%}" for k, s in enumerate(b.shares) if s >= 0.005)
            table.add_row(
                b.boundary, "yes" if b.noisy else "no",
                interval_text(b.switches_per_min, ".1f"), b.best,
                interval_text(b.ratio, ".3f"), shares,
            )  # fmt: skip
        return table


def find_load(header: Header, rows: Sequence[LoadRow]) -> LoadFindings:
    """Analyse the rows of ``lab load``, whatever of it is there.

    Raises
    ------
    ValueError
        There is no cell that the examined arm and ``k0`` both ran.
    """
    arm = str(header.settings["arm"])
    by_cell: dict[tuple[str, str, int, bool], dict[str, dict[int, LoadRow]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        cell = row.cell
        by_cell[cell.boundary, cell.survival, cell.batch, cell.noisy][cell.arm][cell.seed] = row
    rng = np.random.default_rng(int(header.settings["seed"]))
    cells = [
        _cell(survival, batch, noisy, by_cell["", survival, batch, noisy], arm, rng)
        for survival in SURVIVALS
        for batch in BATCHES
        for noisy in (False, True)
        if _paired(by_cell["", survival, batch, noisy], arm, _BASE)
    ]
    boundaries = [
        _boundary(kind, noisy, by_cell[kind, "", 0, noisy], arm, rng)
        for kind in BOUNDARIES
        for noisy in (False, True)
        if _paired(by_cell[kind, "", 0, noisy], arm, _BASE)
    ]
    if not cells:
        raise ValueError(f"results must hold a cell that {arm} and {_BASE} both ran, got none")
    seeds = int(header.settings["seeds"])
    return LoadFindings(arm, seeds, tuple(cells), tuple(boundaries))


def _cell(
    survival: str,
    batch: int,
    noisy: bool,
    by_arm: dict[str, dict[int, LoadRow]],
    arm: str,
    rng: np.random.Generator,
) -> LoadFinding:
    speeds = true_speeds(survival, batch)
    seeds = _paired(by_arm, arm, _BASE)
    chosen = tuple(by_arm[arm][seed].depth for seed in seeds)
    shares = [float(speeds[DEPTHS.index(depth)] / speeds.max()) for depth in chosen]
    where, end = f"load/{survival}/{batch}", "" if noisy else "_exact"
    return LoadFinding(
        survival=survival,
        batch=batch,
        noisy=noisy,
        best=DEPTHS[int(speeds.argmax())],
        gain=float(speeds.max() / speeds[0]),
        chosen=chosen,
        efficiency=mean_over_seeds(f"{where}/efficiency{end}", shares, rng),
        worst=min(shares),
        ratio=_ratio(f"{where}/ratio{end}/{_BASE}", by_arm, arm, _BASE, rng),
    )


def _boundary(
    kind: str,
    noisy: bool,
    by_arm: dict[str, dict[int, LoadRow]],
    arm: str,
    rng: np.random.Generator,
) -> BoundaryFinding:
    own = list(by_arm[arm].values())
    fixed = [name for name in by_arm if name != arm and _paired(by_arm, arm, name)]
    best = max(fixed, key=lambda name: np.mean([r.tokens_per_s for r in by_arm[name].values()]))
    where, end = f"load/boundary/{kind}", "" if noisy else "_exact"
    per_min = [60.0 * row.switches / row.seconds for row in own]
    return BoundaryFinding(
        boundary=kind,
        noisy=noisy,
        switches_per_min=mean_over_seeds(f"{where}/switches_per_min{end}", per_min, rng),
        ratio=_ratio(f"{where}/ratio{end}/best_static", by_arm, arm, best, rng),
        best=best,
        shares=tuple(np.mean([row.shares for row in own], axis=0).tolist()),
    )


def _ratio(
    name: str,
    by_arm: dict[str, dict[int, LoadRow]],
    arm: str,
    base: str,
    rng: np.random.Generator,
) -> Figure:
    ratios = [
        by_arm[arm][seed].tokens_per_s / by_arm[base][seed].tokens_per_s
        for seed in _paired(by_arm, arm, base)
    ]
    return mean_over_seeds(name, ratios, rng)


def _paired(by_arm: dict[str, dict[int, LoadRow]], arm: str, base: str) -> list[int]:
    return sorted(by_arm[arm].keys() & by_arm[base].keys())


def _depths(chosen: Sequence[int]) -> str:
    """Return chosen depths, the most frequent first.

    >>> _depths((3, 1, 3))
    '3 (2), 1 (1)'
    """
    if len(set(chosen)) == 1:
        return str(chosen[0])
    counts = sorted(((chosen.count(k), -k) for k in set(chosen)), reverse=True)
    return ", ".join(f"{-k} ({count})" for count, k in counts)
