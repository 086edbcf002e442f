"""``acclimate lab recalibration``: how soon a policy is right again, and what it costs until then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from acclimate.controller.config import ControlConfig
from acclimate.experiments.arms import arm_follows, arm_names, arm_policy
from acclimate.experiments.figures import interval_text, number_text
from acclimate.experiments.lab.cell_grid import run_missing
from acclimate.experiments.lab.conclusion import conclude, lab_console
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.recalibration_cell import (
    RecalibrationCell,
    RecalibrationRow,
    run_recalibration_cell,
)
from acclimate.experiments.lab.recalibration_findings import (
    ORACLE,
    OURS,
    ScenarioFinding,
    find_recalibration,
    recovery_text,
)
from acclimate.experiments.lab.scenario_digest import about_scenario
from acclimate.experiments.lab.tracking import Group
from acclimate.experiments.simulation.scenario import FOLDER, Scenario, scenario_names
from acclimate.experiments.simulation.stage import Stage

COMMAND = "lab recalibration"
_FIXED = ("k1", "k3", "k5")


def run_recalibration(
    scenarios: Sequence[str] = (),
    policies: Sequence[str] = (),
    *,
    seeds: int = 20,
    run: LabRun = LabRun(),
) -> list[ScenarioFinding]:
    """Run every policy in every scenario with every seed, and show who is right again when.

    Parameters
    ----------
    scenarios
        TOML files, or names of this package's scenarios; default: all of the latter.
    policies
        Arms; default: ours, all peers and yardsticks, and some fixed depths. The oracle always
        runs, since regret is measured against it.
    seeds
        Of requests and luck, counted on from the run's seed; policies share them.
    run
        Processes, folder, seed and the like; tracked with a nested run per scenario and policy.

    Raises
    ------
    ValueError
        A scenario or a policy cannot be used, or the folder holds something else.
    RuntimeError
        Cells failed, or the run was stopped; what is done is kept.
    """
    numbers = run.seeds(seeds)
    cases = read_cases(scenarios or scenario_names())
    arms = _arms(policies, cases)
    _check(arms, cases)
    cells = [
        RecalibrationCell(name, case, arm, number)
        for number in numbers
        for name, case in cases.items()
        for arm in arms
    ]
    settings = {
        "scenarios": {name: about_scenario(case) for name, case in cases.items()},
        "policies": arms,
        "seeds": seeds,
        "seed": run.seed,
    }
    with run.open_store(COMMAND, settings, RecalibrationRow) as store:
        run_missing(run_recalibration_cell, store, cells, run.jobs)
        found = find_recalibration(store.header, store.rows)
        console = lab_console(140)
        print_findings(found, console)
        figures = [f for case in found for policy in case.policies for f in policy.figures]

        def groups() -> list[Group]:
            files = {name: _file_of(source) for name, source in _named(scenarios)}
            return _groups(found, files, seeds)

        conclude(store, figures, groups, console, run)
    return found


def read_cases(sources: Sequence[str]) -> dict[str, Scenario]:
    """Return scenarios by name, in order.

    Raises
    ------
    ValueError
        Two have one name, or one cannot be used.
    """
    cases: dict[str, Scenario] = {}
    for name, source in _named(sources):
        if name in cases:
            raise ValueError(f"scenarios must have different names, got {name!r} twice")
        cases[name] = Scenario.read(source)
    return cases


def print_findings(found: Sequence[ScenarioFinding], console: Console) -> None:
    """Show a table per scenario, and below all of them where ours is not first.

    Columns: engine time beyond the oracle's; graded tokens until beliefs are right, and the share
    of changes after which they were; engine time lost until the shape is within 1 % of the
    oracle's; speed in the last third over the oracle's; switches and false alarms per run.
    """
    for case in found:
        console.print(_table(case))
    behind = [f"{case.name}: {line}" for case in found for line in case.behind]
    if not any(OURS in case.rows for case in found):
        return
    if behind:
        console.print(f"[bold]Where {OURS} is not first[/bold] (among policies that know no truth)")
        for line in behind:
            console.print(f"• {line}", highlight=False, soft_wrap=True)
    else:
        console.print(f"{OURS} is first everywhere, among policies that know no truth")


def _table(case: ScenarioFinding) -> Table:
    seeds = max(found.seeds for found in case.policies)
    table = Table(title=f"{case.name}: {case.title} ({seeds} seeds)", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for heading in (
        "regret s",
        "tokens to recover" if case.changes else "tokens to learn",
        "share",
        "s until shaped",
        "steady",
        "switches",
        "false",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for found in case.policies:
        table.add_row(
            found.policy,
            interval_text(found.regret_s, ".2f"),
            recovery_text(found),
            "" if found.no_beliefs else number_text(found.recovered, ".0%"),
            interval_text(found.seconds_lost, ".2f", unknown="not again"),
            interval_text(found.steady, ".2f"),
            number_text(found.switches, ".0f"),
            "" if found.no_beliefs else number_text(found.false_alarms, ".1f"),
            style="bold" if found.policy == OURS else None,
        )
    return table


def _named(sources: Sequence[str]) -> list[tuple[str, str]]:
    return [(Path(source).stem, source) for source in sources or scenario_names()]


def _file_of(source: str) -> Path:
    path = Path(source)
    return path if path.exists() else FOLDER / f"{path.name.removesuffix('.toml')}.toml"


def _arms(policies: Sequence[str], cases: dict[str, Scenario]) -> list[str]:
    shallowest = min(case.engine.max_depth for case in cases.values())
    fixed = [arm for arm in _FIXED if int(arm[1:]) <= shallowest]
    chosen = list(policies) or [*arm_names(), *fixed]
    return list(dict.fromkeys([*chosen, ORACLE]))


def _check(arms: Sequence[str], cases: dict[str, Scenario]) -> None:
    """Refuse a policy that cannot run before anything has run."""
    for case in cases.values():
        stage = Stage.of(case)
        for arm in arms:
            arm_policy(arm, ControlConfig(), stage.capabilities, stage.truth)


def _groups(found: Sequence[ScenarioFinding], files: dict[str, Path], seeds: int) -> list[Group]:
    return [
        Group(
            f"{case.name}/{policy.policy}",
            {
                "scenario": case.name,
                "policy": policy.policy,
                "follows": arm_follows(policy.policy),
                "seeds": str(seeds),
            },
            policy.figures,
            artifacts=(files[case.name],),
            strip=f"recalibration/{case.name}/{policy.policy}/",
        )
        for case in found
        for policy in case.policies
    ]
