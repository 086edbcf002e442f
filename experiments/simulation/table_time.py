"""Step times from a table that somebody measured."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray
from acclimate.experiments.readers.latency_table import read_latency_table
from acclimate.experiments.simulation.step_grid import build_grid, grid_curve
from acclimate.experiments.simulation.step_time import StepMakeUp


class TableTime:
    """Step times from measured cells (batch, drafts per request, ms).

    A listed cell is returned exactly, cliffs included. Between batches times are linear in the
    batch, between depths linear in verified drafts per request. Beyond the last batch and the last
    depth the last slope goes on, never falling; below the first batch its row counts. A depth 0 that is
    not listed lies on the line through the first two. Cells listed several times count with their
    median.

    Parameters
    ----------
    batch, depth, ms
        Shape (n,): decode requests, drafts that each verifies, and the step's milliseconds.
    context, prefill
        Shape (n,), optional: context tokens per request and prefill tokens in the step.
    draft_share
        Share in [0, 1] of the excess over depth 0 that pays for drafting, the rest for verifying.
        A table of static depths cannot tell the two apart, and for a static depth it is the same.
    prefill_ms_per_token
        Cost of a prefill token where the table lists but one prefill. By default what a verified
        token costs in the largest batch, where the step is busy.

    Raises
    ------
    ValueError
        A cell is out of range or not finite, or the arrays differ in length.

    Examples
    --------
    >>> from acclimate.experiments.simulation.step_time import StepMakeUp
    >>> table = TableTime([1, 1, 4, 4], [0, 2, 0, 2], [10.0, 11.0, 12.0, 20.0])
    >>> table.step_ms(StepMakeUp(4, 8)), table.step_ms(StepMakeUp(2, 0))
    (20.0, 10.666666666666666)
    >>> table.curve(StepMakeUp(4, 8))[::4].tolist()
    [12.0, 16.0, 20.0]
    """

    def __init__(
        self,
        batch: npt.ArrayLike,
        depth: npt.ArrayLike,
        ms: npt.ArrayLike,
        *,
        context: npt.ArrayLike | None = None,
        prefill: npt.ArrayLike | None = None,
        draft_share: float = 0.0,
        prefill_ms_per_token: float | None = None,
    ) -> None:
        if not 0.0 <= draft_share <= 1.0:
            raise ValueError(f"draft_share must be in [0, 1], got {draft_share}")
        if prefill_ms_per_token is not None and not 0.0 <= prefill_ms_per_token < np.inf:
            raise ValueError(f"prefill_ms_per_token must be >= 0, got {prefill_ms_per_token}")
        times = _column("ms", ms, None)
        if times.size == 0:
            raise ValueError("a latency table must have a row, got none")
        if times.min() <= 0:
            raise ValueError(f"ms must be > 0, got {times.min():g}")
        grid = build_grid(
            _column("batch", batch, times.size, at_least=1.0),
            _column("depth", depth, times.size),
            times,
            _column("context", np.zeros(times.size) if context is None else context, times.size),
            _column("prefill", np.zeros(times.size) if prefill is None else prefill, times.size),
        )
        if prefill_ms_per_token is None:
            prefill_ms_per_token = _busy_token_ms(grid.batches, grid.depths, grid.ms[0, 0])
        self.prefill_ms_per_token = prefill_ms_per_token
        self.draft_share = draft_share
        self.grid = grid
        self._fixed = (
            grid.ms,
            grid.contexts,
            grid.prefills,
            grid.batches,
            grid.depths,
            prefill_ms_per_token,
            draft_share,
        )

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        draft_share: float = 0.0,
        prefill_ms_per_token: float | None = None,
    ) -> TableTime:
        """Take the cells of a CSV file (see `read_latency_table`).

        Raises
        ------
        ValueError
            The file is of another kind, or has no row that can be used.
        """
        read = read_latency_table(path)
        if not read.kept:
            reasons = ", ".join(f"{reason}: {n}" for reason, n in read.dropped.items())
            raise ValueError(f"{os.path.basename(path)} must have a usable row, got {reasons}")
        table = read.value
        return cls(
            table.batch,
            table.depth,
            table.ms,
            context=table.context,
            prefill=table.prefill,
            draft_share=draft_share,
            prefill_ms_per_token=prefill_ms_per_token,
        )

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of one step; a table knows nothing of sampled rows."""
        return float(self._times(makeup, makeup.verified)[0])

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations with 0, 1, … ``makeup.verified`` drafts verified, shape (m + 1,)."""
        return self._times(makeup, 0)

    def _times(self, makeup: StepMakeUp, least_verified: int) -> FloatArray:
        return grid_curve(
            *self._fixed,
            makeup.requests,
            least_verified,
            makeup.verified,
            makeup.prefill_tokens,
            makeup.context_tokens,
            makeup.draft_depth,
        )


def _column(
    name: str, values: npt.ArrayLike, size: int | None, *, at_least: float = 0.0
) -> FloatArray:
    column = np.asarray(values, dtype=np.float64).reshape(-1)
    if size is not None and column.size != size:
        raise ValueError(f"{name} must have {size} entries like ms, got {column.size}")
    if not np.isfinite(column).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity")
    if column.size and column.min() < at_least:
        raise ValueError(f"{name} must be >= {at_least:g}, got {column.min():g}")
    return column


def _busy_token_ms(batches: FloatArray, depths: FloatArray, ms: FloatArray) -> float:
    """Return milliseconds of one more token in the largest batch; 0 where one cell is all."""
    if depths.size > 1:
        slope = (ms[-1, -1] - ms[-1, 0]) / (batches[-1] * depths[-1])
    elif batches.size > 1:
        slope = (ms[-1, 0] - ms[-2, 0]) / (batches[-1] - batches[-2])
    else:
        slope = 0.0
    return max(float(slope), 0.0)
