"""The report of ``acclimate compare``: ratios with intervals, depths over time, every metric."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from acclimate.experiments.compare.arms import ADAPTIVE, AGAIN, parse_arms
from acclimate.experiments.compare.findings import CellFindings, Findings, find
from acclimate.experiments.compare.promised import CLASSES, TIGHT
from acclimate.experiments.compare.promises_kept import Kept
from acclimate.experiments.compare.rows import CellRow, read_rows
from acclimate.experiments.figures import FIGURE_HEAD, UNKNOWN, Figure, figure_row, number_text
from acclimate.experiments.measures import measure
from acclimate.experiments.report.drawing import (
    BLUE,
    axes,
    intervals,
    picture,
)
from acclimate.experiments.report.page import Block, Page, Section, Table, Text
from acclimate.experiments.report.stored import read_stored_figures
from acclimate.experiments.report.words import introduction

_POINTS = 400


def compare_page(folder: Path) -> Page:
    """Return the report of a comparison's rows, complete or not.

    Raises
    ------
    ValueError
        The folder holds no rows, or no block that every arm ran.
    """
    header, rows = read_rows(folder)
    arms = parse_arms(header["arms"], max_depth=int(header["depth"]))
    found = find(rows, arms, max_depth=int(header["depth"]), seed=int(header["seed"]))
    mixed = [cell for cell in found.cells if not cell.cell.domain]
    meta, _ = read_stored_figures(folder / "figures.json")
    return Page(
        title="Which policy serves faster?",
        lead="Arms side by side on real engines with the same prompts, in alternation.",
        facts=[
            ("command", _command(header)),
            ("rounds", f"{found.rounds}, {len(rows)} blocks of requests"),
            ("engine", meta.get("engine") or "vllm"),
            ("machine", meta.get("machine") or "not recorded"),
            ("version", f"acclimate {meta.get('version') or 'not recorded'}"),
            ("started", meta.get("started") or "not recorded"),
        ],
        sections=[
            introduction(
                "Every arm served the same prompts on a real engine, one after the other and round "
                "by round, so that whatever else the machine did hit all of them alike. k0 ran "
                "twice: the ratio between its two runs (A/A) shows how far two arms differ by chance "
                "alone. c4 means four requests at all times; rate0.6 means arrivals at 0.6 of what "
                "k0 can serve. none is an engine without any speculation configured, stock-kN the "
                "engine's own fixed depth, best_static the best fixed depth of the cell."
            ),
            Section("Speed against other arms", _speed(mixed)),
            *([Section("Promises kept", _promises(mixed))] if _promised(mixed) else []),
            Section("Depth over time", _depths(rows, arms=[a.name for a in arms], cells=mixed)),
            Section("Regret against the best fixed depth", [_regret(mixed)]),
            *([Section("By domain", [_domains(found)])] if _domain_figures(found) else []),
            Section("Every metric", [*(_metrics(cell) for cell in mixed), *_notes(found)]),
            Section("All figures", [
                Table("Every figure with its interval", FIGURE_HEAD,
                      [figure_row(figure) for figure in found.figures()],
                      folded=True)]),
        ],
    )  # fmt: skip


def _command(header: dict[str, object]) -> str:
    parts = ["acclimate compare"]
    for key, value in header.items():
        if key == "arm_names" or value in (None, False, ""):
            continue
        name = f"--{key.replace('_', '-')}"
        parts.append(name if value is True else f"{name} {Path(str(value)).name}")
    return " ".join(parts)


def _speed(cells: Sequence[CellFindings]) -> list[Block]:
    figure, all_axes = axes(1, len(cells), min(3.2 + 2.9 * len(cells), 15.0), 4.6)
    for axis, cell in zip(all_axes, cells, strict=True):
        shown = [c.figure for c in cell.contrasts] + [cell.a_a]
        names = [f"{c.arm} / {c.base}" for c in cell.contrasts] + ["k0 / k0 (A/A)"]
        intervals(axis, shown, names, at=1.0)
        axis.set_title(cell.cell.load, loc="left", fontsize=11)
        axis.set_xlabel("ratio of speeds")
        if axis is not all_axes[0]:
            axis.tick_params(labelsize=8)
    rows = [
        [f"{c.arm} / {c.base}", cell.cell.load, c.figure.text]
        for cell in cells
        for c in cell.contrasts
    ]
    rows += [["k0 / k0 (A/A)", cell.cell.load, cell.a_a.text] for cell in cells]
    return [
        picture(
            figure,
            "Ratios of speeds between arms at every load",
            "How many times as fast the first arm is as the second, with 95 % intervals over "
            "prompts. Right of the red line it is faster. Where an interval holds 1, or is no "
            "farther from it than A/A, there may be no difference.",
        ),
        Table("Ratio of speeds", ("arms", "load", "ratio [95 % interval]"), rows),
    ]


def _depths(
    rows: Sequence[CellRow], *, arms: Sequence[str], cells: Sequence[CellFindings]
) -> list[Block]:
    """Draw what the policies verified over the time of their rounds, and shares per depth."""
    chosen = [a for a in arms if a != AGAIN and not re.fullmatch(r"none|(stock-)?k\d+", a)]
    names = chosen or [ADAPTIVE]
    loads = [cell.cell.name for cell in cells]
    figure, all_axes = axes(len(loads), 1, 10.6, 0.8 + 1.7 * len(loads))
    for axis, load in zip(all_axes, loads, strict=True):
        for arm in names:
            time_s, verified = _over_time([r for r in rows if r.cell == load and r.arm == arm])
            axis.plot(time_s, verified, lw=1.3, label=arm, color=BLUE if arm == ADAPTIVE else None)
        axis.set_title(load, loc="left", fontsize=11)
        axis.set_ylabel("drafts verified\nper request")
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=8)
    all_axes[-1].set_xlabel("seconds of service by this arm, its rounds one after the other")
    return [
        picture(
            figure,
            "Drafts verified per request over time, by load",
            "Drafts that each request verified per step, averaged over short spans: how deep the "
            "policy speculates while it learns, at each load.",
        )
    ]


def _over_time(rows: Sequence[CellRow]) -> tuple[list[float], list[float]]:
    begun: list[float] = []
    verified: list[float] = []
    requests: list[float] = []
    offset_s = 0.0
    for row in rows:
        begun += [offset_s + at_s for at_s in row.steps.begun_s]
        verified += row.steps.verified
        requests += row.steps.decode_requests
        offset_s += row.duration_s
    size = max(len(begun) // _POINTS, 1)
    time_s, means = [], []
    for start in range(0, len(begun) - size + 1, size):
        decoding = sum(requests[start : start + size])
        if decoding:
            time_s.append(begun[start])
            means.append(sum(verified[start : start + size]) / decoding)
    return time_s, means


def _promised(cells: Sequence[CellFindings]) -> list[Kept]:
    return [cell.kept for cell in cells if cell.kept is not None]


def _promises(cells: Sequence[CellFindings]) -> list[Block]:
    """Draw the tight class's attainment and the goodput of every arm, over targets."""
    points = sorted(_promised(cells), key=lambda kept: kept.cell.scale or 0.0)
    at = [kept.cell.scale or 0.0 for kept in points]
    figure, (left, right) = axes(1, 2, 10.6, 4.2)
    for arm in points[0].arms:
        if arm == AGAIN:
            continue
        style = {"lw": 2.2, "color": BLUE} if arm == ADAPTIVE else {"lw": 1.2}
        tight = [kept.attainment.get((arm, TIGHT)) for kept in points]
        left.plot(at, [share.value if share else None for share in tight], "o-", label=arm, **style)
        right.plot(at, [kept.goodput[arm].value for kept in points], "o-", label=arm, **style)
    left.set_ylabel("share of tight requests in time")
    left.set_ylim(-0.02, 1.02)
    right.set_ylabel("tokens/s of requests in time")
    right.set_ylim(bottom=0)
    for axis in (left, right):
        axis.set_xlabel("tight time per token, as a multiple of k0's")
        axis.set_xticks(at)
    right.legend(frameon=False, fontsize=8)
    rows = [
        [f"x{kept.cell.scale:g}", arm, *(
            kept.attainment[arm, kind].text if (arm, kind) in kept.attainment else UNKNOWN
            for kind in CLASSES), kept.goodput[arm].text, "yes" if kept.counts else "no"]
        for kept in points for arm in kept.arms
    ]  # fmt: skip
    return [
        picture(
            figure,
            "Attainment of the tight class and goodput, by arm and target",
            "Left: the share of interactive requests that were served within the time per token that "
            "their clients asked for. Right: tokens per second of all requests that got what they "
            "were promised. Farther to the left the target is harder.",
        ),
        Table(
            "Attainment by class and goodput, 95 % intervals over prompts. A target tells arms apart "
            "where some arm's tight attainment is from 0.2 to 0.95",
            ("target", "arm", *CLASSES, "goodput", "tells apart"),
            rows,
        ),
    ]


def _regret(cells: Sequence[CellFindings]) -> Table:
    rows = []
    for cell in cells:
        speeds = {arm: measure(run).tokens_per_s or 0.0 for arm, run in cell.runs.items()}
        best = speeds.get(cell.best_static) or max(speeds.values())
        for arm, speed in speeds.items():
            lost_s = 1.0 - speed / best
            rows.append([cell.cell.load, arm, f"{speed:.1f}", cell.best_static, f"{lost_s:+.1%}"])
    return Table(
        "Share of the best fixed depth's speed that an arm loses (a negative one gains), from all "
        "tokens and all time of the cell, prompts included",
        ("load", "arm", "tokens/s", "best fixed depth", "lost"),
        rows,
    )


def _domain_figures(found: Findings) -> list[Figure]:
    return [figure for cell in found.cells for figure in cell.domains]


def _domains(found: Findings) -> Table:
    rows = [[figure.name.removeprefix("domain/"), figure.text] for figure in _domain_figures(found)]
    return Table("Ratio of speeds by domain", ("domain and arms", "ratio"), rows, folded=True)


def _metrics(cell: CellFindings) -> Table:
    harmed = {figure.name.split("/")[-2]: figure.value for figure in cell.harmed}
    rows = []
    for arm, run in cell.runs.items():
        m = measure(run)
        shares = " ".join(f"{k}:{s:.0%}" for k, s in enumerate(m.depth_shares) if s >= 0.05)
        rows.append(
            [
                arm,
                *(number_text(value, spec) for value, spec in (
                    (m.tokens_per_s, ".1f"), (m.decode_tokens_per_s, ".1f"), (m.ttft_p50_ms, ".0f"),
                    (m.ttft_p99_ms, ".0f"), (m.tpot_p50_ms, ".1f"), (m.tpot_p99_ms, ".1f"),
                    (m.acceptance_length, ".2f"), (m.wasted_verify_share, ".0%"))),
                str(m.switches),
                number_text(harmed.get(arm), ".0%"),
                shares,
            ]
        )  # fmt: skip
    head = ("arm", "tok/s", "decoding", "TTFT p50 ms", "p99", "TPOT p50 ms", "p99",
            "tokens/step", "wasted", "switches", "harmed", "steps per depth")  # fmt: skip
    caption = (
        f"{cell.cell.load}, {cell.prompts} prompts. TTFT: time to the first token; TPOT: time per "
        "token after it; wasted: verified drafts that were not accepted; harmed: requests more than "
        "5 % slower than with k0"
    )
    ours = frozenset(i for i, row in enumerate(rows) if row[0] == ADAPTIVE)
    return Table(caption, head, rows, strong=ours)


def _notes(found: Findings) -> list[Block]:
    shares: dict[str, float] = defaultdict(float)
    for arm, (share, _) in found.identical.items():
        shares[arm] = share
    differing = ", ".join(f"{arm} {share:.1%}" for arm, share in shares.items() if share < 1)
    told = (
        f"Answers identical to k0's: {differing}; all others 100 %."
        if differing
        else "Every arm wrote the same tokens in every answer."
    )
    return [Text([told, ("Calibration is not recorded by a comparison; a trace of the adaptive arm "
                        "holds it (acclimate replay).")])]  # fmt: skip
