"""``acclimate lab twin``: what it costs that nobody falls behind the engine without speculation."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from rich.table import Table

from acclimate.experiments.figures import (
    Figure,
    interval_text,
    number_text,
)
from acclimate.experiments.lab.cell_grid import run_missing
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.intervals import mean_over_seeds
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.tracking import Group
from acclimate.experiments.lab.twin_cell import (
    CURVES,
    MIXES,
    TwinArm,
    TwinCell,
    TwinRow,
    run_twin_cell,
)

_COMMAND = "lab twin"


def run_twin(
    *,
    seeds: int = 5,
    rounds: int = 4,
    run: LabRun = LabRun(),
) -> list[Figure]:
    """Run every guarantee on every curve and mix, paired with ``k0`` by seed, and show the cost.

    Parameters
    ----------
    seeds
        Runs of each curve and mix, counted on from the run's seed.
    rounds
        Answers per place in the batch.
    run
        Processes, folder, seed and the like.

    Raises
    ------
    ValueError
        The folder holds something else, or an option is out of range.
    RuntimeError
        Cells failed, or the run was stopped; what is done is kept.
    """
    numbers = run.seeds(seeds)
    if rounds < 1:
        raise ValueError(f"rounds must be >= 1, got {rounds}")
    cells = [
        TwinCell(curve=curve, mix=mix, seed=seed, rounds=rounds)
        for curve, mix, seed in itertools.product(CURVES, MIXES, numbers)
    ]
    settings = {"seeds": seeds, "rounds": rounds, "seed": run.seed}
    with run.open_store(_COMMAND, settings, TwinRow) as store:
        run_missing(run_twin_cell, store, cells, run.jobs)
        figures = twin_figures(store.rows, np.random.default_rng(run.seed))
        console = lab_console()
        console.print(_table(figures))
        conclude(store, figures, lambda: _groups(figures), console, run)
    return figures


def _groups(figures: Sequence[Figure]) -> list[Group]:
    """Return one nested run per curve."""
    return [
        Group(
            curve, {"curve": curve}, [f for f in figures if _curve_of(f) == curve],
            strip=f"twin/sim-{curve}/",
        )
        for curve in CURVES
    ]  # fmt: skip


def twin_figures(rows: Sequence[TwinRow], rng: np.random.Generator) -> list[Figure]:
    """Return lag, cost and speed of every guarantee, by curve.

    ``twin/sim-<curve>/<eta>/…`` is the guarantee per request, ``…/aggregate-<eta>/…`` that of the
    batch, ``…/off/…`` none. ``worst_lag`` is the mean over seeds of the largest lag of any request of
    any mix, behind its own ``k0`` run and beyond eight tokens, as a share; ``worst_lag_ever`` the
    largest of all, ``behind_share`` the share of requests beyond the guarantee (beyond none, 5 %).
    ``cost`` is the share of tokens per second that the guarantee takes, ``speedup`` what is left of
    them over ``k0``, both as means over mixes; ``<mix>/cost`` is that of one mix.
    """
    lags: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    costs: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    speeds: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    behind: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        free = row.arms[0].tokens_per_s
        for arm in row.arms:
            key, seed = (row.cell.curve, _name(arm)), row.cell.seed
            lags[key][seed].append(arm.worst_lag)
            costs[*key, row.cell.mix][seed] = 1.0 - arm.tokens_per_s / free
            speeds[key][seed].append(arm.tokens_per_s / row.k0_tokens_per_s)
            behind[key].append((arm.behind, arm.requests))
    figures = []
    for (curve, name), of_seed in lags.items():
        where, key = f"twin/sim-{curve}/{name}", (curve, name)
        worst = [max(values) for values in of_seed.values()]
        late, requests = np.sum(behind[key], axis=0).tolist()
        mixes = [mix for mix in MIXES if (curve, name, mix) in costs]
        mean_costs = [
            float(np.mean([costs[curve, name, mix][seed] for mix in mixes]))
            for seed in of_seed
            if all(seed in costs[curve, name, mix] for mix in mixes)
        ]
        mean_speeds = [float(np.mean(values)) for values in speeds[key].values()]
        figures += [
            mean_over_seeds(f"{where}/worst_lag", worst, rng),
            Figure(f"{where}/worst_lag_ever", max(worst), n=requests),
            Figure(f"{where}/behind_share", late / requests, n=requests),
            mean_over_seeds(f"{where}/cost", mean_costs, rng),
            mean_over_seeds(f"{where}/speedup", mean_speeds, rng),
        ]
        figures += [
            mean_over_seeds(f"{where}/{mix}/cost", list(costs[curve, name, mix].values()), rng)
            for mix in mixes
        ]
    return figures


def _name(arm: TwinArm) -> str:
    if arm.guarantee == "off":
        return "off"
    return f"{arm.eta:g}" if arm.guarantee == "per_request" else f"{arm.guarantee}-{arm.eta:g}"


def _curve_of(figure: Figure) -> str:
    return figure.name.split("/")[1].removeprefix("sim-")


def _table(figures: Sequence[Figure]) -> Table:
    """Return one line for each curve and guarantee."""
    table = Table(
        title="what a twin costs: lag of the slowest request behind its own k0 run, beyond eight "
        "tokens, and tokens/s"
    )
    columns = ("worst_lag", "worst_lag_ever", "behind_share", "cost", "speedup")
    for heading in ("curve", "guarantee"):
        table.add_column(heading)
    for heading in (*(c.replace("_", " ") for c in columns), *(f"cost, {mix}" for mix in MIXES)):
        table.add_column(heading, justify="right")
    lines: dict[tuple[str, str], dict[str, Figure]] = defaultdict(dict)
    for figure in figures:
        _, curve, name, what = figure.name.split("/", 3)
        lines[curve, name][what] = figure
    for (curve, name), found in lines.items():
        cells = [interval_text(found[c], ".3f") for c in columns]
        cells += [number_text(found.get(f"{mix}/cost"), ".3f") for mix in MIXES]
        table.add_row(curve, name, *cells)
    return table
