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


@compiled(
    "UniTuple(f8[::1], 2)(f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1], f8, i8[::1],"
    "i8, i8, i8, i8, i8, i8)"
)
def step_deviations(
    curve: FloatArray,
    gram: FloatArray,
    load_sums: FloatArray,
    visits: FloatArray,
    scatter_ms: FloatArray,
    cliffs: float,
    cell_of: IntArray,
    load: int,
    requests: int,
    prefill: int,
    context: int,
    sampled: int,
    depth: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the standard deviations of the expected length, and of one step around it.

    The expected length is doubted at each level in turn. The global line as far as its ridge says
    and the load leans on it, the load's offset and slope by their own posterior, and the cell by
    how far cells lie from their lines (``cliffs``, relative and squared) until it was visited.
    """
    sums = load_sums[load]
    seen = sums[0] > 0.0
    usual_ms = sums[2 * N_FEATURES] / sums[0] if seen else curve[0]
    noise = noise_ms(scatter_ms[load], usual_ms)
    hold = (noise / (OFFSET_RATIO * usual_ms)) ** 2
    weight = sums[0] + hold
    first = sums[VERIFIED]
    second = sums[N_FEATURES + VERIFIED] + (noise / (SLOPE_RATIO * usual_ms)) ** 2
    determinant = weight * second - first * first
    leans = (hold / weight) ** 2
    # The regression is weighed in steps of 10 ms that scatter by NOISE_RATIO.
    apiece = (10.0 * NOISE_RATIO) ** 2 * max(noise / (NOISE_RATIO * usual_ms), 1.0) ** 2
    inverse = np.linalg.inv(gram)
    x = step_features(requests, 0, prefill, context, sampled, depth)
    of_mean, of_step = np.empty_like(curve), np.empty_like(curve)
    for m in range(curve.shape[0]):
        x[VERIFIED] = m
        shared = 0.0
        for i in range(N_FEATURES):
            for j in range(N_FEATURES):
                shared += x[i] * inverse[i, j] * x[j]
        own = noise**2 * (second - 2.0 * m * first + m * m * weight) / determinant
        before = leans * apiece * shared + own + cliffs * curve[m] ** 2
        cell = cell_of[m]
        step_noise = noise_ms(scatter_ms[load], curve[m])
        known = 0.0
        if visits[load, cell] >= LEAST_VISITS:
            known = min(visits[load, cell], CELL_VISITS)
        of_mean[m] = np.sqrt(1.0 / (1.0 / before + known / step_noise**2))
        of_step[m] = np.sqrt(of_mean[m] ** 2 + step_noise**2)
    return of_mean, of_step
