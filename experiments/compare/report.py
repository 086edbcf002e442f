"""A comparison's tables, compact enough to be read on a terminal."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from acclimate.experiments.compare.arms import AGAIN, BASE, NONE, NONE_AGAIN
from acclimate.experiments.compare.findings import CellFindings, Findings
from acclimate.experiments.compare.promised import CLASSES
from acclimate.experiments.compare.ratios import MARGINS
from acclimate.experiments.figures import UNKNOWN, Figure, interval_text, number_text
from acclimate.experiments.measures import Measures, measure

if TYPE_CHECKING:
    from rich.console import Console

_SIGNIFICANT = 0.05
_SHOWN_SHARE = 0.05
_WORST = "worst"
_COLUMNS = ("tok/s", "decode", "prefill", "TTFT", "TPOT", "ITL", "accepted", "wasted", "switches")


def print_report(found: Findings, console: Console) -> None:
    """Show ratios, non-inferiority, metrics, and what else must be known to believe them."""
    mixed = [cell for cell in found.cells if not cell.cell.domain]
    _ratios(found, mixed, console, "ratio of speeds, above 1 is better [95 % over prompts]")
    _inferiority(found, mixed, console)
    _promises(mixed, console)
    for cell in mixed:
        _metrics(cell, console)
    _domains(found, console)
    _notes(found, console)


def _ratios(found: Findings, cells: list[CellFindings], console: Console, title: str) -> None:
    from rich.table import Table

    table = Table("arm", "base", *(cell.cell.load for cell in cells), title=title)
    pairs = dict.fromkeys((c.arm, c.base) for cell in cells for c in cell.contrasts)
    for arm, base in pairs:
        by_load = {
            cell.cell.load: contrast.figure
            for cell in cells
            for contrast in cell.contrasts
            if (contrast.arm, contrast.base) == (arm, base)
        }
        table.add_row(
            arm, base, *(interval_text(by_load.get(cell.cell.load), ".3f") for cell in cells)
        )
    table.add_section()
    table.add_row(AGAIN, f"{BASE} (A/A)", *(interval_text(cell.a_a, ".3f") for cell in cells))
    if any(cell.processes is not None for cell in cells):
        table.add_row(
            NONE_AGAIN,
            f"{NONE} (A/A, processes)",
            *(interval_text(cell.processes, ".3f") for cell in cells),
        )
    table.add_row("best static", "", *(cell.best_static for cell in cells))
    console.print(table)


def _inferiority(found: Findings, cells: list[CellFindings], console: Console) -> None:
    from rich.table import Table

    if not found.inferiority_p:
        return
    table = Table("arm", "not below", *(cell.cell.load for cell in cells),
                  title="non-inferior? p after Holm over loads")  # fmt: skip
    for arm, base in dict.fromkeys((arm, base) for arm, base, _ in found.inferiority_p):
        verdicts = []
        for cell in cells:
            p = found.inferiority_p.get((arm, base, cell.cell.load))
            passed = p is not None and p < _SIGNIFICANT
            verdicts.append(
                UNKNOWN if p is None else f"{'yes' if passed else 'not shown'} ({p:.3f})"
            )
        table.add_row(arm, f"{MARGINS[base]:.2f} x {base}", *verdicts)
    console.print(table)


def _promises(cells: list[CellFindings], console: Console) -> None:
    """Show attainment per class and goodput, where something was promised."""
    from rich.table import Table

    for cell in cells:
        kept = cell.kept
        if kept is None:
            continue
        told = "" if kept.counts else "; no arm's tight attainment tells arms apart here"
        table = Table("arm", *CLASSES, "goodput, tokens/s",
                      title=f"{cell.cell.load}: attainment and goodput [95 % over prompts]{told}")  # fmt: skip
        for arm in kept.arms:
            shares = [interval_text(kept.attainment.get((arm, kind)), ".2f") for kind in CLASSES]
            table.add_row(arm, *shares, interval_text(kept.goodput[arm], ".1f"))
        console.print(table)


def _metrics(cell: CellFindings, console: Console) -> None:
    from rich.table import Table

    harmed = {figure.name.split("/")[-2]: figure.value for figure in cell.harmed}
    table = Table("arm", *_COLUMNS, "harmed", "steps per depth",
                  title=f"{cell.cell.load}: {cell.prompts} prompts, times in ms, p50/p99")  # fmt: skip
    for arm, run in cell.runs.items():
        found = measure(run)
        share = harmed.get(arm)
        depths = [(depth, s) for depth, s in enumerate(found.depth_shares) if s >= _SHOWN_SHARE]
        table.add_row(
            arm,
            *_texts(found),
            number_text(share, ".0%"),
            " ".join(f"{depth}:{share:.0%}" for depth, share in depths),
        )
    console.print(table)


def _texts(found: Measures) -> list[str]:
    """Return one text per column of ``_COLUMNS``."""
    return [
        number_text(found.tokens_per_s, ".1f"),
        number_text(found.decode_tokens_per_s, ".1f"),
        number_text(found.prefill_time_share, ".0%"),
        f"{number_text(found.ttft_p50_ms, '.0f')}/{number_text(found.ttft_p99_ms, '.0f')}",
        f"{number_text(found.tpot_p50_ms, '.1f')}/{number_text(found.tpot_p99_ms, '.1f')}",
        f"{number_text(found.itl_p50_ms, '.1f')}/{number_text(found.itl_p99_ms, '.1f')}",
        number_text(found.acceptance_length, ".2f"),
        number_text(found.wasted_verify_share, ".0%"),
        str(found.switches),
    ]


def _domains(found: Findings, console: Console) -> None:
    """Show every policy against k0, and k0 against itself behind it, domain by domain."""
    from rich.table import Table

    policies = [arm.name for arm in found.arms if arm.depth is None]
    rows: dict[tuple[str, str], dict[str, Figure]] = defaultdict(dict)
    for cell in found.cells:
        load = cell.cell.load
        for figure in cell.domains:
            parts = figure.name.split("/")
            arm, domain = (parts[3], parts[1]) if parts[0] == "domain" else (parts[1], _WORST)
            rows[arm, domain][load] = figure
        if cell.cell.domain:
            rows[AGAIN, cell.cell.domain][load] = cell.a_a
            for contrast in cell.contrasts:
                if contrast.base == BASE and contrast.arm in policies:
                    rows[contrast.arm, cell.cell.domain][load] = contrast.figure
    loads = list(dict.fromkeys(load for figures in rows.values() for load in figures))
    for name in policies:
        table = Table("domain", *loads, title=f"{name} to {BASE} by domain (A/A)")
        for domain in [domain for arm, domain in rows if arm == name]:
            ours, again = rows[name, domain], rows[AGAIN, domain]
            told = [
                f"{interval_text(ours.get(load), '.3f')} ({number_text(again.get(load), '.3f')})"
                for load in loads
            ]
            table.add_row(domain, *told)
        console.print(table)


def _notes(found: Findings, console: Console) -> None:
    same = ", ".join(
        f"{arm} {share:.1%}" for arm, (share, _) in found.identical.items() if share < 1
    )
    console.print(
        "• tokens identical to k0 in every answer of every arm" if not same
        else f"• answers identical to k0: {same}; all others 100 %"
    )  # fmt: skip
    for cell in found.cells:
        if told := process_noise(cell):
            console.print(f"• {told}", soft_wrap=True)
    left_out = {cell.cell.name: cell.left_out for cell in found.cells if cell.left_out}
    for name, count in left_out.items():
        console.print(f"• {name}: {count} prompts left out, with fewer than two tokens or no step "
                      "without prompts in some arm")  # fmt: skip
    for name in ("stock_steps", "late_calls", "faults", "violations"):
        counts = {
            f"{arm} {cell.cell.name}": run.status.get(name, 0)
            for cell in found.cells
            for arm, run in cell.runs.items()
        }
        told = ", ".join(f"{where} {count}" for where, count in counts.items() if count)
        if told:
            console.print(f"• {name.replace('_', ' ')}: {told}", soft_wrap=True)


def process_noise(cell: CellFindings) -> str:
    """Say which ratios to ``none`` are no larger than what two equal processes differ by.

    How much that is: the end of the interval of their ratio that is farther from 1. Empty without a
    second process.
    """
    again = cell.processes
    if again is None or again.value is None:
        return ""
    ends = [again.value if end is None else end for end in (again.low, again.high)]
    noise = max(abs(math.log(end)) for end in ends)
    within: list[str] = []
    beyond: list[str] = []
    for contrast in cell.contrasts:
        if contrast.base == NONE and contrast.figure.value is not None:
            inside = abs(math.log(contrast.figure.value)) <= noise
            (within if inside else beyond).append(contrast.arm)
    return (
        f"{cell.cell.name}: two processes without speculation differ by up to "
        f"{math.expm1(noise):.1%}; to {NONE} no more than that: {', '.join(within) or 'no arm'}; "
        f"more: {', '.join(beyond) or 'no arm'}"
    )
