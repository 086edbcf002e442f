"""What the cells of ``lab sovereign`` say: speedup against headroom, harm, and the cluster."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from acclimate.experiments.figures import Figure, interval_text, number_text
from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.lab.harm import Harm, harm_of
from acclimate.experiments.lab.intervals import mean_over_seeds
from acclimate.experiments.lab.sovereign_cell import BASE, CURVES, SovereignRow
from acclimate.experiments.lab.sovereign_cluster import ClusterRow
from acclimate.experiments.lab.sovereign_targets import MOST_HARMED, judge
from acclimate.experiments.lab.targets import Target, target_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = SovereignRow | ClusterRow
ROWS = cast("type[Row]", Row)
"""What a results file of the experiment holds; each line says which of both it is."""

_PLAN = "plan:"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One arm at one headroom: its speed over that of ``k0``, paired by seed."""

    curve: str
    acceptance: float
    headroom: float
    requests: int
    arm: str
    speedup: Figure
    verified_per_request: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourPoint:
    """One arm on an engine that three tenants share.

    Parameters
    ----------
    harm
        Requests that it harmed, over all seeds, paired with the run without speculation.
    speedup
        Tokens per second over those of ``k0``.
    efficiency
        Tokens per second over those of the best plan that harms at most 0.5 % of requests.
    """

    curve: str
    arm: str
    harm: Harm
    speedup: Figure
    efficiency: Figure


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BestPlan:
    """The fixed depths by tenant that are fastest among those that harm hardly anybody."""

    curve: str
    plan: str
    tokens_per_s: Mapping[int, float]
    harmed: float
    tried: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPoint:
    """One arm under one router, on four engines in two regions."""

    router: str
    arm: str
    attainment: Figure
    goodput: Figure
    harm: Harm
    sent: tuple[float, ...]
    abroad: int
    mixed: int


@dataclasses.dataclass(frozen=True, slots=True)
class SovereignFindings:
    """What all cells say."""

    sweep: tuple[SweepPoint, ...]
    neighbours: tuple[NeighbourPoint, ...]
    plans: tuple[BestPlan, ...]
    cluster: tuple[ClusterPoint, ...]
    targets: tuple[Target, ...]

    @property
    def figures(self) -> list[Figure]:
        """Everything under its name."""
        judged = [target for target in self.targets if target.met is not None]
        met = sum(target.met is True for target in judged)
        found = [Figure("sovereign/targets_met", met, n=len(judged), unit="targets")]
        found += [point.speedup for point in self.sweep]
        for arm in dict.fromkeys(point.arm for point in self.neighbours):
            own = [point for point in self.neighbours if point.arm == arm]
            harm = Harm.total([point.harm for point in own])
            found.append(harm.figure(f"sovereign/{arm}/harmed_share"))
            known = [p.efficiency.value for p in own if p.efficiency.value is not None]
            if known:
                mean = float(np.mean(known))
                found.append(Figure(f"sovereign/{arm}/efficiency", mean, n=len(known)))
            for point in own:
                where = f"sovereign/{arm}/{point.curve}"
                found += [point.harm.figure(f"{where}/harmed_share"), point.efficiency]
                found.append(dataclasses.replace(point.speedup, name=f"{where}/speedup"))
        for at in self.cluster:
            where = f"sovereign/cluster/{at.router}/{at.arm}"
            found += [at.attainment, at.goodput, at.harm.figure(f"{where}/harmed_share")]
            found += [Figure(f"{where}/mixed", at.mixed), Figure(f"{where}/abroad", at.abroad)]
        return found

    def print(self, console: Console) -> None:
        """Show the sweep, the neighbours, the cluster and the targets."""
        for curve in dict.fromkeys(point.curve for point in self.sweep):
            console.print(self._sweep_table(curve))
        if self.neighbours:
            console.print(self._neighbour_table())
        if self.cluster:
            console.print(self._cluster_table())
        console.print(target_table("targets", self.targets))

    def _sweep_table(self, curve: str) -> Table:
        from rich.table import Table

        points = [point for point in self.sweep if point.curve == curve]
        rooms = sorted({(p.headroom, p.requests) for p in points}, reverse=True)
        table = Table(title=f"{curve}: speed over {BASE} by headroom (requests at all times)")
        for heading in ("arm", "acceptance"):
            table.add_column(heading)
        for headroom, requests in rooms:
            table.add_column(f"{headroom:g} ({requests})", justify="right")
        by = {(p.arm, p.acceptance, p.headroom): p for p in points}
        for acceptance in sorted({p.acceptance for p in points}):
            for arm in dict.fromkeys(p.arm for p in points):
                cells = [by.get((arm, acceptance, headroom)) for headroom, _ in rooms]
                shown = [number_text(p.speedup, ".3f") if p else "" for p in cells]
                table.add_row(arm, f"{acceptance:g}", *shown)
        return table

    def _neighbour_table(self) -> Table:
        from rich.table import Table

        table = Table(title="three tenants on one engine, paired with the run without speculation")
        for heading in ("curve", "arm", "harmed", "of those with a target", "speed / k0",
                        "speed / best plan"):  # fmt: skip
            table.add_column(heading, justify="left" if heading in ("curve", "arm") else "right")
        for p in self.neighbours:
            table.add_row(
                p.curve, p.arm, number_text(p.harm.share, ".2%"),
                number_text(p.harm.promised_share, ".2%"), interval_text(p.speedup, ".3f"),
                interval_text(p.efficiency, ".3f"),
            )  # fmt: skip
        for best in self.plans:
            table.add_row(
                best.curve, f"best of {best.tried} plans: {best.plan}", f"{best.harmed:.2%}",
                style="dim",
            )  # fmt: skip
        return table

    def _cluster_table(self) -> Table:
        from rich.table import Table

        table = Table(title="four engines in two regions")
        for heading in ("router", "arm", "attainment", "goodput, tok/s", "harmed", "sent to each",
                        "abroad", "mixed"):  # fmt: skip
            table.add_column(heading, justify="left" if heading in ("router", "arm") else "right")
        for p in self.cluster:
            table.add_row(
                p.router, p.arm, number_text(p.attainment, ".3f"), number_text(p.goodput, ".0f"),
                number_text(p.harm.share, ".2%"), " ".join(f"{n:.0f}" for n in p.sent),
                str(p.abroad), str(p.mixed),
            )  # fmt: skip
        return table


def find_sovereign(header: Header, rows: Sequence[Row]) -> SovereignFindings:
    """Analyse the rows of ``lab sovereign``, whatever of it is there.

    Raises
    ------
    ValueError
        There is no row of the arm without speculation to compare with.
    """
    rng = np.random.default_rng(int(header.settings["seed"]))
    own = [row for row in rows if isinstance(row, SovereignRow)]
    if not any(row.cell.arm == BASE for row in rows):
        raise ValueError(f"results must hold a cell of {BASE}, got none")
    sweep = tuple(_sweep([row for row in own if row.cell.acceptance], rng))
    beside = [row for row in own if not row.cell.acceptance]
    plans = tuple(_plans(beside))
    neighbours = tuple(_neighbours(beside, plans, rng))
    cluster = tuple(_cluster([row for row in rows if isinstance(row, ClusterRow)], rng))
    targets = tuple(judge(sweep, neighbours, cluster))
    return SovereignFindings(sweep, neighbours, plans, cluster, targets)


def _sweep(rows: Sequence[SovereignRow], rng: np.random.Generator) -> Iterator[SweepPoint]:
    cells: dict[tuple[str, float, float, str], dict[int, SovereignRow]] = defaultdict(dict)
    for row in rows:
        cell = row.cell
        cells[cell.curve, cell.acceptance, cell.headroom, cell.arm][cell.seed] = row
    for (curve, acceptance, headroom, arm), by_seed in cells.items():
        base = cells.get((curve, acceptance, headroom, BASE), {})
        seeds = sorted(by_seed.keys() & base.keys())
        if arm == BASE or not seeds:
            continue
        ratios = [by_seed[s].tokens_per_s / base[s].tokens_per_s for s in seeds]
        name = f"sovereign/{arm}/q{acceptance:g}/{curve}/headroom{headroom:g}/speedup"
        yield SweepPoint(
            curve=curve,
            acceptance=acceptance,
            headroom=headroom,
            requests=by_seed[seeds[0]].requests,
            arm=arm,
            speedup=mean_over_seeds(name, ratios, rng),
            verified_per_request=float(np.mean([by_seed[s].verified_per_request for s in seeds])),
        )


def _by_arm(rows: Sequence[SovereignRow], curve: str) -> dict[str, dict[int, SovereignRow]]:
    found: dict[str, dict[int, SovereignRow]] = defaultdict(dict)
    for row in rows:
        if row.cell.curve == curve:
            found[row.cell.arm][row.cell.seed] = row
    return found


def _harm(rows: Mapping[int, SovereignRow], base: Mapping[int, SovereignRow]) -> Harm:
    seeds = sorted(rows.keys() & base.keys())
    return Harm.total([harm_of(rows[seed].fates, base[seed].fates) for seed in seeds])


def _plans(rows: Sequence[SovereignRow]) -> Iterator[BestPlan]:
    """Yield the best plan of each curve; not to speculate at all is one of them."""
    for curve in CURVES:
        by_arm = _by_arm(rows, curve)
        base = by_arm.get(BASE, {})
        allowed = []
        plans = [arm for arm in by_arm if arm == BASE or arm.startswith(_PLAN)]
        for arm in plans:
            share = _harm(by_arm[arm], base).share
            if share is not None and share <= MOST_HARMED:
                speed = {seed: row.tokens_per_s for seed, row in by_arm[arm].items()}
                allowed.append((float(np.mean(list(speed.values()))), arm, speed, share))
        if allowed:
            _, arm, speed, share = max(allowed, key=lambda plan: plan[0])
            yield BestPlan(
                curve=curve, plan=arm, tokens_per_s=speed, harmed=share, tried=len(plans)
            )


def _neighbours(
    rows: Sequence[SovereignRow], plans: Sequence[BestPlan], rng: np.random.Generator
) -> Iterator[NeighbourPoint]:
    best_of = {best.curve: best.tokens_per_s for best in plans}
    for curve in CURVES:
        by_arm = _by_arm(rows, curve)
        base = by_arm.get(BASE, {})
        for arm, by_seed in by_arm.items():
            seeds = sorted(by_seed.keys() & base.keys())
            if arm == BASE or arm.startswith(_PLAN) or not seeds:
                continue
            speed = {seed: by_seed[seed].tokens_per_s for seed in seeds}
            best = best_of.get(curve, {})
            where = f"sovereign/{arm}/{curve}"
            yield NeighbourPoint(
                curve=curve,
                arm=arm,
                harm=_harm(by_seed, base),
                speedup=mean_over_seeds(
                    f"{where}/speedup", [speed[s] / base[s].tokens_per_s for s in seeds], rng
                ),
                efficiency=mean_over_seeds(
                    f"{where}/efficiency", [speed[s] / best[s] for s in seeds if s in best], rng
                ),
            )


def _cluster(rows: Sequence[ClusterRow], rng: np.random.Generator) -> Iterator[ClusterPoint]:
    cells: dict[tuple[str, str], dict[int, ClusterRow]] = defaultdict(dict)
    for row in rows:
        cells[row.cell.router, row.cell.arm][row.cell.seed] = row
    for (router, arm), by_seed in cells.items():
        base = cells.get((router, BASE), {})
        own = list(by_seed.values())
        where = f"sovereign/cluster/{router}/{arm}"
        yield ClusterPoint(
            router=router,
            arm=arm,
            attainment=mean_over_seeds(
                f"{where}/attainment",
                [float(np.mean(np.array(row.fates.met) == 1)) for row in own], rng,
            ),
            goodput=mean_over_seeds(
                f"{where}/goodput_tokens_per_s",
                [row.tokens_met / row.window_s for row in own], rng, "tok/s",
            ),
            harm=Harm.total(
                [harm_of(row.fates, base[s].fates) for s, row in by_seed.items() if s in base]
            ),
            sent=tuple(np.mean([row.sent for row in own], axis=0).tolist()),
            abroad=sum(row.abroad for row in own),
            mixed=sum(row.mixed for row in own),
        )  # fmt: skip
