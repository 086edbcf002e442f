"""``acclimate simulate``: policies side by side on a simulated engine, from anybody's tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from acclimate.experiments.figures import (
    UNKNOWN,
    Figure,
    Meta,
    median_interval,
    number_text,
    ratio_interval,
    write_figures,
)
from acclimate.experiments.measures import Measures, measure
from acclimate.experiments.own_tables import OwnTables
from acclimate.experiments.simulation.scenario import Scenario, scenario_names
from acclimate.experiments.simulation.scenario_sections import ClosedArrivals, EngineSection
from acclimate.experiments.simulation.stage import run_scenario

_BASE = "k0"
_YARDSTICKS = ("adaptive", "oracle")
_SHOWN_DEPTHS = 9
_WIDTH = 132


def run_simulate(
    scenario: str | None,
    own: OwnTables | None,
    *,
    policies: Sequence[str] = (),
    concurrency: Sequence[int] = (),
    seeds: int = 3,
    seed: int | None = None,
    json: Path | None = None,
) -> list[Figure]:
    """Run every policy through every case and seed; show one table per case, write if asked.

    All policies meet the same requests and the same luck. Ratios are of tokens per second to
    ``k0``, paired by seed; above 1 is better.

    Parameters
    ----------
    scenario
        A TOML file or a name; None with ``own``.
    own
        A user's tables; None with ``scenario``.
    policies
        Arms; by default fixed depths, ours and the oracle. ``k0`` always runs.
    concurrency
        Of a closed-loop scenario, instead of its own.
    seeds
        Runs per policy and case; seeds count on from ``seed``.

    Raises
    ------
    ValueError
        The input cannot be used; the message says what would do.
    """
    notes: list[str] = []
    if own is not None:
        if scenario is not None:
            raise ValueError("a scenario must come without --latency, got both")
        cases, notes = own.scenarios(), own.notes()
    elif scenario is not None:
        cases = _cases(Scenario.read(scenario), concurrency)
    else:
        raise ValueError(
            "give a scenario, or --latency FILE with --survival; scenarios: "
            + ", ".join(scenario_names())
        )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    figures: list[Figure] = []
    first_seed = next(iter(cases.values())).seed if seed is None else seed
    for name, case in cases.items():
        arms = _arms(policies, case.engine)
        measured = _measure_arms(case, arms, range(first_seed, first_seed + seeds))
        rng = np.random.default_rng(first_seed)
        ratios = {
            arm: ratio_interval(f"ratio/{arm}/{_BASE}/{name}", _speeds(m), _speeds(base), rng)
            for base in [measured[_BASE]]
            for arm, m in measured.items()
        }
        console.print(_table(case, measured, ratios))
        figures += [*ratios.values(), *_metric_figures(name, measured, rng)]
    if seeds < 3:
        notes.append("intervals need at least three seeds; see --seeds")
    for note in notes:
        console.print(f"note: {note}", style="dim", highlight=False)
    if json is not None:
        command = f"simulate {own.latency.name if own else scenario}"
        write_figures(json, figures, Meta(command, engine="simulated", seed=first_seed))
    return figures


def show_scenarios() -> None:
    """List this package's scenarios."""
    table = Table("scenario", "what happens", "note", title="scenarios")
    for name in scenario_names():
        scenario = Scenario.read(name)
        table.add_row(name, scenario.title, scenario.note)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _cases(scenario: Scenario, concurrency: Sequence[int]) -> dict[str, Scenario]:
    arrivals = scenario.arrivals
    if not isinstance(arrivals, ClosedArrivals):
        if concurrency:
            raise ValueError(
                f"--batch must come with a closed loop, got arrivals of kind {arrivals.kind!r}"
            )
        return {"open": scenario}
    cases = {}
    for batch in concurrency or (arrivals.concurrency,):
        closed = arrivals.model_copy(
            update={"concurrency": batch, "requests": max(arrivals.requests, 4 * batch)}
        )
        cases[f"c{batch}"] = scenario.model_copy(update={"arrivals": closed})
    return cases


def _arms(policies: Sequence[str], engine: EngineSection) -> list[str]:
    chosen = list(policies)
    if not chosen:
        fixed = list(engine.depths or range(engine.max_depth + 1))
        if len(fixed) > _SHOWN_DEPTHS:
            fixed = sorted({*(2**i for i in range(7) if 2**i < fixed[-1]), fixed[-1]})
        chosen = [*(f"k{k}" for k in fixed), *_YARDSTICKS]
    return list(dict.fromkeys([_BASE, *chosen]))


def _measure_arms(case: Scenario, arms: Iterable[str], seeds: range) -> dict[str, list[Measures]]:
    runs = [(arm, seed) for arm in arms for seed in seeds]
    measured: dict[str, list[Measures]] = {}
    console = Console(stderr=True)
    shown = track(
        runs, case.title, console=console, transient=True, disable=not console.is_terminal
    )
    for arm, seed in shown:
        run = run_scenario(case, arm, seed=seed, keep_steps=False)
        measured.setdefault(arm, []).append(measure(run))
    return measured


def _table(case: Scenario, measured: dict[str, list[Measures]], ratios: dict[str, Figure]) -> Table:
    arrivals = case.arrivals
    load = (
        f"{arrivals.concurrency} requests at all times"
        if isinstance(arrivals, ClosedArrivals)
        else f"arrivals: {arrivals.kind}"
    )
    table = Table(title=f"{case.title}: {load}")
    for heading in (
        "policy",
        "tokens/s",
        f"ratio to {_BASE}",
        "TTFT p50/p99 ms",
        "TPOT p50/p99 ms",
        "tokens/step",
        "wasted",
        "switches",
        "share of steps per depth",
    ):
        left = heading in ("policy", "share of steps per depth")
        table.add_column(heading, justify="left" if left else "right", overflow="fold")
    best = max(ratio.value or 0.0 for arm, ratio in ratios.items() if arm != "oracle")
    for arm, found in measured.items():
        ratio = ratios[arm]
        table.add_row(
            arm,
            _middle(found, "tokens_per_s", ".0f"),
            ratio.text,
            f"{_middle(found, 'ttft_p50_ms')} / {_middle(found, 'ttft_p99_ms')}",
            f"{_middle(found, 'tpot_p50_ms', '.2f')} / {_middle(found, 'tpot_p99_ms', '.2f')}",
            _middle(found, "acceptance_length", ".2f"),
            _middle(found, "wasted_verify_share", ".0%"),
            _middle(found, "switches", ".0f"),
            _shares(found),
            style="bold" if ratio.value == best else None,
        )
    return table


def _shares(found: Sequence[Measures]) -> str:
    known = [m.depth_shares for m in found if m.depth_shares]
    if not known:
        return UNKNOWN
    shares = np.mean(known, axis=0).tolist()
    return " ".join(f"{k}:{share:.0%}" for k, share in enumerate(shares) if share >= 0.005)


def _speeds(found: Sequence[Measures]) -> list[float]:
    return [np.nan if m.tokens_per_s is None else m.tokens_per_s for m in found]


def _middle(found: Sequence[Measures], name: str, spec: str = ".1f") -> str:
    values = [value for m in found if (value := getattr(m, name)) is not None]
    return number_text(float(np.median(values)) if values else None, spec)


def _metric_figures(
    case: str, measured: dict[str, list[Measures]], rng: np.random.Generator
) -> list[Figure]:
    figures = []
    for arm, found in measured.items():
        per_seed = [m.figures(f"simulate/{arm}") for m in found]
        for same in zip(*per_seed, strict=False):
            values: list[Any] = [figure.value for figure in same if figure.value is not None]
            figures.append(median_interval(f"{same[0].name}/{case}", values, rng, same[0].unit))
    return figures
