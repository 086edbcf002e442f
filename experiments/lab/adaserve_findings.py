"""What the cells of ``lab adaserve`` say: attainment and goodput against load, and the targets."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from acclimate.experiments.figures import Figure, number_text
from acclimate.experiments.lab.adaserve_cell import ARMS, SETTINGS, AdaServeRow
from acclimate.experiments.lab.adaserve_targets import judge
from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.lab.intervals import mean_over_seeds
from acclimate.experiments.lab.targets import Target, target_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

OURS = "adaptive"
PEERS = ("adaserve", "adaserve_ascending")
"""AdaServe in the order of its paper, which the targets are about, and of its code."""

_METRICS = ("attainment", "violations", "goodput_tokens_per_s")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One arm at one load in one setting, means over seeds.

    Parameters
    ----------
    attainment, violations
        Shares of the judged requests that met all their targets, and that did not.
    goodput
        Output tokens of those that did, per second of arrivals.
    classes
        Attainment per class.
    """

    setting: str
    arm: str
    rate_per_s: float
    attainment: Figure
    violations: Figure
    goodput: Figure
    classes: tuple[Figure, ...]

    @property
    def figures(self) -> list[Figure]:
        """Everything under its name."""
        return [self.attainment, self.violations, self.goodput, *self.classes]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Ours against AdaServe at one load in one setting, paired by seed.

    Parameters
    ----------
    peer
        One of `PEERS`.
    peer_attainment, peer_violations
        AdaServe's, means over seeds.
    attainment_ratio, violations_ratio, goodput_ratio
        Ours over AdaServe's; of violations None where AdaServe has none.
    """

    setting: str
    peer: str
    rate_per_s: float
    peer_attainment: float
    peer_violations: float
    attainment_ratio: Figure
    violations_ratio: Figure
    goodput_ratio: Figure

    @property
    def figures(self) -> list[Figure]:
        """Everything under its name."""
        return [self.attainment_ratio, self.violations_ratio, self.goodput_ratio]


@dataclasses.dataclass(frozen=True, slots=True)
class AdaServeFindings:
    """What all cells say."""

    points: tuple[LoadPoint, ...]
    contests: tuple[Contest, ...]
    targets: tuple[Target, ...]

    @property
    def settings(self) -> tuple[str, ...]:
        """Settings that were run, the named ones first."""
        found = dict.fromkeys(point.setting for point in self.points)
        return tuple(sorted(found, key=_place))

    @property
    def figures(self) -> list[Figure]:
        """Everything under its name."""
        judged = [target for target in self.targets if target.met is not None]
        met = sum(target.met is True for target in judged)
        found = [Figure("adaserve/targets_met", met, n=len(judged), unit="targets")]
        for point in self.points:
            found += point.figures
        for contest in self.contests:
            found += contest.figures
        return found

    def of(self, setting: str, arm: str) -> list[LoadPoint]:
        """Return an arm's points in a setting, by load."""
        return [p for p in self.points if (p.setting, p.arm) == (setting, arm)]

    def print(self, console: Console) -> None:
        """Show every setting, ours against AdaServe, and the targets."""
        for setting in self.settings:
            console.print(self._table(setting))
        console.print(self._contest_table())
        console.print(target_table("targets", self.targets))

    def _table(self, setting: str) -> Table:
        from rich.table import Table

        points = [point for point in self.points if point.setting == setting]
        rates = sorted({point.rate_per_s for point in points})
        table = Table(title=f"{setting}: attainment, and goodput in tokens/s, by requests/s")
        table.add_column("arm")
        for rate in rates:
            table.add_column(f"{rate:g}", justify="right")
        for arm in dict.fromkeys(point.arm for point in points):
            by_rate = {point.rate_per_s: point for point in self.of(setting, arm)}
            cells = [
                f"{number_text(by_rate[rate].attainment, '.3f')}  "
                f"{number_text(by_rate[rate].goodput, '.0f'):>5}"
                if rate in by_rate else ""
                for rate in rates
            ]  # fmt: skip
            table.add_row(arm, *cells, style="bold" if arm == OURS else None)
        return table

    def _contest_table(self) -> Table:
        from rich.table import Table

        table = Table(title=f"{OURS} over AdaServe, paired by seed")
        for heading in ("setting", "over", "requests/s", "its attainment", "attainment",
                        "violations", "goodput"):  # fmt: skip
            table.add_column(heading, justify="left" if heading in ("setting", "over") else "right")
        for c in self.contests:
            table.add_row(
                c.setting, c.peer, f"{c.rate_per_s:g}", f"{c.peer_attainment:.3f}",
                number_text(c.attainment_ratio, ".3f"), number_text(c.violations_ratio, ".2f"),
                number_text(c.goodput_ratio, ".3f"),
            )  # fmt: skip
        return table


def find_adaserve(header: Header, rows: Sequence[AdaServeRow]) -> AdaServeFindings:
    """Analyse the rows of ``lab adaserve``, whatever of it is there.

    Raises
    ------
    ValueError
        There are no rows.
    """
    if not rows:
        raise ValueError("results must hold a cell, got none")
    rng = np.random.default_rng(int(header.settings["seed"]))
    cells: dict[tuple[str, str, float], dict[int, AdaServeRow]] = defaultdict(dict)
    for row in rows:
        cells[row.cell.setting, row.cell.arm, row.cell.rate_per_s][row.cell.seed] = row
    keys = sorted(cells, key=lambda key: (_place(key[0]), _arm_place(key[1]), key[2]))
    points = tuple(_point(*key, list(cells[key].values()), rng) for key in keys)
    contests = tuple(_contests(cells, keys, rng))
    return AdaServeFindings(points, contests, tuple(judge(points, contests)))


def _point(
    setting: str, arm: str, rate: float, rows: Sequence[AdaServeRow], rng: np.random.Generator
) -> LoadPoint:
    where = f"adaserve/{setting}/{arm}/rps{rate:g}"
    means = [
        mean_over_seeds(
            f"{where}/{name}", [getattr(row, name) for row in rows], rng,
            "tok/s" if name.endswith("_per_s") else "",
        )
        for name in _METRICS
    ]  # fmt: skip
    names = [each.name for each in rows[0].classes]
    classes = []
    for index, name in enumerate(names):
        counts = [row.classes[index] for row in rows]
        shares = [count.met / count.requests for count in counts if count.requests]
        classes.append(mean_over_seeds(f"{where}/{name}/attainment", shares, rng))
    return LoadPoint(
        setting=setting,
        arm=arm,
        rate_per_s=rate,
        attainment=means[0],
        violations=means[1],
        goodput=means[2],
        classes=tuple(classes),
    )


def _contests(
    cells: Mapping[tuple[str, str, float], Mapping[int, AdaServeRow]],
    keys: Sequence[tuple[str, str, float]],
    rng: np.random.Generator,
) -> Iterator[Contest]:
    for (setting, arm, rate), name in itertools.product(keys, PEERS):
        ours, peer = cells[setting, arm, rate], cells.get((setting, name, rate), {})
        seeds = sorted(ours.keys() & peer.keys())
        if arm != OURS or not seeds:
            continue
        where = f"adaserve/{setting}/over_{name}/rps{rate:g}"
        yield Contest(
            setting=setting,
            peer=name,
            rate_per_s=rate,
            peer_attainment=float(np.mean([peer[seed].attainment for seed in seeds])),
            peer_violations=float(np.mean([peer[seed].violations for seed in seeds])),
            attainment_ratio=_ratio(f"{where}/attainment_ratio", ours, peer, seeds, "attainment"),
            violations_ratio=_ratio(f"{where}/violations_ratio", ours, peer, seeds, "violations"),
            goodput_ratio=_ratio(
                f"{where}/goodput_ratio", ours, peer, seeds, "goodput_tokens_per_s", rng
            ),
        )


def _ratio(
    name: str,
    ours: Mapping[int, AdaServeRow],
    peer: Mapping[int, AdaServeRow],
    seeds: Sequence[int],
    metric: str,
    rng: np.random.Generator | None = None,
) -> Figure:
    """Return the ratio of means over seeds, which a seed without violations does not upset."""
    above = np.array([getattr(ours[seed], metric) for seed in seeds])
    below = np.array([getattr(peer[seed], metric) for seed in seeds])
    if not below.sum():
        return Figure(name, None, n=len(seeds))
    value = float(above.sum() / below.sum())
    if rng is None or len(seeds) < 3 or not below.all():
        return Figure(name, value, n=len(seeds))
    each = mean_over_seeds(name, (above / below).tolist(), rng)
    return Figure(name, value, each.low, each.high, n=len(seeds))


def _place(setting: str) -> tuple[int, float]:
    name, _, size = setting.partition("_x")
    return (SETTINGS.index(name) + len(SETTINGS) * bool(size), float(size or 1.0))


def _arm_place(arm: str) -> int:
    return ARMS.index(arm) if arm in ARMS else len(ARMS)
