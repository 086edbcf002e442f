"""The report of ``lab load``: chosen depths on a published table, gain, and a cliff."""

from __future__ import annotations

from pathlib import Path

from acclimate.experiments.figures import FIGURE_HEAD, figure_row
from acclimate.experiments.lab.cell_store import read_cells
from acclimate.experiments.lab.load_cell import (
    BATCHES,
    NOISE,
    STALL_FACTOR,
    STALL_SHARE,
    SURVIVALS,
    LoadRow,
)
from acclimate.experiments.lab.load_findings import LoadFinding, LoadFindings, find_load
from acclimate.experiments.report.drawing import (
    BLUE,
    axes,
    heat,
    intervals,
    picture,
)
from acclimate.experiments.report.page import Items, Page, Picture, Section, Table, Text
from acclimate.experiments.report.stored import FIGURES_FILE, read_stored_figures
from acclimate.experiments.report.words import introduction


def load_page(folder: Path) -> Page:
    """Return the report of a folder's results.

    Raises
    ------
    ValueError
        The folder holds no results of ``lab load``.
    """
    header, rows = read_cells(folder, LoadRow)
    found = find_load(header, rows)
    settings = header.settings
    meta, _ = read_stored_figures(folder / FIGURES_FILE)
    return Page(
        title="Does the policy find the best depth at every load?",
        lead=f"{found.arm} on a published table of step times, from 1 to 256 requests at a time, "
        "with three kinds of drafts.",
        facts=[
            (
                "command",
                (
                    f"acclimate {header.command} --policy {found.arm} --seeds "
                    f"{settings['seeds']} --seed {settings['seed']}"
                ),
            ),
            (
                "runs",
                (
                    f"{len(rows)}, each {settings['until_s']:g} simulated seconds of which the "
                    f"first {settings['warm_up_s']:g} do not count"
                ),
            ),
            ("engine", "simulated; all requests of a step verify alike, at depth 0, 1, 3 or 5"),
            ("step times", "Llama-3.1-8B with an EAGLE head, as published with vLLM's issue 32374"),
            ("machine", str(meta.get("machine", "not recorded"))),
            ("version", f"acclimate {header.version}"),
            ("started", header.started),
        ],
        sections=[
            introduction(
                "Here the true answer is known: a table says how long a step takes at every load "
                "and depth, drafts are accepted with given probabilities, and so each load has a "
                "best depth. The policy knows none of it and must find out while it serves. It is "
                "run without noise and with noise as on a shared machine (times scatter by "
                f"{NOISE:.0%}, {STALL_SHARE:.0%} of steps take {STALL_FACTOR:g} times as long)."
            ),
            Section("Result in brief", [Items(found.verdicts(), note=True)]),
            Section("Chosen depth against the best", [_efficiency(found), _table(found)]),
            Section("Gain over no speculation", [_gain(found)]),
            Section("A cliff between 4 and 5 requests", _boundary(found)),
            Section(
                "All figures",
                [
                    Table(
                        "Every figure with its interval",
                        FIGURE_HEAD,
                        [figure_row(figure) for figure in found.figures],
                        folded=True,
                    )
                ],
            ),
        ],
    )


def _efficiency(found: LoadFindings) -> Picture:
    figure, both = axes(1, 2, 10.6, 2.7)
    for axis, noisy in zip(both, (False, True), strict=True):
        cells = {(c.survival, c.batch): c for c in found.cells if c.noisy is noisy}
        grid = [[cells.get((s, b)) for b in BATCHES] for s in SURVIVALS]
        heat(
            axis,
            [[None if c is None else 1.0 - c.worst for c in row] for row in grid],
            [["" if c is None else _cell(c) for c in row] for row in grid],
            [f"{name}" for name in SURVIVALS],
            [str(batch) for batch in BATCHES],
            low=0.0,
            high=0.12,
            colors="OrRd",
        )
        axis.set_title("with noise" if noisy else "without noise", loc="left", fontsize=11)
        axis.set_xlabel("requests at a time")
    both[0].set_ylabel("survival of the\nfirst draft")
    return picture(
        figure,
        "True speed of the chosen depth as a share of the best, by load and drafts",
        "True speed of the depth that a run chose in most steps, as a share of the speed of the best "
        "depth, in the worst seed. White is the best there is, red is lost speed. Below the share: "
        "the depths chosen, and the best depth in brackets.",
    )


def _cell(cell: LoadFinding) -> str:
    chosen = ",".join(str(depth) for depth in sorted(set(cell.chosen)))
    return f"{cell.worst:.3f}\n{chosen} ({cell.best})"


def _table(found: LoadFindings) -> Table:
    rows = [
        [
            cell.survival,
            str(cell.batch),
            "yes" if cell.noisy else "no",
            str(cell.best),
            f"{cell.gain:.3f}",
            " ".join(str(depth) for depth in cell.chosen),
            f"{cell.worst:.3f}",
            f"{cell.target:.2f}",
            "yes" if cell.met else "no",
            cell.ratio.text,
        ]
        for cell in found.cells
    ]
    head = (
        "survival",
        "requests",
        "noise",
        "best depth",
        "gain of the best over k0",
        "chosen, by seed",
        "worst share",
        "target",
        "met",
        "speed / k0",
    )
    return Table("Every cell", head, rows, folded=True)


def _gain(found: LoadFindings) -> Picture:
    figure, both = axes(1, 2, 10.6, 4.4)
    for axis, noisy in zip(both, (False, True), strict=True):
        cells = [cell for cell in found.cells if cell.noisy is noisy]
        names = [f"{cell.survival} at {cell.batch}" for cell in cells]
        axis.scatter(
            [c.gain for c in cells],
            range(len(cells)),
            marker="|",
            s=120,
            color="#7b8794",
            label="best fixed depth",
        )
        intervals(axis, [cell.ratio for cell in cells], names, at=1.0)
        axis.set_title("with noise" if noisy else "without noise", loc="left", fontsize=11)
        axis.set_xlabel("speed over k0")
        axis.legend(frameon=False, fontsize=8, loc="lower right")
    return picture(
        figure,
        "Speed over no speculation, with intervals",
        f"Speed of {found.arm} over k0 after the warm-up, paired by seed: dot and 95 % interval over "
        "seeds. The grey tick is what the best fixed depth would gain by the table. Left of the red "
        "line speculation harms.",
    )


def _boundary(found: LoadFindings) -> list[Text | Picture | Table]:
    figure, (axis,) = axes(1, 1, 8.4, 2.4)
    names = []
    for y, b in enumerate(found.boundaries):
        left = 0.0
        for depth, share in enumerate(b.shares):
            axis.barh(y, share, left=left, color=BLUE, alpha=0.25 + 0.25 * depth, edgecolor="white")
            if share > 0.05:
                axis.text(
                    left + share / 2,
                    y,
                    f"depth {depth}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if depth > 1 else "black",
                )
            left += share
        names.append(f"{b.boundary}, {'with' if b.noisy else 'without'} noise")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of steps")
    return [
        Text(
            [
                (
                    "Four answers never end; a fifth request comes and goes several times a second, as a "
                    "short answer (decodes) or as a long prompt (prompts). Beyond four requests "
                    "verifying costs two and a half times as much. A policy that follows every swing "
                    "pays for it with each switch."
                )
            ]
        ),
        picture(
            figure,
            "Share of steps at each depth at the boundary",
            "Share of steps at each depth after the warm-up, mean over seeds.",
        ),
        Table(
            "Switches and speed",
            (
                "what swings",
                "noise",
                "switches per minute",
                "best fixed depth",
                "speed over the best fixed depth",
            ),
            [
                [
                    b.boundary,
                    "yes" if b.noisy else "no",
                    b.switches_per_min.text,
                    b.best,
                    b.ratio.text,
                ]
                for b in found.boundaries
            ],
        ),
    ]
