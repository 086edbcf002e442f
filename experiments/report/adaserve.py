"""The report of ``lab adaserve``: attainment and goodput against load, by setting, and targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acclimate.experiments.figures import FIGURE_HEAD, figure_row, interval_text, number_text
from acclimate.experiments.lab.adaserve_cell import AdaServeRow
from acclimate.experiments.lab.adaserve_findings import OURS, AdaServeFindings, find_adaserve
from acclimate.experiments.lab.cell_store import read_cells
from acclimate.experiments.report.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    axes,
    picture,
)
from acclimate.experiments.report.page import Items, Page, Picture, Section, Table, Text
from acclimate.experiments.report.stored import FIGURES_FILE, read_stored_figures
from acclimate.experiments.report.words import introduction

_STYLES: dict[str, tuple[str, str]] = {
    "none": (BLACK, "-"),
    "chunked": (GREEN, "-"),
    "spec4": (GREY, "-"),
    "spec6": (GREY, "--"),
    "spec8": (GREY, ":"),
    "adaserve": (ORANGE, "-"),
    "adaserve_ascending": (ORANGE, "--"),
    "adaserve_true": (RED, ":"),
    "adaptive": (BLUE, "-"),
}
_OTHER = (PURPLE, "-")


def adaserve_page(folder: Path) -> Page:
    """Return the report of a folder's results.

    Raises
    ------
    ValueError
        The folder holds no results of ``lab adaserve``.
    """
    header, rows = read_cells(folder, AdaServeRow)
    found = find_adaserve(header, rows)
    settings = header.settings
    meta, _ = read_stored_figures(folder / FIGURES_FILE)
    return Page(
        title="Whose requests keep their pace when acceptance shifts?",
        lead="AdaServe's published setting in simulation: three classes of requests that peak in "
        "turn, each with a promised time per token.",
        facts=[
            ("command", (f"acclimate {header.command} --seeds {settings['seeds']} --seed "
             f"{settings['seed']} --budget {settings['budget_tokens']}")),
            ("runs", f"{len(rows)}"),
            ("engine", "simulated: Llama 3.1 70B with a 1B draft on four A100, by the roofline"),
            ("AdaServe may verify", f"{settings['budget_tokens']} tokens a step"),
            ("a step of vLLM-Spec takes longer by", f"{settings['spec_overhead_ms']:g} ms"),
            ("machine", str(meta.get("machine", "not recorded"))),
            ("version", f"acclimate {header.version}"),
            ("started", header.started),
        ],
        sections=[
            introduction(
                "A request's promise is kept if its tokens after the first came, on average, as "
                "fast as its class was promised: coding at 1.2 times the pace of an idle engine, "
                "chat at 50 ms, summarisation at 150 ms per token. The draft model says how sure "
                "it is of each token. In the shifted settings something changes at the moment "
                "from which requests are judged: the text gets harder and the drafter knows it "
                "(covariate), confidence stays and means less (calibration), or another drafter "
                "takes over (swap). AdaServe believes what the drafter says; adaserve_true is "
                "told what it is worth."
            ),
            Section("Targets", [Items([target.line for target in found.targets], note=True)]),
            Section("Attainment and goodput against load", [_curves(found), _points(found)]),
            Section(f"{OURS} over AdaServe", [_contests(found)]),
            Section("What each arm is", [Text([
                ("none: no speculation, prompts before all else, as the published vLLM. chunked: no "
                "speculation, prompts in chunks beside decoding, as Sarathi-Serve. spec4, spec6, "
                "spec8: fixed depths on the engine of none. adaserve: needs first in the paper's "
                "order; adaserve_ascending: in its code's. adaptive: ours. The last four run on the "
                "engine of chunked."),
                ("One number is fitted: what a step of vLLM-Spec takes beyond its parts, so that "
                "spec4 attains the published 52 % at the middle load. It concerns the arms spec4, "
                "spec6 and spec8 alone."),
            ])]),
            Section("All figures", [Table(
                "Every figure with its interval", FIGURE_HEAD,
                [figure_row(figure) for figure in found.figures], folded=True,
            )]),
        ],
    )  # fmt: skip


def _curves(found: AdaServeFindings) -> Picture:
    settings = found.settings
    figure, both = axes(2, len(settings), 2.6 * len(settings) + 1.6, 5.4)
    arms = list(dict.fromkeys(point.arm for point in found.points))
    for column, setting in enumerate(settings):
        above, below = both[column], both[column + len(settings)]
        for arm in arms:
            points = found.of(setting, arm)
            if points:
                _line(above, arm, [(p.rate_per_s, p.attainment.value) for p in points])
                _line(below, arm, [(p.rate_per_s, p.goodput.value) for p in points])
        above.set_ylim(-0.02, 1.04)
        above.set_title(setting, loc="left", fontsize=11)
        below.set_ylim(bottom=0.0)
        below.set_xlabel("requests/s")
    both[0].set_ylabel("attainment")
    both[len(settings)].set_ylabel("goodput, tokens/s")
    handles, names = both[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9)
    return picture(
        figure,
        "Attainment and goodput of every arm against load, one column per setting",
        "Above: share of requests that kept the promised time per token. Below: tokens per second "
        "of these requests. Means over seeds; requests that arrive after the shift.",
    )


def _line(axis: Any, arm: str, points: list[tuple[float, float | None]]) -> None:
    color, dashes = _STYLES.get(arm, _OTHER)
    axis.plot(
        [x for x, _ in points], [y for _, y in points], dashes, color=color, marker="o", ms=3,
        lw=2.4 if arm == OURS else 1.4, label=arm, zorder=3 if arm == OURS else 2,
    )  # fmt: skip


def _points(found: AdaServeFindings) -> Table:
    names = [figure.name.split("/")[-2] for figure in found.points[0].classes]
    rows = [
        [
            p.setting, p.arm, f"{p.rate_per_s:g}", interval_text(p.attainment, ".3f"),
            interval_text(p.goodput, ".0f"), *(number_text(c, ".3f") for c in p.classes),
        ]
        for p in found.points
    ]  # fmt: skip
    head = ("setting", "arm", "requests/s", "attainment", "goodput, tokens/s", *names)
    return Table("Every point, attainment per class beside it", head, rows, folded=True)


def _contests(found: AdaServeFindings) -> Table:
    rows = [
        [
            c.setting, c.peer, f"{c.rate_per_s:g}", f"{c.peer_attainment:.3f}",
            number_text(c.attainment_ratio, ".3f"), number_text(c.violations_ratio, ".2f"),
            interval_text(c.goodput_ratio, ".3f"),
        ]
        for c in found.contests
    ]  # fmt: skip
    head = (
        "setting",
        "over",
        "requests/s",
        "its attainment",
        "attainment",
        "violations",
        "goodput",
    )
    return Table("Ratios of means over seeds; of violations below 1 is better", head, rows)
