"""The arithmetic of `acclimate.predictors.latency`, compiled.

Sums in, numbers out: nothing here keeps state. ``x`` are the features of a step, in the order
constant, decode requests, verified drafts, prefill tokens, context in thousands of tokens, sampled
rows, first draft tokens, further draft tokens, passes for further ones; ``theta`` are their
milliseconds apiece. A drafter of depth 0 may still run one pass, so that the first token of a draft
is a price of its own; a pass for a further one costs something however many requests share it.
"""

from __future__ import annotations

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray

N_FEATURES = 9
VERIFIED, PREFILL, FIRST_DRAFT, FURTHER_DRAFT, FURTHER_PASS = 2, 3, 6, 7, 8
NOISE_RATIO = 0.05  # a step scatters by about this share of its length
_LEAST_NOISE = 0.001  # and never by less than this
_DEVIATION = 1.25  # standard deviation over mean absolute error
# How far a load's offset and slope may lie from the global line: standard deviations as shares of
# a step's length. Against the scatter that is seen they set the shrinkage.
OFFSET_RATIO, SLOPE_RATIO = 0.1, 0.01
_STALL_SIGMAS = 6.0
_FIRST_STALL_RATIO = 6.0
_STALL_RECURS, _FAR_RATE = 0.6, 0.3  # share of far-off steps at which slow is the truth: three
FEW_PREFILL_SHARE = 0.1  # prefill tokens to decode tokens
CELL_VISITS = 60.0  # a cell's mean is over about this many visits
LEAST_VISITS = 2.0  # before, a slow cell may be a stall
SHRINKING = 0.5  # variances within which a cell's distance from its line is taken for chance
KNOWN_VISITS = 5.0  # from here on a far quicker step is the news, and not that these were stalls
_CLIFF_RATE = 0.01
LEARNED, STALLED, BELIEVED = range(3)  # what became of a step; believed: its cell begins anew


@compiled("f8[::1](i8, i8, i8, i8, i8, i8)")
def step_features(
    requests: int, verified: int, prefill: int, context: int, sampled: int, depth: int
) -> FloatArray:
    """Return what a step's length depends on, shape (N_FEATURES,)."""
    x = np.empty(N_FEATURES)
    x[0] = 1.0 if requests + prefill > 0 else 0.0
    x[1] = requests
    x[2] = verified
    x[3] = prefill
    x[4] = context / 1000.0
    x[5] = sampled
    further = max(depth - 1, 0)
    x[6] = requests * min(depth, 1)
    x[7] = requests * further
    x[8] = further
    return x


@compiled("f8(f8, f8)")
def noise_ms(scatter_ms: float, step_ms: float) -> float:
    """Return the standard deviation of a step's length."""
    return max(_DEVIATION * scatter_ms, _LEAST_NOISE * step_ms)


@compiled("UniTuple(f8, 2)(f8[::1], f8[::1], f8)")
def load_line(theta: FloatArray, sums: FloatArray, scatter_ms: float) -> tuple[float, float]:
    """Return offset and slope of one load's steps against the global line as it is now.

    Computed when asked for, from sums of what was seen: the global line moves while other loads
    are served, and what was measured here must stay where it was.
    """
    if sums[0] <= 0.0:
        return 0.0, 0.0
    step_ms = sums[2 * N_FEATURES] / sums[0]
    r0, r1 = sums[2 * N_FEATURES], sums[2 * N_FEATURES + 1]
    for j in range(N_FEATURES):
        r0 -= theta[j] * sums[j]
        r1 -= theta[j] * sums[N_FEATURES + j]
    # A ridge holds offset and slope to the global line, the more the steps scatter.
    noise = noise_ms(scatter_ms, step_ms)
    weight = sums[0] + (noise / (OFFSET_RATIO * step_ms)) ** 2
    first = sums[VERIFIED]
    second = sums[N_FEATURES + VERIFIED] + (noise / (SLOPE_RATIO * step_ms)) ** 2
    determinant = weight * second - first * first
    return (r0 * second - r1 * first) / determinant, (weight * r1 - first * r0) / determinant


@compiled("f8(f8[::1], f8[::1], UniTuple(f8, 2))")
def line_ms(theta: FloatArray, x: FloatArray, line: tuple[float, float]) -> float:
    """Return the milliseconds of a step by global line and load."""
    base = line[0]
    for j in range(N_FEATURES):
        if j != VERIFIED:
            base += theta[j] * x[j]
    # More verified drafts never make a step cheaper in the large; cells tell the exceptions.
    base += max(float(theta[VERIFIED]) + line[1], 0.0) * float(x[VERIFIED])
    return max(base, 0.01)


@compiled("f8(f8[::1], f8[::1], UniTuple(f8, 2), f8, f8)")
def _cell_offset(
    theta: FloatArray,
    cell: FloatArray,
    line: tuple[float, float],
    visits: float,
    scatter_ms: float,
) -> float:
    """Return what of a cell's distance from the line is more than chance.

    Positive-part James-Stein: a cliff stands out by itself, noise does not, whatever its size. It is
    the distance from the line as it is now: the line moves, and what was measured stays.
    """
    if visits < LEAST_VISITS:
        return 0.0
    expected_ms = line_ms(theta, cell, line)
    offset = cell[N_FEATURES] - expected_ms
    visits = min(visits, CELL_VISITS)
    chance = SHRINKING * noise_ms(scatter_ms, expected_ms) ** 2 / visits
    if offset**2 <= chance:
        return 0.0
    return float(offset * (1.0 - chance / offset**2))


@compiled(
    "void(f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[::1], i8[::1], i8[::1],"
    "i8, i8, i8, i8, i8, i8, i8, i8, f8)"
)
def step_curve(
    result: FloatArray,
    theta: FloatArray,
    load_sums: FloatArray,
    visits: FloatArray,
    cells: FloatArray,
    scatter_ms: FloatArray,
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
    pace: float,
) -> None:
    """Write milliseconds with ``first`` to ``end - 1`` verified drafts at one load.

    ``cell_of`` and ``count_of`` say for 0, 1, … drafts which cell they are in, and as how many they
    count: an engine that pads takes as long for fewer.
    """
    x = step_features(requests, 0, prefill, context, sampled, depth)
    line = load_line(theta, load_sums[load], scatter_ms[load])
    last, offset = -1, 0.0
    for m in range(first, end):
        x[VERIFIED] = count_of[m]
        cell = cell_of[m]
        if cell != last:
            last = cell
            offset = _cell_offset(
                theta, cells[load, cell], line, visits[load, cell], scatter_ms[load]
            )
        result[m] = pace * max(line_ms(theta, x, line) + offset, 0.01)


@compiled("b1(f8[::1], f8[:,::1], f8)")
def _stalls_at_first(visits: FloatArray, cells: FloatArray, latency_ms: float) -> bool:
    """Whether a step took several times as long as the quickest cell, while little is known."""
    quickest = latency_ms
    for c in range(visits.shape[0]):
        if visits[c] > 0.0:
            quickest = min(quickest, cells[c, N_FEATURES])
    return latency_ms > _FIRST_STALL_RATIO * quickest


@compiled("void(f8[::1], f8[::1], f8[::1], f8[::1], f8[:,::1], f8[::1], i8, f8, f8)")
def _learn_cells(
    x: FloatArray,
    sums: FloatArray,
    visits: FloatArray,
    weights: FloatArray,
    cells: FloatArray,
    scatter_ms: FloatArray,
    cell: int,
    latency_ms: float,
    keep: float,
) -> None:
    m = x[VERIFIED]
    if sums[0] <= 0.0:
        scatter_ms[0] = max(scatter_ms[0], NOISE_RATIO / _DEVIATION * latency_ms)
    sums *= keep
    for j in range(N_FEATURES):
        sums[j] += x[j]
        sums[N_FEATURES + j] += m * x[j]
    sums[2 * N_FEATURES] += latency_ms
    sums[2 * N_FEATURES + 1] += m * latency_ms
    before = cells[cell, N_FEATURES]
    if latency_ms < before - _STALL_SIGMAS * max(scatter_ms[0], NOISE_RATIO * before):
        visits[cell] = 0.0  # no step is so quick by chance: what was seen before were stalls
    visits[cell] += 1.0
    weights *= keep
    weights[cell] += 1.0
    gain = max(1.0 / visits[cell], 1.0 / CELL_VISITS)
    for j in range(N_FEATURES):
        cells[cell, j] += gain * (x[j] - cells[cell, j])
    cells[cell, N_FEATURES] += gain * (latency_ms - cells[cell, N_FEATURES])


@compiled(
    "Tuple((f8, i8))(f8[::1], f8[:,::1], f8[::1], f8[:,::1], f8[::1], f8[:,::1],"
    "f8[::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[:,:,::1], f8[::1],"
    "i8, i8, i8, i8, i8, i8, i8, i8, f8, f8, b1)"
)
def learn_step(
    theta: FloatArray,
    gram: FloatArray,
    moment: FloatArray,
    ridge: FloatArray,
    ridge_moment: FloatArray,
    load_sums: FloatArray,
    scatter_ms: FloatArray,
    far_share: FloatArray,
    visits: FloatArray,
    weights: FloatArray,
    cells: FloatArray,
    cliffs: FloatArray,
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
) -> tuple[float, int]:
    """Learn one step unless it is a stall; return the prediction before, and what became of it."""
    x = step_features(requests, verified, prefill, context, sampled, depth)
    line = load_line(theta, load_sums[load], scatter_ms[load])
    by_line = line_ms(theta, x, line)
    offset = _cell_offset(theta, cells[load, cell], line, visits[load, cell], scatter_ms[load])
    predicted = max(by_line + offset, 0.01)
    verdict = LEARNED
    if settled:
        # A cell that is far off once is a stall of the machine; repeatedly, it is slow. As for one
        # that is well known and far quicker, once: the clock was wrong.
        error = latency_ms - predicted
        usual = max(scatter_ms[load], NOISE_RATIO * predicted)
        known = visits[load, cell] >= KNOWN_VISITS
        far = error > _STALL_SIGMAS * usual or (known and error < -_STALL_SIGMAS * usual)
        far_share[load, cell] += _FAR_RATE * ((1.0 if far else 0.0) - far_share[load, cell])
        if far and far_share[load, cell] < _STALL_RECURS:
            return predicted, STALLED
        if far:
            verdict = BELIEVED
            # It was no stall: what was seen here before is over.
            visits[load, cell] = LEAST_VISITS
            for j in range(N_FEATURES):
                cells[load, cell, j] = x[j]
            cells[load, cell, N_FEATURES] = latency_ms
            far_share[load, cell] = 0.0
        scatter_ms[load] += 0.05 * (min(abs(error), 3.0 * usual) - scatter_ms[load])
    elif _stalls_at_first(visits[load], cells[load], latency_ms):
        return predicted, STALLED
    # Steps scatter in proportion to their length: weigh by 1 / length², scaled to 10 ms. It is the
    # expected length: weighing by the one seen would favour short steps and read too low.
    importance = (10.0 / max(predicted if settled else latency_ms, 0.1)) ** 2
    for i in range(N_FEATURES):
        moment[i] = (
            moment[i] * keep + (1.0 - keep) * ridge_moment[i] + importance * latency_ms * x[i]
        )
        for j in range(N_FEATURES):
            gram[i, j] = gram[i, j] * keep + (1.0 - keep) * ridge[i, j] + importance * x[i] * x[j]
    theta[:] = np.linalg.solve(gram, moment)
    # A long prefill's own scatter would blur what the decode cells are for.
    if prefill <= FEW_PREFILL_SHARE * (requests + verified):
        if visits[load, cell] >= LEAST_VISITS:
            away = (
                cells[load, cell, N_FEATURES] / line_ms(theta, cells[load, cell], line) - 1.0
            ) ** 2
            by_chance = (noise_ms(scatter_ms[load], by_line) / by_line) ** 2 / visits[load, cell]
            cliffs[0] += _CLIFF_RATE * (away - by_chance - cliffs[0])
        _learn_cells(
            x,
            load_sums[load],
            visits[load],
            weights[load],
            cells[load],
            scatter_ms[load : load + 1],
            cell,
            latency_ms,
            keep,
        )
    return predicted, verdict
