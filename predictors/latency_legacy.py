"""States of latency tables in early traces, brought into today's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.latency_kernels import N_FEATURES, VERIFIED, line_ms, load_line
from acclimate.predictors.numerics import IntArray


def of_offsets(state: dict[str, Any], cell_of: IntArray, n_cells: int) -> dict[str, Any]:
    """Return the state that an early trace's would be: it kept cells as offsets from a line.

    Parameters
    ----------
    state
        As saved then.
    cell_of
        Cell of each number of verified drafts.
    n_cells
        Cells of today's table: they were cut a little differently.
    """
    missing = max(n_cells - np.asarray(state["cell_offset"]).shape[1], 0)
    offset, weights, far_share = (
        np.pad(np.asarray(state[name]), ((0, 0), (0, missing)))
        for name in ("cell_offset", "cell_weight", "far_share")
    )
    theta, sums = np.asarray(state["theta"]), np.asarray(state["load_sums"])
    cells = np.zeros((*offset.shape, N_FEATURES + 1))
    for load, cell in np.argwhere(weights > 0.0).tolist():
        x = sums[load, :N_FEATURES] / sums[load, 0]
        x[VERIFIED] = float(np.flatnonzero(cell_of == cell).mean())
        line = load_line(theta, sums[load], float(np.asarray(state["scatter_ms"])[load]))
        cells[load, cell, :N_FEATURES] = x
        cells[load, cell, N_FEATURES] = line_ms(theta, x, line) + offset[load, cell]
    return {**state, "weights": weights, "visits": weights, "far_share": far_share, "cells": cells}
