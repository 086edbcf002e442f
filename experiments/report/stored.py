"""Reports of figures files: a demo's folder, or any folder with figures and pictures."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from acclimate.experiments.figures import FIGURE_HEAD, Figure, figure_row
from acclimate.experiments.report.drawing import (
    axes,
    intervals,
    picture,
)
from acclimate.experiments.report.page import Block, Page, Picture, Section, Table
from acclimate.experiments.report.words import introduction

FIGURES_FILE = "figures.json"
_MOST_DRAWN = 40


class _Document(msgspec.Struct):
    meta: dict[str, Any]
    figures: list[Figure]


def read_stored_figures(path: Path) -> tuple[dict[str, Any], list[Figure]]:
    """Return where figures come from, and the figures; nothing where there is no such file.

    Raises
    ------
    ValueError
        The file is no figures file.
    """
    if not path.is_file():
        return {}, []
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} must be a figures file, got {error}") from error
    return document.meta, document.figures


def stored_page(folder: Path) -> Page:
    """Return the report of a folder that holds ``figures.json``, its pictures included.

    Raises
    ------
    ValueError
        There are no figures.
    """
    meta, figures = read_stored_figures(folder / FIGURES_FILE)
    if not figures:
        raise ValueError(f"{folder} must hold {FIGURES_FILE} with figures, got none")
    command = str(meta.get("command", ""))
    sections = [introduction(_about(command))]
    pictures = [_png(path, command) for path in sorted(folder.glob("*.png"))]
    if pictures:
        sections.append(Section("Acceptance, depth and load over time", pictures))
    ratios = [f for f in figures if "/ratio" in f"/{f.name}" and f.value is not None]
    if ratios:
        sections.append(Section("Ratios of speeds", [_ratios(ratios)]))
    sections.append(Section("All figures", list(figure_tables(figures))))
    return Page(
        title=f"acclimate {command}",
        lead="What the command measured, with intervals.",
        facts=[
            ("command", f"acclimate {command}"),
            ("engine", str(meta.get("engine", "not recorded"))),
            ("machine", str(meta.get("machine", "not recorded"))),
            ("seed", str(meta.get("seed"))),
            ("version", f"acclimate {meta.get('version', 'not recorded')}"),
            ("started", str(meta.get("started", "not recorded"))),
        ],
        sections=sections,
    )


def figure_tables(figures: list[Figure]) -> list[Block]:
    """Return figures as one table for each first part of their names."""
    groups: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        parts = figure.name.split("/")
        groups["/".join(parts[:2]) if len(parts) > 2 else parts[0]].append(figure)
    return [
        Table(name, FIGURE_HEAD, [figure_row(each) for each in group])
        for name, group in groups.items()
    ]


def _about(command: str) -> str:
    if command == "demo":
        return (
            "The demo serves one stream of prompts with every arm, round by round on a real engine. "
            "Figures compare the adaptive arm with fixed depths; intervals are over rounds. "
            "tokens_to_recover counts draft tokens from a shift of content until every predicted "
            "survival was within 0.05 of hindsight; headroom is what the best depth for every "
            "domain and load would have gained."
        )
    if command == "lab domains":
        return (
            "What an online predictor of acceptance gains from knowing more of a draft token: its "
            "domain label, its request's history, the length of the match that it was found by, and "
            "what became of the draft before (renewal). log_loss is in nats per graded token, each "
            "predicted before it was learned; gain is the share by which it is below that of the "
            "position alone; cold are requests with few graded tokens, warm those with many. "
            "Intervals are 95 %, over conversations."
        )
    return "Ratios are of speeds: above 1 is better. Intervals are 95 %, over n measurements."


def _png(path: Path, command: str) -> Picture:
    caption = (
        "Dots are acceptance seen, lines acceptance predicted before it was seen: where the line "
        "follows the dots, predictions are calibrated, and after the red dashed line the distance "
        "shows how soon they are right again. Below: drafts verified per request, and requests at a "
        "time."
        if command == "demo"
        else path.name
    )
    return Picture(path.read_bytes(), f"Picture {path.name}", caption, kind="png")


def _ratios(ratios: list[Figure]) -> Picture:
    shown = ratios[:_MOST_DRAWN]
    figure, (axis,) = axes(1, 1, 9.0, 1.0 + 0.3 * len(shown))
    intervals(axis, shown, [f.name for f in shown], at=1.0)
    axis.set_xlabel("ratio of speeds")
    return picture(
        figure,
        "Ratios of speeds with intervals",
        "Speed of the first arm named over that of the second, with 95 % intervals. Right of the red "
        "line it is faster.",
    )
