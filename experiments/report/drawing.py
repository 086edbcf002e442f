"""Matplotlib as reports use it: without a screen, in one style, as SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.experiments.figures import Figure
from acclimate.experiments.report.page import Picture

BLUE, PURPLE, BLACK, ORANGE, GREY = "#1f618d", "#8e44ad", "#1f2933", "#ca6f1e", "#b8c2cc"
RED, GREEN = "#c0392b", "#1e8449"


def axes(rows: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Return a figure of ``width`` by ``height`` inches, and its axes row by row."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        rows, columns, figsize=(width, height), layout="constrained", squeeze=False
    )
    for axis in grid.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#edf0f2", lw=0.8)
        axis.set_axisbelow(True)
    return figure, list(grid.flat)


def picture(figure: Any, shows: str, caption: str) -> Picture:
    """Return a figure as a picture, the same bytes for the same figure, and close it."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "acclimate"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return Picture(buffer.getvalue(), shows, caption)


def heat(
    axis: Any,
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    low: float,
    high: float,
    colors: str,
) -> None:
    """Draw a table of colours with a text in every cell."""
    table = np.array([[np.nan if v is None else v for v in row] for row in values])
    axis.grid(visible=False)
    axis.imshow(table, aspect="auto", cmap=colors, vmin=low, vmax=high)
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            shade = (table[i, j] - low) / (high - low) if high > low else 0.0
            axis.text(
                j, i, text, ha="center", va="center", fontsize=8,
                color="white" if np.isfinite(shade) and shade > 0.65 else BLACK,
            )  # fmt: skip
    axis.set_xticks(range(len(columns)), columns)
    axis.set_yticks(range(len(rows)), rows)
    axis.tick_params(length=0)


def intervals(axis: Any, figures: Sequence[Figure], names: Sequence[str], *, at: float) -> None:
    """Draw values with their intervals, one line each from the top, and a line at ``at``."""
    axis.axvline(at, color=RED, lw=1, ls="--")
    for y, figure in enumerate(figures):
        if figure.value is None:
            continue
        low = figure.value if figure.low is None else figure.low
        high = figure.value if figure.high is None else figure.high
        axis.plot([low, high], [y, y], color=BLUE, lw=2, solid_capstyle="round")
        axis.plot([figure.value], [y], "o", color=BLUE, ms=5)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
