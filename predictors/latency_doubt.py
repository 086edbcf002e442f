"""How far predicted step times may be off, for a whole curve at once."""

from __future__ import annotations

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.latency_kernels import noise_ms
from acclimate.predictors.numerics import FloatArray, IntArray

MEASURED_STEPS = 3.0
"""Steps after which a number of verified drafts counts as measured."""


@compiled("f8(f8[::1], i8, f8, f8)")
def standard_error(visits: FloatArray, cell: int, scatter_ms: float, step_ms: float) -> float:
    """Return the standard error of one predicted time, infinite where hardly measured.

    Parameters
    ----------
    visits
        Shape (cells,): steps ever seen of each cell, at this load.
    cell
        Whose time it is.
    scatter_ms
        Mean absolute error of single steps at this load.
    step_ms
        The time predicted.
    """
    # A draft or two missing puts a step into the cell below.
    seen = visits[cell] + (visits[cell - 1] if cell > 1 else 0.0)
    if seen < MEASURED_STEPS:
        return float(np.inf)
    return float(noise_ms(scatter_ms, step_ms) / np.sqrt(seen))


@compiled("void(f8[::1], f8[::1], f8[::1], f8, i8[::1], i8, i8)")
def write_errors(
    errors_ms: FloatArray,
    milliseconds: FloatArray,
    visits: FloatArray,
    scatter_ms: float,
    cell_of: IntArray,
    first: int,
    end: int,
) -> None:
    """Write the standard error of each predicted time, infinite where hardly measured.

    Parameters
    ----------
    errors_ms
        Shape (m + 1,): written from ``first`` to before ``end``.
    milliseconds
        Shape (m + 1,): predicted for 0, 1, … m verified drafts.
    visits
        Shape (cells,): steps ever seen of each cell, at this load.
    scatter_ms
        Mean absolute error of single steps at this load.
    cell_of
        The cell of each number of verified drafts, for m at least.

    Examples
    --------
    >>> errors = np.empty(3)
    >>> write_errors(errors, np.array([10.0, 10.0, 12.0]), np.array([100.0, 1.0, 4.0]), 0.4,
    ...              np.array([0, 1, 2]), 0, 3)
    >>> errors.round(3).tolist()
    [0.05, inf, 0.224]
    """
    for m in range(first, end):
        errors_ms[m] = standard_error(visits, cell_of[m], scatter_ms, milliseconds[m])
