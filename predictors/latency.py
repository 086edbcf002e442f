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

import math
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, geometric_buckets

# Roofline-like prior in ms: an unknown constant, small costs per token, with standard deviations.
_PRIOR_MEAN_MS = np.array([10.0, 0.05, 0.05, 0.05, 0.1, 0.01, 0.01])
_PRIOR_SD_MS = np.array([100.0, 1.0, 1.0, 1.0, 2.0, 0.5, 0.2])
_NOISE_RATIO = 0.05  # a step scatters by at least this share of its length
# How far a load's offset and slope may lie from the global line: standard deviations as shares of
# a step's length. Against the scatter that is seen they set the shrinkage.
_OFFSET_RATIO, _SLOPE_RATIO = 0.1, 0.01
_DEVIATION = 1.25  # standard deviation over mean absolute error
_STALL_SIGMAS = 6.0
_STALL_RECURS = 0.35  # share of far-off steps at which slow is the truth
_FEATURES = 7
_VERIFIED, _PREFILL, _DRAFT = 2, 3, 6  # positions among the features of the global line
_FAR_RATE = 0.2
_SETTLING_STEPS = 20  # before that, nothing is a stall
_CELL_VISITS = 30.0  # a cell's offset is a mean over about this many visits


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
        precision = (_NOISE_RATIO * 10.0 / _PRIOR_SD_MS) ** 2
        self._ridge = np.diag(precision)
        self._ridge_moment = precision * _PRIOR_MEAN_MS
        self.gram = self._ridge.copy()
        self.moment = self._ridge_moment.copy()
        self.theta = _PRIOR_MEAN_MS.copy()
        # Per load: sums of x and m·x over its steps, then of y and m·y (y in ms, m verified).
        self.load_sums = np.zeros((n_loads, 2 * _FEATURES + 2))
        self.scatter_ms = np.zeros(n_loads)  # mean |error|
        self.far_share = np.zeros((n_loads, n_cells))  # of steps far above expectation
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
        return _curve(
            self.theta,
            self.load_sums,
            self.cell_weight,
            self.cell_offset,
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
        """Return milliseconds that drafting costs at each of ``depths``."""
        cost: FloatArray = self.drafting_at(requests, 1) * depths
        return cost

    def drafting_at(self, requests: int, depth: int) -> float:
        """Return milliseconds that drafting ``depth`` tokens for each request costs."""
        return max(float(self.theta[_DRAFT]), 0.0) * requests * depth

    def prefill(self, prefill_tokens: int) -> float:
        """Return the milliseconds of a step that its prefill tokens account for."""
        return max(float(self.theta[_PREFILL]), 0.0) * prefill_tokens

    def evidence(self, requests: int, verified: int) -> float:
        """Return the decayed number of steps measured at this load and verified count."""
        load = self._load[min(requests, self.max_requests)]
        return float(self.cell_weight[load, self._cell[min(verified, self.max_verified)]])

    def spread(self, requests: int) -> float:
        """Return the decayed sum of squares of verified counts about their mean at this load."""
        load = self._load[min(requests, self.max_requests)]
        sums = self.load_sums[load]
        weight, first = float(sums[0]), float(sums[_VERIFIED])
        second = float(sums[_FEATURES + _VERIFIED])
        return max(second - first * first / weight, 0.0) if weight > 0 else 0.0

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
        predicted_ms, stalled = _learn(
            self.theta,
            self.gram,
            self.moment,
            self._ridge,
            self._ridge_moment,
            self.load_sums,
            self.scatter_ms,
            self.far_share,
            self.cell_weight,
            self.cell_offset,
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


_STATE = (
    "gram",
    "moment",
    "theta",
    "load_sums",
    "scatter_ms",
    "far_share",
    "cell_weight",
    "cell_offset",
)


@compiled("f8[::1](i8, i8, i8, i8, i8, i8)")
def _features(
    requests: int, verified: int, prefill: int, context: int, sampled: int, depth: int
) -> FloatArray:
    x = np.empty(_FEATURES)
    x[0] = 1.0 if requests + prefill > 0 else 0.0
    x[1] = requests
    x[2] = verified
    x[3] = prefill
    x[4] = context / 1000.0
    x[5] = sampled
    x[6] = requests * depth
    return x


@compiled("f8(f8, f8)")
def _noise_ms(scatter_ms: float, step_ms: float) -> float:
    """Return the standard deviation of a step's length."""
    return max(_DEVIATION * scatter_ms, _NOISE_RATIO * step_ms)


@compiled("UniTuple(f8, 2)(f8[::1], f8[::1], f8)")
def _load_line(theta: FloatArray, sums: FloatArray, scatter_ms: float) -> tuple[float, float]:
    """Return offset and slope of one load's steps against the global line as it is now.

    Computed when asked for, from sums of what was seen: the global line moves while other loads
    are served, and what was measured here must stay where it was.
    """
    if sums[0] <= 0.0:
        return 0.0, 0.0
    step_ms = sums[2 * _FEATURES] / sums[0]
    r0, r1 = sums[2 * _FEATURES], sums[2 * _FEATURES + 1]
    for j in range(_FEATURES):
        r0 -= theta[j] * sums[j]
        r1 -= theta[j] * sums[_FEATURES + j]
    # A ridge holds offset and slope to the global line, the more the steps scatter.
    noise = _noise_ms(scatter_ms, step_ms)
    weight = sums[0] + (noise / (_OFFSET_RATIO * step_ms)) ** 2
    first = sums[_VERIFIED]
    second = sums[_FEATURES + _VERIFIED] + (noise / (_SLOPE_RATIO * step_ms)) ** 2
    determinant = weight * second - first * first
    return (r0 * second - r1 * first) / determinant, (weight * r1 - first * r0) / determinant


@compiled("f8(f8, f8, f8)")
def _shrunk_offset(offset: float, weight: float, noise_ms: float) -> float:
    """Return what of a cell's offset is more than chance: nothing at 1.4 standard errors.

    Positive-part James-Stein: a cliff stands out by itself, noise does not, whatever its size.
    """
    visits = min(weight, _CELL_VISITS)
    chance = 2.0 * noise_ms**2 / max(visits, 1e-9)
    if offset**2 <= chance:
        return 0.0
    return offset * (1.0 - chance / offset**2) * visits / (visits + 2.0)


@compiled("f8(f8[::1], f8[::1], UniTuple(f8, 2), f8, f8, f8)")
def _predict(
    theta: FloatArray,
    x: FloatArray,
    line: tuple[float, float],
    cell_weight: float,
    cell_offset: float,
    scatter_ms: float,
) -> float:
    base = line[0]
    for j in range(theta.shape[0]):
        if j != _VERIFIED:
            base += theta[j] * x[j]
    # More verified drafts never make a step cheaper in the large; cells tell the exceptions.
    base += max(float(theta[_VERIFIED]) + line[1], 0.0) * float(x[_VERIFIED])
    base = max(base, 0.01)
    return max(base + _shrunk_offset(cell_offset, cell_weight, _noise_ms(scatter_ms, base)), 0.01)


@compiled(
    "f8[::1](f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], i8[::1],i8, i8, i8, i8, i8, i8, i8)"
)
def _curve(
    theta: FloatArray,
    load_sums: FloatArray,
    cell_weight: FloatArray,
    cell_offset: FloatArray,
    scatter_ms: FloatArray,
    cell_of: IntArray,
    load: int,
    max_verified: int,
    requests: int,
    prefill: int,
    context: int,
    sampled: int,
    depth: int,
) -> FloatArray:
    x = _features(requests, 0, prefill, context, sampled, depth)
    line = _load_line(theta, load_sums[load], scatter_ms[load])
    result = np.empty(max_verified + 1)
    for m in range(max_verified + 1):
        x[_VERIFIED] = m
        cell = cell_of[m]
        result[m] = _predict(
            theta,
            x,
            line,
            cell_weight[load, cell],
            cell_offset[load, cell],
            scatter_ms[load],
        )
    return result


@compiled("void(f8[::1], f8[::1], f8[::1], f8[::1], f8[::1], i8, f8, f8, f8)")
def _learn_cells(
    theta: FloatArray,
    x: FloatArray,
    sums: FloatArray,
    cell_weight: FloatArray,
    cell_offset: FloatArray,
    cell: int,
    latency_ms: float,
    scatter_ms: float,
    keep: float,
) -> None:
    m = x[_VERIFIED]
    sums *= keep
    for j in range(_FEATURES):
        sums[j] += x[j]
        sums[_FEATURES + j] += m * x[j]
    sums[2 * _FEATURES] += latency_ms
    sums[2 * _FEATURES + 1] += m * latency_ms
    offset, slope = _load_line(theta, sums, scatter_ms)
    residual = latency_ms - offset - slope * m
    for j in range(_FEATURES):
        residual -= theta[j] * x[j]
    cell_weight *= keep
    cell_weight[cell] += 1.0
    gain = max(1.0 / cell_weight[cell], 1.0 / _CELL_VISITS)
    cell_offset[cell] += gain * (residual - cell_offset[cell])


@compiled(
    "Tuple((f8, b1))(f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1],"
    "f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], i8, i8, i8, i8, i8, i8, i8, i8, f8, f8, b1)"
)
def _learn(
    theta: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    ridge: FloatArray,
    ridge_moment: FloatArray,
    load_sums: FloatArray,
    scatter_ms: FloatArray,
    far_share: FloatArray,
    cell_weight: FloatArray,
    cell_offset: FloatArray,
    load: int,
    cell: int,
    requests: int,
    verified: int,
    prefill: int,
    context: int,
    sampled: int,
    depth: int,
    latency_ms: float,
    keep: float,
    settled: bool,
) -> tuple[float, bool]:
    """Learn one step unless it is a stall; return the prediction before, and whether it was one."""
    x = _features(requests, verified, prefill, context, sampled, depth)
    predicted = _predict(
        theta,
        x,
        _load_line(theta, load_sums[load], scatter_ms[load]),
        cell_weight[load, cell],
        cell_offset[load, cell],
        scatter_ms[load],
    )
    if settled:
        # A cell that is far off once is a stall of the machine; repeatedly, it is slow.
        error = latency_ms - predicted
        usual = max(scatter_ms[load], _NOISE_RATIO * predicted)
        far = error > _STALL_SIGMAS * usual
        far_share[load, cell] += _FAR_RATE * ((1.0 if far else 0.0) - far_share[load, cell])
        if far and far_share[load, cell] < _STALL_RECURS:
            return predicted, True
        scatter_ms[load] += 0.05 * (min(abs(error), 3.0 * usual) - scatter_ms[load])
    # Steps scatter in proportion to their length: weigh by 1 / length², scaled to 10 ms. It is the
    # expected length: weighing by the one seen would favour short steps and read too low.
    importance = (10.0 / max(predicted if settled else latency_ms, 0.1)) ** 2
    for i in range(_FEATURES):
        moment[i] = (
            moment[i] * keep + (1.0 - keep) * ridge_moment[i] + importance * latency_ms * x[i]
        )
        for j in range(_FEATURES):
            gram[i, j] = gram[i, j] * keep + (1.0 - keep) * ridge[i, j] + importance * x[i] * x[j]
    theta[:] = np.linalg.solve(gram, moment)
    if not prefill:  # a prefill's own scatter would blur what the decode cells are for
        _learn_cells(
            theta,
            x,
            load_sums[load],
            cell_weight[load],
            cell_offset[load],
            cell,
            latency_ms,
            scatter_ms[load],
            keep,
        )
    return predicted, False
