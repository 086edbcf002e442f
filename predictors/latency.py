"""Duration of an engine step, learned while serving: a global line, a line per load, and cells.

Three levels, each shrunk towards the one above, so that a prediction is never an extrapolation
where something was measured, and never a lucky single cell where little was:

1. a ridge regression over the whole step: constant, decode requests, verified drafts, prefill
   tokens, context, sampled rows, drafted tokens (T_v and T_d share it);
2. per decode count, an offset and a slope over verified drafts;
3. per (decode count, verified drafts), an offset: cliffs.

Weights decay, so that a cell that is not visited returns to its prior: no dead end is one-way.
A stall is told from a slow cell by repetition: far-off steps weigh nothing until they recur.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.numerics import FloatArray, geometric_buckets

_FEATURES = 7
# Roofline-like prior in ms: an unknown constant, small costs per token, with standard deviations.
_PRIOR_MEAN_MS = np.array([10.0, 0.05, 0.05, 0.05, 0.1, 0.01, 0.01])
_PRIOR_SD_MS = np.array([100.0, 1.0, 1.0, 1.0, 2.0, 0.5, 0.2])
_NOISE_RATIO = 0.05  # a step scatters by about this share of its length
_CELL_SHRINKAGE = 6.0
_STALL_SIGMAS = 6.0
_STALL_RECURS = 0.35  # share of far-off steps at which slow is the truth


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
        self._verified = np.arange(max_verified + 1, dtype=np.float64)
        self._keep = float(np.exp(-1.0 / window_steps))
        precision = (_NOISE_RATIO * 10.0 / _PRIOR_SD_MS) ** 2
        self._ridge = np.diag(precision)
        self.gram = self._ridge.copy()
        self.moment = precision * _PRIOR_MEAN_MS
        self._ridge_moment = self.moment.copy()
        self.theta = _PRIOR_MEAN_MS.copy()
        # Per load: weight, weight*m, weight*m*m, weight*r, weight*m*r; then offset and slope.
        self.load_sums = np.zeros((n_loads, 5))
        self.load_line = np.zeros((n_loads, 2))
        self.scatter_ms = np.zeros(n_loads)
        self.far_share = np.zeros(n_loads)
        self.cell_weight = np.zeros((n_loads, n_cells))
        self.cell_offset = np.zeros((n_loads, n_cells))
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
        m = min(max_verified, self.max_verified)
        base, slope, load = self._line(
            requests, prefill_tokens, context_tokens, sampled_rows, draft_depth
        )
        shrunk = self.cell_offset[load] * (
            self.cell_weight[load] / (self.cell_weight[load] + _CELL_SHRINKAGE)
        )
        milliseconds: FloatArray = (
            base + slope * self._verified[: m + 1] + shrunk[self._cell[: m + 1]]
        )
        np.maximum(milliseconds, 0.01, out=milliseconds)
        return milliseconds

    def drafting(self, requests: int, depths: FloatArray) -> FloatArray:
        """Return milliseconds that drafting costs at each of ``depths``."""
        cost: FloatArray = max(float(self.theta[6]), 0.0) * requests * depths
        return cost

    def drafting_at(self, requests: int, depth: int) -> float:
        """Return milliseconds that drafting ``depth`` tokens for each request costs."""
        return max(float(self.theta[6]), 0.0) * requests * depth

    def prefill(self, prefill_tokens: int) -> float:
        """Return the milliseconds of a step that its prefill tokens account for."""
        return max(float(self.theta[3]), 0.0) * prefill_tokens

    def evidence(self, requests: int, verified: int) -> float:
        """Return the decayed number of steps measured at this load and verified count."""
        load = self._load[min(requests, self.max_requests)]
        return float(self.cell_weight[load, self._cell[min(verified, self.max_verified)]])

    def spread(self, requests: int) -> tuple[float, float]:
        """Return weight and variance of the verified counts measured at this load."""
        weight, first, second = self.load_sums[self._load[min(requests, self.max_requests)], :3]
        if weight <= 0:
            return 0.0, 0.0
        return float(weight), float(max(second / weight - (first / weight) ** 2, 0.0))

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
        if not 0.0 < latency_ms < float("inf"):
            raise ValueError(f"latency_ms must be positive and finite, got {latency_ms}")
        verified = min(verified, self.max_verified)
        base, slope, load = self._line(
            requests, prefill_tokens, context_tokens, sampled_rows, draft_depth
        )
        cell = self._cell[verified]
        weight = self.cell_weight[load, cell]
        offset = self.cell_offset[load, cell]
        predicted = base + slope * verified + offset * weight / (weight + _CELL_SHRINKAGE)
        self.steps += 1
        if self._is_stall(load, latency_ms, predicted):
            self.stalls += 1
            return float(max(predicted, 0.01))

        x = self._features(
            requests, prefill_tokens, context_tokens, sampled_rows, draft_depth, verified
        )
        # Steps scatter in proportion to their length: weigh by 1 / length², scaled to 10 ms.
        importance = (10.0 / max(latency_ms, 0.1)) ** 2
        keep = self._keep
        self.gram *= keep
        self.gram += (importance * x)[:, None] * x
        self.gram += (1.0 - keep) * self._ridge
        self.moment *= keep
        self.moment += (importance * latency_ms) * x
        self.moment += (1.0 - keep) * self._ridge_moment
        self.theta = np.linalg.solve(self.gram, self.moment)
        if prefill_tokens:
            # A prefill's own scatter would blur what the decode cells are for.
            return float(max(predicted, 0.01))

        theta = self.theta
        residual = latency_ms - float(x @ theta)
        sums = self.load_sums[load]
        sums *= keep
        sums += (1.0, verified, verified * verified, residual, verified * residual)
        offset_n, slope_n = _shrunk_line(sums, latency_ms)
        self.load_line[load] = offset_n, slope_n
        self.cell_weight[load] *= keep
        self.cell_weight[load, cell] += 1.0
        left = residual - offset_n - slope_n * verified
        gain = max(1.0 / self.cell_weight[load, cell], 1.0 / self.window_steps)
        self.cell_offset[load, cell] += gain * (left - self.cell_offset[load, cell])
        return float(max(predicted, 0.01))

    def state(self) -> dict[str, Any]:
        """Return sums as arrays; predictions after `load` are bitwise the same."""
        arrays = {name: getattr(self, name).copy() for name in _STATE}
        return {**arrays, "steps": self.steps, "stalls": self.stalls}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state's table has another shape.
        """
        shape = np.asarray(state["cell_weight"]).shape
        if shape != self.cell_weight.shape:
            raise ValueError(f"latency table must be {self.cell_weight.shape}, got {shape}")
        for name in _STATE:
            setattr(self, name, np.array(state[name], dtype=np.float64))
        self.steps, self.stalls = int(state["steps"]), int(state["stalls"])

    def _features(
        self, requests: int, prefill: int, context: int, sampled: int, depth: int, verified: int
    ) -> FloatArray:
        return np.array(
            [
                1.0 if requests or prefill else 0.0,
                requests,
                verified,
                prefill,
                context / 1000.0,
                sampled,
                requests * depth,
            ]
        )

    def _line(
        self, requests: int, prefill: int, context: int, sampled: int, depth: int
    ) -> tuple[float, float, int]:
        """Return the constant, the slope over verified drafts, and the load's row."""
        load = int(self._load[min(requests, self.max_requests)])
        one, per_request, per_verified, per_prefill, per_context, per_sampled, per_draft = (
            self.theta.tolist()
        )
        offset, slope = self.load_line[load].tolist()
        base = (
            one
            + per_request * requests
            + per_prefill * prefill
            + per_context * context / 1000.0
            + per_sampled * sampled
            + per_draft * requests * depth
            + offset
        )
        return base, max(per_verified + slope, 0.0), load

    def _is_stall(self, load: int, latency_ms: float, predicted_ms: float) -> bool:
        error = latency_ms - predicted_ms
        floor = _NOISE_RATIO * max(predicted_ms, 0.01)
        scatter = max(float(self.scatter_ms[load]), floor)
        far = error > _STALL_SIGMAS * scatter and self.steps > 20
        self.far_share[load] += 0.1 * (float(far) - self.far_share[load])
        if far and self.far_share[load] < _STALL_RECURS:
            return True
        self.scatter_ms[load] += 0.05 * (min(abs(error), 3.0 * scatter) - self.scatter_ms[load])
        return False


_STATE = (
    "gram",
    "moment",
    "theta",
    "load_sums",
    "load_line",
    "scatter_ms",
    "far_share",
    "cell_weight",
    "cell_offset",
)


def _shrunk_line(sums: FloatArray, latency_ms: float) -> tuple[float, float]:
    """Solve offset and slope of one load's residuals with a ridge in units of the step's length."""
    weight, first, second, r0, r1 = sums.tolist()
    noise = (_NOISE_RATIO * latency_ms) ** 2
    weight += noise / (0.1 * latency_ms) ** 2
    second += noise / (0.01 * latency_ms) ** 2
    determinant = weight * second - first * first
    return (r0 * second - r1 * first) / determinant, (weight * r1 - first * r0) / determinant
