"""The table behind predicted step times: which cell a step belongs to, and the sums kept of each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.capture_sizes import padded
from acclimate.predictors.latency_kernels import (
    FIRST_DRAFT,
    FURTHER_DRAFT,
    FURTHER_PASS,
    N_FEATURES,
    NOISE_RATIO,
    PREFILL,
    VERIFIED,
)
from acclimate.predictors.latency_legacy import of_offsets, of_one_draft_price
from acclimate.predictors.numerics import IntArray, geometric_buckets, load_arrays, save_arrays

# Roofline-like prior in ms: an unknown constant, small costs per token, with standard deviations.
_PRIOR_MEAN_MS = np.array([10.0, 0.05, 0.05, 0.05, 0.1, 0.01, 0.01, 0.01, 0.05])
_PRIOR_SD_MS = np.array([100.0, 1.0, 1.0, 1.0, 2.0, 0.5, 0.2, 0.2, 2.0])
_ALIKE_MS = 0.1  # standard deviation of a verified draft's time from a prompt token's
_CLIFFS = 0.1**2  # mean square of a cell's distance from its line, relative, before any was seen
_ENOUGH_SPREAD = 60.0  # decayed steps times variance of verified drafts that fix a slope
_LEAST_PACE, _MOST_PACE = 1e-6, 1e6
_DRAFTING = [FIRST_DRAFT, FURTHER_DRAFT, FURTHER_PASS]
_ROUNDING = 1e-9  # of an eigenvalue, for features that always came together


class LatencyTable:
    """What steps took, summed up per load and per cell, and the prior before any.

    Parameters
    ----------
    max_requests, max_verified, capture_sizes, prices_drafting
        As for `acclimate.predictors.latency.StepLatency`.

    Raises
    ------
    ValueError
        ``capture_sizes`` are not ascending and positive.
    """

    def __init__(
        self,
        max_requests: int,
        max_verified: int,
        capture_sizes: tuple[int, ...],
        *,
        prices_drafting: bool = True,
    ) -> None:
        self.prices_drafting = prices_drafting
        self.max_requests = max_requests
        self.max_verified = max_verified
        self._load = geometric_buckets(max_requests, exact=16, per_octave=8)
        self.capture_sizes = tuple(capture_sizes)
        # Cell and padded count of each number of drafts; of tokens, where the engine pads.
        most = max_verified + (max_requests if capture_sizes else 0)
        self._cell, self._count = padded(capture_sizes, most)
        self._n_loads = int(self._load[-1]) + 1
        n_loads = self._n_loads * (2 if capture_sizes else 1)
        n_cells = int(self._cell[-1]) + 1
        precision = (NOISE_RATIO * 10.0 / _PRIOR_SD_MS) ** 2
        self._ridge = np.diag(precision)
        # Until drafts were verified: a token of a draft takes about what one of a prompt takes.
        alike = (NOISE_RATIO * 10.0 / _ALIKE_MS) ** 2
        self._ridge[[VERIFIED, PREFILL], [VERIFIED, PREFILL]] += alike
        self._ridge[[VERIFIED, PREFILL], [PREFILL, VERIFIED]] -= alike
        self._ridge_moment = self._ridge @ _PRIOR_MEAN_MS
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
        self.cliffs = np.array([_CLIFFS])
        self.pace = 1.0
        self.steps = 0
        self.stalls = 0

    def evidence(self, requests: int, verified: int) -> float:
        """Return the decayed number of steps measured at this load and verified count."""
        return float(self.weights[self._place(requests, verified)])

    def visited(self, requests: int, verified: int) -> float:
        """Return the number of steps ever measured here, since its cell began anew if it did."""
        return float(self.visits[self._place(requests, verified)])

    def slope_known(self, requests: int) -> bool:
        """Whether verified counts varied enough at this load to tell what one more takes."""
        load = self._load[min(requests, self.max_requests)]
        sums = self.load_sums[load]
        weight, first = float(sums[0]), float(sums[VERIFIED])
        second = float(sums[N_FEATURES + VERIFIED])
        return weight > 0 and second - first * first / weight >= _ENOUGH_SPREAD

    def rescale(self, ratio: float) -> None:
        """Multiply every length by ``ratio``: all cells, all lines and the prior.

        Raises
        ------
        ValueError
            ``ratio`` is not positive and finite.
        """
        if not 0.0 < ratio < math.inf:
            raise ValueError(f"ratio must be positive and finite, got {ratio}")
        self.pace *= ratio

    def state(self) -> dict[str, Any]:
        """Return sums as arrays; predictions after `load` are bitwise the same."""
        return {**save_arrays(self, _STATE), "pace": self.pace,
                "steps": self.steps, "stalls": self.stalls}  # fmt: skip

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state's table has another shape.
        """
        state = of_one_draft_price(state, self._ridge, self._ridge_moment)
        if "cell_offset" in state:
            state = of_offsets(state, self._cell, self.weights.shape[1])
        shape = np.asarray(state["weights"]).shape
        if shape != self.weights.shape:
            raise ValueError(f"latency table must be {self.weights.shape}, got {shape}")
        load_arrays(self, _STATE, {"cliffs": [_CLIFFS], **state})
        if not self.prices_drafting and self.load_sums[:, _DRAFTING].any():
            self._drop_drafting()
        self.pace = float(state.get("pace", 1.0))
        self.steps, self.stalls = int(state["steps"]), int(state["stalls"])

    def check(self) -> None:
        """Refuse sums that no learner can have arrived at: `load` takes what has the right form.

        Raises
        ------
        ValueError
            A number is not finite, a count is negative, the pace is absurd, or the regression
            cannot be solved.
        """
        for name in _STATE:
            if not np.isfinite(getattr(self, name)).all():
                raise ValueError(f"{name} must be finite, got NaN or infinity")
        for name in ("visits", "weights", "scatter_ms", "far_share", "cliffs"):
            least = float(getattr(self, name).min())
            if least < 0.0:
                raise ValueError(f"{name} must be >= 0, got {least}")
        if self.load_sums[:, 0].min() < 0.0 or min(self.steps, self.stalls) < 0:
            raise ValueError("steps must be >= 0, got less")
        if not _LEAST_PACE < self.pace < _MOST_PACE:
            raise ValueError(f"pace must be near 1, got {self.pace}")
        diagonal = np.diag(self.gram)
        if diagonal.min() <= 0.0:
            raise ValueError("gram must be positive definite")
        scaled = self.gram / np.sqrt(np.outer(diagonal, diagonal))
        even = np.abs(scaled - scaled.T).max() <= _ROUNDING
        if not even or np.linalg.eigvalsh(scaled).min() < -_ROUNDING:
            raise ValueError("gram must be positive definite")
        if not np.isfinite(np.linalg.inv(self.gram)).all():
            raise ValueError("gram must have an inverse")

    def _drop_drafting(self) -> None:
        """Let the steps of a state that counted drafts be as long without them."""
        self.gram[_DRAFTING], self.gram[:, _DRAFTING] = (
            self._ridge[_DRAFTING],
            self._ridge[:, _DRAFTING],
        )
        self.moment[_DRAFTING] = self._ridge_moment[_DRAFTING]
        self.theta[:] = np.linalg.solve(self.gram, self.moment)
        for first in (0, N_FEATURES):
            self.load_sums[:, [first + feature for feature in _DRAFTING]] = 0.0
        self.cells[:, :, _DRAFTING] = 0.0

    def _place(self, requests: int, verified: int) -> tuple[int, int]:
        """Return row and cell of a step."""
        n, m = min(requests, self.max_requests), min(verified, self.max_verified)
        if not self.capture_sizes:
            return int(self._load[n]), int(self._cell[m])
        beyond = n + m > self.capture_sizes[-1]
        return int(self._load[n]) + beyond * self._n_loads, int(self._cell[n + m])

    def _tables(self, requests: int) -> tuple[IntArray, IntArray]:
        """Return the cells of 0, 1, … drafts at a load, and as how many they count."""
        if not self.capture_sizes:
            return self._cell, self._count
        n = min(requests, self.max_requests)
        return self._cell[n:], self._count[n:] - n

    def _modes(self, requests: int, size: int) -> tuple[tuple[int, int, int], ...]:
        """Return rows and ranges of drafts: within the captured sizes, and beyond."""
        n = min(requests, self.max_requests)
        load = int(self._load[n])
        if not self.capture_sizes:
            return ((load, 0, size),)
        within = min(max(self.capture_sizes[-1] - n + 1, 0), size)
        return (load, 0, within), (load + self._n_loads, within, size)


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
    "cliffs",
)
