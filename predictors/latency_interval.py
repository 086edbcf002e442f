"""How sure the table of step times is: standard deviations per number of verified drafts."""

from __future__ import annotations

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.latency_kernels import (
    CELL_VISITS,
    LEAST_VISITS,
    N_FEATURES,
    NOISE_RATIO,
    OFFSET_RATIO,
    SLOPE_RATIO,
    VERIFIED,
    noise_ms,
    step_features,
)
from acclimate.predictors.numerics import FloatArray, IntArray

_LEAST_CLIFFS = 0.01**2
_OF_VISITS = 2.0  # variances of a visited cell: its own, and what is left of its line's


@compiled(
    "void(f8[::1], f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8, i8[::1],"
    "i8[::1], i8, i8, i8, i8, i8, i8, i8, i8)"
)
def step_deviations(
    of_mean: FloatArray,
    of_step: FloatArray,
    curve: FloatArray,
    gram: FloatArray,
    load_sums: FloatArray,
    visits: FloatArray,
    scatter_ms: FloatArray,
    cliffs: float,
    cell_of: IntArray,
    count_of: IntArray,
    load: int,
    first: int,
    end: int,
    requests: int,
    prefill: int,
    context: int,
    sampled: int,
    depth: int,
) -> None:
    """Write the standard deviations of the expected length, and of one step around it.

    The expected length is doubted at each level in turn. The global line as far as its ridge says
    and the load leans on it, the load's offset and slope by their own posterior, and the cell by
    how far cells lie from their lines (``cliffs``, relative and squared) until it was visited. ``curve`` is the expected length at a pace of 1; the arrays are as in `step_curve`.
    """
    sums = load_sums[load]
    seen = sums[0] > 0.0
    usual_ms = sums[2 * N_FEATURES] / sums[0] if seen else curve[first]
    scatter = scatter_ms[load] if seen else NOISE_RATIO * usual_ms
    noise = noise_ms(scatter, usual_ms)
    # As in `load_line`: what holds offset and slope to the global line.
    hold = (noise / (OFFSET_RATIO * usual_ms)) ** 2
    weight = sums[0] + hold
    moment = sums[VERIFIED]
    second = sums[N_FEATURES + VERIFIED] + (noise / (SLOPE_RATIO * usual_ms)) ** 2
    determinant = weight * second - moment * moment
    leans = (hold / weight) ** 2
    # The regression is weighed in steps of 10 ms that scatter by NOISE_RATIO.
    apiece = (10.0 * NOISE_RATIO) ** 2 * max(noise / (NOISE_RATIO * usual_ms), 1.0) ** 2
    inverse = np.linalg.inv(gram)
    # Its variance is a parabola in the count, since the count is one of the features.
    x = step_features(requests, 0, prefill, context, sampled, depth)
    still = inverse @ x
    level, slope, bend = x @ still, 2.0 * still[VERIFIED], inverse[VERIFIED, VERIFIED]
    for m in range(first, end):
        count = count_of[m]
        shared = level + slope * count + bend * count * count
        own = noise**2 * (second - 2.0 * count * moment + count * count * weight) / determinant
        before = leans * apiece * shared + own + max(cliffs, _LEAST_CLIFFS) * curve[m] ** 2
        cell = cell_of[m]
        step_noise = noise_ms(scatter, curve[m])
        if visits[load, cell] >= LEAST_VISITS:
            by_visits = step_noise**2 / min(visits[load, cell], CELL_VISITS)
            before = min(before, _OF_VISITS * by_visits)
        of_mean[m] = np.sqrt(before)
        of_step[m] = np.sqrt(of_mean[m] ** 2 + step_noise**2)
