"""States of latency tables in early traces, brought into today's form."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.latency_kernels import (
    FURTHER_DRAFT,
    N_FEATURES,
    VERIFIED,
    line_ms,
    load_line,
)
from acclimate.predictors.numerics import FloatArray, IntArray

_SEVEN = 7  # features of a step, drafted tokens the last of them


def of_one_draft_price(
    state: dict[str, Any], ridge: FloatArray, ridge_moment: FloatArray
) -> dict[str, Any]:
    """Return a state in which all drafted tokens had one price, with today's three.

    They count as further tokens of drafts; what first tokens and passes cost starts from the prior.

    Parameters
    ----------
    state
        As saved, by whatever release.
    ridge, ridge_moment
        The prior of today's regression.
    """
    theta = np.asarray(state["theta"], dtype=np.float64)
    if theta.shape != (_SEVEN,):
        return state
    places = np.array([*range(_SEVEN - 1), FURTHER_DRAFT])
    wide, moment = ridge.copy(), ridge_moment.copy()
    wide[np.ix_(places, places)] = np.asarray(state["gram"])
    moment[places] = np.asarray(state["moment"])
    sums = np.asarray(state["load_sums"], dtype=np.float64)
    widened = np.zeros((sums.shape[0], 2 * N_FEATURES + 2))
    widened[:, places] = sums[:, :_SEVEN]
    widened[:, N_FEATURES + places] = sums[:, _SEVEN : 2 * _SEVEN]
    widened[:, 2 * N_FEATURES :] = sums[:, 2 * _SEVEN :]
    result = {**state, "theta": np.linalg.solve(wide, moment), "gram": wide, "moment": moment,
              "load_sums": widened}  # fmt: skip
    if "cells" in state:
        cells = np.asarray(state["cells"], dtype=np.float64)
        result["cells"] = np.zeros((*cells.shape[:2], N_FEATURES + 1))
        result["cells"][:, :, places] = cells[:, :, :_SEVEN]
        result["cells"][:, :, N_FEATURES] = cells[:, :, _SEVEN]
    return result


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
