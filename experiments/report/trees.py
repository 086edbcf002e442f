"""The report of ``lab trees``: text and law untouched, what trees are worth, shapes over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acclimate.experiments.figures import Figure, number_text
from acclimate.experiments.lab.cell_store import read_cells
from acclimate.experiments.lab.tree_cells import SHIFT, SPEED, SWAP, TreeRow
from acclimate.experiments.report.drawing import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    axes,
    intervals,
    picture,
)
from acclimate.experiments.report.page import Block, Items, Page, Section, Table, Text
from acclimate.experiments.report.stored import FIGURES_FILE, figure_tables, read_stored_figures
from acclimate.experiments.report.words import introduction

_TREES = (
    "Where a chain drafts one continuation, a tree drafts several: depth is how far it looks ahead, "
    "width how many alternatives it keeps at a place. All nodes are verified in one pass, and the "
    "path that the model would have written itself is kept. adaptive_tree chooses nodes, one by one "
    "over all requests, as long as each earns more than its time costs; DxWxN is a fixed shape of "
    "depth D, width W and N nodes."
)
_COLUMNS = {"depth": BLUE, "width": PURPLE, "nodes": ORANGE}


def trees_page(folder: Path) -> Page:
    """Return the report of a folder's results.

    Raises
    ------
    ValueError
        The folder holds no results of ``lab trees``.
    """
    header, rows = read_cells(folder, TreeRow)
    meta, figures = read_stored_figures(folder / FIGURES_FILE)
    known = {figure.name: figure for figure in figures}
    sections = [
        introduction(_TREES),
        Section("Result in brief", [Items(_verdicts(known), note=True)]),
    ]
    sections += [
        Section(title, blocks)
        for title, blocks in (
            ("What a drafter's probabilities are worth", _worth(known)),
            ("Measured speed", _speed(figures, rows)),
            ("Load, domain and drafter change", _shift(rows)),
            ("The drafter is swapped", _swap(known, rows)),
        )
        if blocks
    ]
    sections.append(Section("All figures", list(figure_tables(figures))))
    return Page(
        title="Draft trees: is their text the same, and their shape right?",
        lead="A language model that verifies trees of drafts, with shapes that are fixed and shapes "
        "that follow load, domain and drafter.",
        facts=[
            ("command", f"acclimate {header.command}"),
            ("settings", ", ".join(f"{k} {v}" for k, v in header.settings.items())),
            ("engine", "trees in PyTorch, float32; recorded and synthetic text where it says so"),
            ("machine", str(meta.get("machine", "not recorded"))),
            ("version", f"acclimate {header.version}"),
            ("started", header.started),
        ],
        sections=sections,
    )


def _verdicts(known: dict[str, Figure]) -> list[str]:
    """Return what was asked, with the figure that answers it."""
    asked = (
        ("tree/identical_share", "Share of answers that are plain decoding's, token by token", "1"),
        ("tree/sampling_p", "p of the test of the sampled law", "above 0.01"),
        ("tree/sampling_planted_p", "The same with a planted fault, which it must find", "0"),
        (
            "tree/mixed/adaptive_to_best_single_static",
            "Speed over the best single shape on the stream of all domains and loads", ">= 1.05",
        ),
        ("tree/swap/tokens_to_recover", "Graded tokens after a swap until the shape is right", ""),
        ("tree/swap/to_clairvoyant", "The same over that of one who is told", "at most 1.5"),
    )  # fmt: skip
    return [
        f"{words}: {number_text(known[name], '.4g')}" + (f" (wanted: {wanted})" if wanted else "")
        for name, words, wanted in asked
        if name in known
    ] or ["Nothing of this was measured in this run."]


def _domains(known: dict[str, Figure], what: str) -> list[str]:
    return [name.split("/")[1] for name in known if name.endswith(f"/{what}")]


def _worth(known: dict[str, Figure]) -> list[Block]:
    domains = _domains(known, "ece_raw")
    if not domains:
        return []
    figure, both = axes(1, 2, 10.6, 1.2 + 0.32 * len(domains))
    for axis, (kinds, title) in zip(
        both,
        (
            ((("ece_raw", GREY), ("ece_calibrated", BLUE), ("ece_perfect", RED)), "error"),
            ((("commit_ratio_to_best_chain", BLUE),), "tokens per step over a chain's"),
        ),
        strict=True,
    ):
        for kind, color in kinds:
            values = [known.get(f"tree/{domain}/{kind}") for domain in domains]
            axis.scatter(
                [None if v is None else v.value for v in values],
                range(len(domains)), color=color, s=36, marker="|" if color == RED else "o",
                label=kind.removeprefix("ece_"),
            )  # fmt: skip
        axis.set_yticks(range(len(domains)), domains)
        axis.invert_yaxis()
        axis.set_xlabel(title)
        if len(kinds) > 1:
            axis.legend(frameon=False, fontsize=8)
        else:
            axis.axvline(1.0, color=RED, lw=1, ls="--")
    rows = [
        [
            domain,
            *(
                number_text(known.get(f"tree/{domain}/{kind}"), ".4f")
                for kind in (
                    "ece_raw", "ece_calibrated", "ece_perfect", "expected_to_measured_length",
                    "commit_ratio_to_best_chain",
                )
            ),
        ]
        for domain in domains
    ]  # fmt: skip
    return [
        picture(
            figure,
            "Calibration error and tokens per step by domain",
            "Left: how far predicted survival of verified nodes is from what became of them, as the "
            "drafter says it (raw) and as it was learned (calibrated); 95 of 100 perfect predictors "
            "stay left of the red tick. Right: tokens per step of 8 chosen nodes over those of a "
            "chain of 8; right of the line the tree is better.",
        ),
        Table(
            "By domain, on recorded answers that no drafter was trained on",
            ("domain", "raw error", "calibrated", "perfect, 95th", "expected / seen length",
             "tokens per step / chain"),
            rows,
        ),
    ]  # fmt: skip


def _speed(figures: Sequence[Figure], rows: Sequence[TreeRow]) -> list[Block]:
    if not any(row.part == SPEED for row in rows):
        return []
    shown = [f for f in figures if "/adaptive_to_best_static/" in f.name]
    shown += [f for f in figures if f.name.startswith("tree/mixed/adaptive_to")]
    figure, (axis,) = axes(1, 1, 9.0, 1.0 + 0.3 * len(shown))
    names = [f.name.removeprefix("tree/").replace("adaptive_to_", "") for f in shown]
    intervals(axis, shown, names, at=1.0)
    axis.set_xlabel("tokens per second over that of the fixed shape")
    return [
        picture(
            figure,
            "Speed of the chosen trees over fixed shapes",
            "Measured tokens per second of adaptive_tree over those of the best fixed shape of each "
            "domain and load (cN: N requests at a time), and on the mixed stream over every fixed "
            "shape. Arms alternate in one process; dots are medians over rounds.",
        )
    ]


def _shift(rows: Sequence[TreeRow]) -> list[Block]:
    found = next((row for row in rows if row.part == SHIFT), None)
    if found is None:
        return []
    phase, now = found.column("phase"), found.column("now_s")
    figure, lines = axes(2, 1, 10.6, 4.6)
    _draw_shape(lines[0], now, {name: found.column(name) for name in _COLUMNS})
    lines[1].plot(now, found.column("tokens"), color=BLACK, lw=1.4, label="tokens per request")
    lines[1].set_xlabel("seconds of engine time")
    lines[1].legend(frameon=False, fontsize=8, loc="upper right")
    begins = [i for i in range(len(phase)) if i == 0 or phase[i] != phase[i - 1]]
    for axis in lines:
        for begin in begins[1:]:
            axis.axvline(now[begin], color=RED, lw=1, ls="--")
    for number, begin in enumerate(begins):
        lines[0].annotate(
            str(number + 1), (now[begin], 1.0), xycoords=("data", "axes fraction"),
            fontsize=9, xytext=(3, -10), textcoords="offset points",
        )  # fmt: skip
    return [
        Text(
            [
                (
                    "Recorded answers of the model are repeated with step times from a table, by one "
                    "policy that is told nothing of what changes: load, domain, then the drafter."
                )
            ]
        ),
        picture(
            figure,
            "Depth, width and nodes of the chosen trees over time",
            "Means per request of the chosen trees: depth, children of one node, and nodes; below, "
            "tokens per step. Red lines: "
            + "; ".join(f"{i + 1} {name}" for i, name in enumerate(found.names["phases"]))
            + ".",
        ),
    ]


def _swap(known: dict[str, Figure], rows: Sequence[TreeRow]) -> list[Block]:
    runs = [row for row in rows if row.part == SWAP]
    if not runs:
        return []
    first = runs[0].key.rsplit("/", 1)[-1]
    shown = [row for row in runs if row.key.endswith(f"/{first}")]
    swaps = list(dict.fromkeys(row.key.split("/")[1] for row in shown))
    policies = list(dict.fromkeys(row.key.split("/")[2] for row in shown))
    figure, grid = axes(len(swaps), 1, 10.6, 2.3 * len(swaps))
    colors = dict(zip(policies, (BLUE, ORANGE, BLACK), strict=False))
    for axis, swap in zip(grid, swaps, strict=True):
        for row in shown:
            _, own, policy, _ = row.key.split("/")
            if own == swap:
                axis.plot(
                    row.column("shape/now_s"), row.column("shape/nodes"),
                    color=colors.get(policy, GREY), lw=1.4, label=policy,
                )  # fmt: skip
                axis.axvline(row.column("swapped_s")[0], color=RED, lw=1, ls="--")
        axis.set_title(f"the new drafter is {swap}", loc="left", fontsize=11)
        axis.set_ylabel("nodes per request")
    grid[0].legend(frameon=False, fontsize=8)
    grid[-1].set_xlabel("seconds of engine time")
    body = [
        [
            swap,
            policy,
            *(
                _text(known, f"tree/swap/{swap}/{policy}/{what}")
                for what in ("tokens_to_recover", "recovered", "rate_to_oracle")
            ),
        ]
        for swap in swaps
        for policy in policies
    ]
    return [
        Text(
            [
                ("Synthetic text, whose truth is known: at the red line the drafter's probabilities "
                "change their meaning. clairvoyant_tree is the same policy and starts anew at the "
                "swap, of which ours is not told; oracle_tree knows the truth at all times. The shape "
                "is right again when over 50 steps the rate of the chosen trees is within 1 % of the "
                "best that the same candidates allow; graded are nodes whose fate became known.")
            ]
        ),
        picture(
            figure, "Nodes per request around a swap",
            "Nodes chosen per request, of the first seed. The dashed line is the swap.",
        ),
        Table(
            "Until the shape was right again", ("drafter", "policy", "graded tokens",
            "share of swaps", "rate after the swap over the best"), body,
        ),
    ]  # fmt: skip


def _draw_shape(axis: Any, now: list[float], columns: dict[str, list[float]]) -> None:
    for name, values in columns.items():
        axis.plot(now, values, color=_COLUMNS[name], lw=1.4, label=name)
    axis.legend(frameon=False, fontsize=8, loc="upper right")


def _text(known: dict[str, Figure], name: str) -> str:
    figure = known.get(name)
    return "-" if figure is None else figure.text
