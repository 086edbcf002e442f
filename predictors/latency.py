"""Duration of an engine step, learned while serving: a global line, a line per load, and cells.

Three levels, each shrunk towards the one above, so that a prediction is never an extrapolation
where something was measured, and never a lucky single cell where little was:

1. a ridge regression over the whole step: constant, decode requests, verified drafts, prefill
   tokens, context, sampled rows, drafted tokens (T_v and T_d share it);
2. per decode count, an offset and a slope over verified drafts;
3. per (decode count, verified drafts), an offset: cliffs.

The lines forget; a cell keeps what its latest visits measured, which moves with its line: whoever
decides must look again at cells that were not visited for long (`StepLatency.evidence`).
A stall is told from a slow cell by repetition: far-off steps weigh nothing until they recur.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.latency_doubt import curve_errors
from acclimate.predictors.latency_kernels import (
    DRAFT,
    FEW_PREFILL_SHARE,
    N_FEATURES,
    NOISE_RATIO,
    PREFILL,
    VERIFIED,
    learn_step,
    line_ms,
    load_line,
    noise_ms,
    step_curve,
)
from acclimate.predictors.numerics import (
    FloatArray,
    geometric_buckets,
    load_arrays,
    save_arrays,
)

# Roofline-like prior in ms: an unknown constant, small costs per token, with standard deviations.
_PRIOR_MEAN_MS = np.array([10.0, 0.05, 0.05, 0.05, 0.1, 0.01, 0.01])
_PRIOR_SD_MS = np.array([100.0, 1.0, 1.0, 1.0, 2.0, 0.5, 0.2])
_ENOUGH_SPREAD = 60.0  # decayed steps times variance of verified drafts that fix a slope
_MEASURED_STEPS = 3.0
_SETTLING_STEPS = 20  # before that, nothing is a stall


class StepLatency:
    """Predicts milliseconds per step against the number of verified drafts.

    Parameters
    ----------
    max_requests
        Largest decode count; larger ones are clipped.
    max_verified
        Largest number of verified drafts in a step; larger ones are clipped.
    window_steps
        Steps after which evidence has decayed to 1/e.

    Examples
    --------
    >>> model = StepLatency(max_requests=8, max_verified=32)
    >>> for step in range(200):
    ...     m = step % 5
    ...     _ = model.learn(4, m, latency_ms=20.0 + 0.5 * m)
    >>> model.curve(4, max_verified=4).round(1).tolist()
    [20.0, 20.5, 21.0, 21.5, 22.0]
    """

    def __init__(
        self, max_requests: int, max_verified: int, *, window_steps: float = 400.0
    ) -> None:
        self.max_requests = max_requests
        self.max_verified = max_verified
        self.window_steps = window_steps
        self._load = geometric_buckets(max_requests, exact=16, per_octave=8)
        self._cell = geometric_buckets(max_verified, exact=32, per_octave=8)
        n_loads, n_cells = int(self._load[-1]) + 1, int(self._cell[-1]) + 1
        precision = (NOISE_RATIO * 10.0 / _PRIOR_SD_MS) ** 2
        self._ridge = np.diag(precision)
        self._ridge_moment = precision * _PRIOR_MEAN_MS
        self.gram = self._ridge.copy()
        self.moment = self._ridge_moment.copy()
        self.theta = _PRIOR_MEAN_MS.copy()
        # Per load: sums of x and m·x over its steps, then of y and m·y (y in ms, m verified).
        self.load_sums = np.zeros((n_loads, 2 * N_FEATURES + 2))
        self.scatter_ms = np.zeros(n_loads)  # mean |error|
        self.far_share = np.zeros((n_loads, n_cells))  # of steps far above expectation
        self.visits = np.zeros((n_loads, n_cells))  # steps ever, where the weights forget
        self.weights = np.zeros((n_loads, n_cells))
        # Per cell: means of x, then of y, over its latest visits.
        self.cells = np.zeros((n_loads, n_cells, N_FEATURES + 1))
        self.steps = 0
        self.stalls = 0

    def curve(
        self,
        requests: int,
        max_verified: int,
        *,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        sampled_rows: int = 0,
        draft_depth: int = 0,
    ) -> FloatArray:
        """Return milliseconds for 0, 1, … ``max_verified`` verified drafts, shape (m + 1,)."""
        return step_curve(
            self.theta,
            self.load_sums,
            self.visits,
            self.cells,
            self.scatter_ms,
            self._cell,
            self._load[min(requests, self.max_requests)],
            min(max_verified, self.max_verified),
            requests,
            prefill_tokens,
            context_tokens,
            sampled_rows,
            draft_depth,
        )

    def drafting(self, requests: int, depths: FloatArray) -> FloatArray:
        """Return milliseconds that drafting costs for all requests at each of ``depths``."""
        cost: FloatArray = max(float(self.theta[DRAFT]), 0.0) * requests * depths
        return cost

    def prefill(self, prefill_tokens: int) -> float:
        """Return the milliseconds of a step that its prefill tokens account for."""
        return max(float(self.theta[PREFILL]), 0.0) * prefill_tokens

    def evidence(self, requests: int, verified: int) -> float:
        """Return the decayed number of steps measured at this load and verified count."""
        load = self._load[min(requests, self.max_requests)]
        return float(self.weights[load, self._cell[min(verified, self.max_verified)]])

    @staticmethod
    def is_clean(prefill_tokens: int, decode_tokens: int) -> bool:
        """Whether a step has so little prefill that it tells how long its decode tokens take."""
        return prefill_tokens <= FEW_PREFILL_SHARE * decode_tokens

    def doubt(self, requests: int, verified: int, step_ms: float) -> float | None:
        """Return the standard error of ``step_ms``, the length predicted; None if hardly measured.

        It counts every step that was ever measured here: what has changed since is for those to
        notice who watch for change.
        """
        load = self._load[min(requests, self.max_requests)]
        cell = self._cell[min(verified, self.max_verified)]
        # A draft or two missing puts a step into the cell below.
        visits = float(self.visits[load, max(cell - 1, min(cell, 1)) : cell + 1].sum())
        if visits < _MEASURED_STEPS:
            return None
        return noise_ms(float(self.scatter_ms[load]), step_ms) / math.sqrt(visits)

    def errors(self, requests: int, milliseconds: FloatArray) -> FloatArray:
        """Return the standard errors of a `curve`, infinite where hardly measured; see `doubt`."""
        load = self._load[min(requests, self.max_requests)]
        return curve_errors(
            milliseconds, self.visits[load], float(self.scatter_ms[load]), self._cell
        )

    def slope_known(self, requests: int) -> bool:
        """Whether verified counts varied enough at this load to tell what one more takes."""
        load = self._load[min(requests, self.max_requests)]
        sums = self.load_sums[load]
        weight, first = float(sums[0]), float(sums[VERIFIED])
        second = float(sums[N_FEATURES + VERIFIED])
        return weight > 0 and second - first * first / weight >= _ENOUGH_SPREAD

    def learn(
        self,
        requests: int,
        verified: int,
        *,
        latency_ms: float,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        sampled_rows: int = 0,
        draft_depth: int = 0,
    ) -> float:
        """Learn from one step, and return the prediction made for it before.

        Raises
        ------
        ValueError
            ``latency_ms`` is not a positive finite number.
        """
        if not 0.0 < latency_ms < math.inf:
            raise ValueError(f"latency_ms must be positive and finite, got {latency_ms}")
        verified = min(verified, self.max_verified)
        self.steps += 1
        predicted_ms, stalled = learn_step(
            self.theta,
            self.gram,
            self.moment,
            self._ridge,
            self._ridge_moment,
            self.load_sums,
            self.scatter_ms,
            self.far_share,
            self.visits,
            self.weights,
            self.cells,
            self._load[min(requests, self.max_requests)],
            self._cell[verified],
            requests,
            verified,
            prefill_tokens,
            context_tokens,
            sampled_rows,
            draft_depth,
            latency_ms,
            math.exp(-1.0 / self.window_steps),
            self.steps > _SETTLING_STEPS,
        )
        self.stalls += stalled
        return predicted_ms

    def state(self) -> dict[str, Any]:
        """Return sums as arrays; predictions after `load` are bitwise the same."""
        return {**save_arrays(self, _STATE), "steps": self.steps, "stalls": self.stalls}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state's table has another shape.
        """
        if "cell_offset" in state:
            state = self._of_offsets(state)
        shape = np.asarray(state["weights"]).shape
        if shape != self.weights.shape:
            raise ValueError(f"latency table must be {self.weights.shape}, got {shape}")
        load_arrays(self, _STATE, state)
        self.steps, self.stalls = int(state["steps"]), int(state["stalls"])

    def _of_offsets(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state that an early trace's would be: it kept cells as offsets from a line."""
        # Its cells were cut a little differently.
        missing = max(self.weights.shape[1] - np.asarray(state["cell_offset"]).shape[1], 0)
        offset, weights, far_share = (
            np.pad(np.asarray(state[name]), ((0, 0), (0, missing)))
            for name in ("cell_offset", "cell_weight", "far_share")
        )
        theta, sums = np.asarray(state["theta"]), np.asarray(state["load_sums"])
        cells = np.zeros((*offset.shape, N_FEATURES + 1))
        for load, cell in np.argwhere(weights > 0.0).tolist():
            x = sums[load, :N_FEATURES] / sums[load, 0]
            x[VERIFIED] = float(np.flatnonzero(self._cell == cell).mean())
            line = load_line(theta, sums[load], float(np.asarray(state["scatter_ms"])[load]))
            cells[load, cell, :N_FEATURES] = x
            cells[load, cell, N_FEATURES] = line_ms(theta, x, line) + offset[load, cell]
        return {**state, "weights": weights, "visits": weights, "far_share": far_share,
                "cells": cells}  # fmt: skip


_STATE = (
    "gram",
    "moment",
    "theta",
    "load_sums",
    "scatter_ms",
    "far_share",
    "visits",
    "weights",
    "cells",
)
