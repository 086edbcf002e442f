"""Results of ``lab trees`` as a finished run leaves them."""

from __future__ import annotations

from pathlib import Path

from acclimate.experiments.figures import Meta, write_figures
from acclimate.experiments.lab.cell_store import CellStore
from acclimate.experiments.lab.tree_cells import TreeRow
from acclimate.experiments.lab.trees import COMMAND, TreeOptions, tree_figures

_TIMES: list[float | None] = [float(i) for i in range(40)]


def write_tree_results(folder: Path) -> None:
    """Write results and figures of every part."""
    options = TreeOptions()
    with CellStore(folder, COMMAND, options.settings(seed=0), TreeRow) as store:
        for row in tree_rows():
            store.add(row)
        figures = tree_figures(store.rows, seed=0)
    write_figures(folder / "figures.json", figures, Meta(COMMAND, engine="trees", seed=0))


def tree_rows() -> list[TreeRow]:
    """Return a row of every part that needs no model."""
    shape = {
        name: [1.0 + i % 3 for i in range(40)]
        for name in ("requests", "depth", "width", "nodes", "tokens")
    }
    worth: dict[str, list[float | None]] = {}
    for domain in ("prose", "code"):
        for kind, value in (
            ("ece_raw", 0.03), ("ece_calibrated", 0.01), ("ece_perfect", 0.012),
            ("expected_to_measured_length", 0.99), ("commit_ratio_to_best_chain", 1.1),
        ):  # fmt: skip
            worth[f"tree/{domain}/{kind}"] = [value, 1_000.0]
    swaps = [
        TreeRow(
            key=f"swap/{swap}/{policy}/0",
            numbers={
                "tokens": [float(tokens)], "recovered": [1.0], "graded": [5_000.0],
                "share": [0.99], "noticed": [None], "swapped_s": [20.0],
                "shape/now_s": _TIMES,
                **{f"shape/{name}": list(column) for name, column in shape.items()},
            },
        )
        for swap in ("worse", "better")
        for policy, tokens in (("adaptive_tree", 400), ("clairvoyant_tree", 300),
                               ("oracle_tree", 0))
    ]  # fmt: skip
    shift = TreeRow(
        key="shift/shapes",
        numbers={
            "phase": [float(i // 20) for i in range(40)], "now_s": _TIMES,
            **{name: list(column) for name, column in shape.items()},
        },
        names={"phases": ["prose, 1 at a time", "code, 8 at a time"]},
    )  # fmt: skip
    speeds = [
        TreeRow(
            key=f"speed/{number}",
            numbers={
                "tokens": [100.0] * 4, "seconds": [1.0, 1.1, 1.2 + 0.01 * number, 1.3],
                "request_steps": [50.0] * 4, "verified": [80.0] * 4,
            },
            names={"arms": ["adaptive_tree", "4x1x4"], "cells": ["prose/c1", "code/c8"]},
        )
        for number in range(3)
    ]  # fmt: skip
    return [TreeRow(key="worth/all", numbers=worth), *swaps, shift, *speeds]
