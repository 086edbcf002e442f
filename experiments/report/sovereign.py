"""The report of ``lab sovereign``: speedup against headroom, harm against speed, the cluster."""

from __future__ import annotations

from pathlib import Path

from acclimate.experiments.figures import FIGURE_HEAD, figure_row, interval_text, number_text
from acclimate.experiments.lab.cell_store import read_cells
from acclimate.experiments.lab.sovereign_cell import BASE, SHIELDS
from acclimate.experiments.lab.sovereign_cluster import ENGINES
from acclimate.experiments.lab.sovereign_findings import ROWS, SovereignFindings, find_sovereign
from acclimate.experiments.lab.sovereign_targets import MOST_HARMED
from acclimate.experiments.report.drawing import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    axes,
    picture,
)
from acclimate.experiments.report.page import Items, Page, Picture, Section, Table, Text
from acclimate.experiments.report.stored import FIGURES_FILE, read_stored_figures
from acclimate.experiments.report.words import introduction

_COLORS = {
    "always_on": ORANGE,
    "headroom": GREEN,
    "ours_externality": BLUE,
    "ours": PURPLE,
    "ours_twin": PURPLE,
    "ours_neither": BLACK,
    "ours_sum": RED,
}
_MARKERS = {"f2": "o", "h100": "s", "cpu": "^"}
_CURVE_NAMES = {
    "f2": "a GPU as measured (F2)",
    "h100": "an H100 by its roofline",
    "cpu": "two CPU cores as measured",
}


def sovereign_page(folder: Path) -> Page:
    """Return the report of a folder's results.

    Raises
    ------
    ValueError
        The folder holds no results of ``lab sovereign``.
    """
    header, rows = read_cells(folder, ROWS)
    found = find_sovereign(header, rows)
    settings = header.settings
    meta, _ = read_stored_figures(folder / FIGURES_FILE)
    command = f"acclimate {header.command} --seeds {settings['seeds']} --seed {settings['seed']}"
    return Page(
        title="What is speculation worth as headroom shrinks, and who pays for it?",
        lead="Three engines from idle to saturated, three tenants who share one, and a cluster in "
        "two regions, all simulated.",
        facts=[
            ("command", command),
            ("runs", f"{len(rows)}"),
            ("machine", str(meta.get("machine", "not recorded"))),
            ("version", f"acclimate {header.version}"),
            ("started", header.started),
        ],
        sections=[
            introduction(
                "Verifying drafts is nearly free while a card waits for its memory, and costs its "
                "full price once every token costs compute. Headroom is the share of the "
                "saturating batch that is not there: 1 is a single request, 0 the whole batch. "
                "always_on verifies the largest depth; headroom sizes the drafts by the card's "
                "headroom alone; ours learns acceptance and step times. All are compared with k0, "
                "the same engine told to verify nothing, on the same luck."
            ),
            Section("Targets", [Items([target.line for target in found.targets], note=True)]),
            Section("Speedup against headroom", [_curves(found), _sweep(found)]),
            Section("Neighbours", [_shields(), _scatter(found), _neighbours(found)]),
            Section("A cluster in two regions", [_cluster_text(), _cluster(found)]),
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


def _curves(found: SovereignFindings) -> Picture:
    curves = list(dict.fromkeys(point.curve for point in found.sweep))
    rates = sorted({point.acceptance for point in found.sweep})
    figure, grid = axes(len(curves), len(rates), 3.2 * len(rates) + 1.6, 2.6 * len(curves))
    for row, curve in enumerate(curves):
        for column, acceptance in enumerate(rates):
            axis = grid[row * len(rates) + column]
            axis.axhline(1.0, color=RED, lw=1, ls="--")
            own = [p for p in found.sweep if (p.curve, p.acceptance) == (curve, acceptance)]
            for arm in dict.fromkeys(point.arm for point in own):
                line = sorted(
                    (p.headroom, p.speedup.value)
                    for p in own
                    if p.arm == arm and p.speedup.value is not None
                )
                axis.plot(
                    [x for x, _ in line],
                    [y for _, y in line],
                    marker="o",
                    ms=3,
                    lw=1.6,
                    color=_COLORS.get(arm, BLACK),
                    label=arm,
                )
            axis.set_xlim(1.04, -0.04)
            axis.set_ylim(bottom=0.0)
            axis.set_title(f"{curve}, acceptance {acceptance:g}", loc="left", fontsize=10)
            if row == len(curves) - 1:
                axis.set_xlabel("headroom")
        grid[row * len(rates)].set_ylabel(f"speed over {BASE}")
    if grid:
        handles, names = grid[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9)
    told = "; ".join(f"{curve}: {_CURVE_NAMES.get(curve, curve)}" for curve in curves)
    return picture(
        figure,
        "Speed over no speculation against headroom, by curve and acceptance",
        f"Speed over {BASE}, mean over seeds, from idle (left) to saturated (right). Below the red "
        f"line speculation harms. {told}.",
    )


def _sweep(found: SovereignFindings) -> Table:
    rows = [
        [
            p.curve,
            f"{p.acceptance:g}",
            f"{p.headroom:g}",
            str(p.requests),
            p.arm,
            interval_text(p.speedup, ".3f"),
            f"{p.verified_per_request:.2f}",
        ]
        for p in found.sweep
    ]
    head = ("curve", "acceptance", "headroom", "requests", "arm", f"speed / {BASE}",
            "drafts verified per request")  # fmt: skip
    return Table("Every point", head, rows, folded=True)


def _shields() -> Text:
    told = [
        f"{arm}: " + ", ".join(f"{key} {value}" for key, value in keys.items())
        for arm, keys in SHIELDS.items()
    ]
    return Text(
        [
            (
                "One tenant has a target of 1.2 times its pace without speculation, and drafts that are "
                "mostly wrong; another has good drafts; a third middling ones. A request with a target "
                "is harmed if it met it without speculation and not with it, one without a target if "
                "its time per token is more than 5 % longer."
            ),
            "What protects neighbours, by keys of the configuration's section slo: "
            + "; ".join(told)
            + ".",
        ]
    )


def _scatter(found: SovereignFindings) -> Picture:
    figure, (axis,) = axes(1, 1, 8.4, 3.4)
    axis.axvline(100 * MOST_HARMED, color=RED, lw=1, ls="--")
    seen = set()
    for p in found.neighbours:
        share, speed = p.harm.share, p.efficiency.value
        if share is None or speed is None:
            continue
        axis.scatter(
            [100 * share],
            [speed],
            color=_COLORS.get(p.arm, BLACK),
            marker=_MARKERS.get(p.curve, "o"),
            s=46,
            facecolors="none" if p.arm == "ours_twin" else None,
            label=None if p.arm in seen else p.arm,
        )
        seen.add(p.arm)
    axis.set_xscale("symlog", linthresh=1.0)
    axis.set_xlim(left=-0.1)
    axis.set_xlabel("requests harmed, %")
    axis.set_ylabel("speed over the best plan")
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture(
        figure,
        "Requests harmed against speed over the best plan, by arm",
        f"The best plan is the fastest of all fixed depths per tenant that harm at most "
        f"{MOST_HARMED:.1%} (red line). Circle: f2, square: h100, triangle: cpu.",
    )


def _neighbours(found: SovereignFindings) -> Table:
    rows = [
        [
            p.curve,
            p.arm,
            number_text(p.harm.share, ".2%"),
            number_text(p.harm.promised_share, ".2%"),
            interval_text(p.speedup, ".3f"),
            interval_text(p.efficiency, ".3f"),
        ]
        for p in found.neighbours
    ]
    rows += [
        [p.curve, f"best of {p.tried} plans: {p.plan}", f"{p.harmed:.2%}", "", "", "1"]
        for p in found.plans
    ]
    head = ("curve", "arm", "harmed", "of those with a target", f"speed / {BASE}",
            "speed / best plan")  # fmt: skip
    return Table("Paired with the run without speculation", head, rows)


def _cluster_text() -> Text:
    cards = ", ".join(f"{card} in {region}" for card, region in ENGINES)
    return Text(
        [
            (
                f"Engines: {cards}. A request stays in its region, so that no batch ever holds two. "
                "least_loaded takes the engine with the fewest requests; advised asks for placement "
                "advice, which needs policies that learn, and goes by load where they do not."
            )
        ]
    )


def _cluster(found: SovereignFindings) -> Table:
    rows = [
        [
            p.router,
            p.arm,
            interval_text(p.attainment, ".3f"),
            interval_text(p.goodput, ".0f"),
            number_text(p.harm.share, ".2%"),
            " ".join(f"{count:.0f}" for count in p.sent),
            str(p.abroad),
            str(p.mixed),
        ]
        for p in found.cluster
    ]
    head = ("router", "arm", "attainment", "goodput, tokens/s", "harmed", "sent to each engine",
            "sent abroad", "engines with two regions")  # fmt: skip
    return Table("By router and arm", head, rows)
