"""``acclimate lab adaserve``: who keeps promises per token when acceptance shifts, and at what load?"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

from acclimate.experiments.lab.adaserve_cell import (
    ARMS,
    BUDGET_TOKENS,
    SETTINGS,
    SPEC_OVERHEAD_MS,
    AdaServeCell,
    AdaServeRow,
    adaserve_scenario,
    run_adaserve_cell,
)
from acclimate.experiments.lab.adaserve_findings import AdaServeFindings, find_adaserve
from acclimate.experiments.lab.cell_grid import run_missing
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.scenario_digest import about_scenario
from acclimate.experiments.lab.tracking import Group

RATES_PER_S = (2.6, 3.3, 4.1, 4.8)
"""Requests per second over the published range."""

SWEEP = (0.5, 2.0)
SWEEP_ARMS = ("adaserve", "adaserve_true", "adaptive")

_COMMAND = "lab adaserve"


def run_adaserve(
    *,
    settings: Sequence[str] = (),
    arms: Sequence[str] = (),
    rates_per_s: Sequence[float] = RATES_PER_S,
    budget_tokens: int = BUDGET_TOKENS,
    spec_overhead_ms: float = SPEC_OVERHEAD_MS,
    seeds: int = 3,
    duration_s: float | None = None,
    run: LabRun = LabRun(),
) -> AdaServeFindings:
    """Run every arm in every setting at every load, and judge the targets.

    Parameters
    ----------
    settings
        Some of `adaserve_cell.SETTINGS` or ``calibration_x<s>``; by default all of the former, and
        the sizes of `SWEEP` with the arms of `SWEEP_ARMS` alone.
    arms
        Some of `adaserve_cell.ARMS`, or other arms by name; default: the former.
    rates_per_s
        Loads, requests per second on average.
    budget_tokens
        What AdaServe may verify in a step.
    spec_overhead_ms
        What a step of the published vLLM-Spec takes beyond its parts.
    seeds
        Runs of each cell, counted on from the run's seed.
    duration_s
        Until when requests arrive; default: as the scenarios say.
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
    if not rates_per_s or min(rates_per_s) <= 0:
        raise ValueError(f"rates must be > 0, got {list(rates_per_s)}")
    pairs = [(setting, arm) for setting in settings or SETTINGS for arm in arms or ARMS]
    if not settings:
        pairs += [
            (f"calibration_x{size:g}", arm)
            for size in SWEEP
            for arm in SWEEP_ARMS
            if not arms or arm in arms
        ]
    cells = [
        AdaServeCell(
            setting=setting,
            arm=arm,
            rate_per_s=rate,
            seed=each,
            budget_tokens=budget_tokens,
            spec_overhead_ms=spec_overhead_ms,
            duration_s=duration_s,
        )
        for (setting, arm), rate, each in itertools.product(pairs, rates_per_s, numbers)
    ]
    scenarios = {cell.setting: adaserve_scenario(cell) for cell in cells}
    header = {
        "settings": list(scenarios), "arms": list(dict.fromkeys(arm for _, arm in pairs)),
        "rates_per_s": list(rates_per_s), "budget_tokens": budget_tokens,
        "spec_overhead_ms": spec_overhead_ms, "seeds": seeds, "seed": run.seed,
        "duration_s": duration_s,
        "scenarios": {name: about_scenario(case) for name, case in scenarios.items()},
    }  # fmt: skip
    with run.open_store(_COMMAND, header, AdaServeRow) as store:
        run_missing(run_adaserve_cell, store, cells, run.jobs)
        found = find_adaserve(store.header, store.rows)
        console = lab_console()
        found.print(console)
        conclude(store, found.figures, lambda: groups_of_adaserve(found), console, run)
    return found


def groups_of_adaserve(found: AdaServeFindings) -> list[Group]:
    """Return one nested run for each arm in each setting."""
    points = defaultdict(list)
    for point in found.points:
        points[point.setting, point.arm].append(point)
    return [
        Group(
            f"{setting}/{arm}",
            {"setting": setting, "arm": arm},
            [figure for point in own for figure in point.figures],
            strip=f"adaserve/{setting}/{arm}/",
        )
        for (setting, arm), own in points.items()
    ]
