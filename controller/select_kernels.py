"""The arithmetic of `acclimate.controller.select`, compiled."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled

_ROUNDING = 1e-9  # objectives count as equal within this share of the largest


@compiled("Tuple((i8[:,::1], f8[::1]))(f8[:,::1], i8[::1])")
def chains(survival: FloatArray, drafts: IntArray) -> tuple[IntArray, FloatArray]:
    """Return request, parent and depth of each candidate as rows, and survival."""
    n, max_depth = survival.shape
    total = 0
    for r in range(n):
        total += drafts[r]
    about = np.empty((3, total), dtype=np.int64)
    survives = np.empty(total)
    previous = np.full(n, -1)
    j = 0
    for i in range(max_depth):
        for r in range(n):
            if drafts[r] > i:
                about[0, j] = r
                about[1, j] = previous[r]
                about[2, j] = i + 1
                survives[j] = survival[r, i]
                previous[r] = j
                j += 1
    return about, survives


@compiled("i8(f8[::1])")
def first_best(values: FloatArray) -> int:
    """Return the first index whose value is the largest, up to 1e-9 of the largest magnitude.

    >>> first_best(np.array([1.0, 2.0, 2.0 + 1e-12]))
    1
    """
    best = values.max()
    least = best - max(abs(best), 1.0) * _ROUNDING
    for j in range(values.shape[0]):
        if values[j] >= least:
            return j
    return 0


@compiled("i8[::1](f8[::1])")
def descending(worth: FloatArray) -> IntArray:
    """Return the order from the largest worth to the smallest; equal ones stay as they are.

    Worth lies in a known range, so that a pass by buckets leaves little to sort in each.
    """
    n = worth.shape[0]
    counts = np.zeros(n + 2, dtype=np.int64)
    bucket = np.empty(n, dtype=np.int64)
    top = max(worth.max(), 1e-300) if n else 1.0
    for j in range(n):
        bucket[j] = int(n * (1.0 - min(max(worth[j] / top, 0.0), 1.0)))
        counts[bucket[j] + 1] += 1
    for b in range(n + 1):
        counts[b + 1] += counts[b]
    order = np.empty(n, dtype=np.int64)
    for j in range(n):
        order[counts[bucket[j]]] = j
        counts[bucket[j]] += 1
    for i in range(1, n):
        j, value, place = order[i], worth[order[i]], i
        while place > 0 and worth[order[place - 1]] < value:
            order[place] = order[place - 1]
            place -= 1
        order[place] = j
    return order


@compiled("Tuple((i8[::1], f8[:,::1], i8))(f8[::1], f8[::1], f8)")
def best_prefix(
    worth: FloatArray, milliseconds: FloatArray, price_tokens_per_ms: float
) -> tuple[IntArray, FloatArray, int]:
    """Return the candidates best first, worth and objective of the best 0, 1, …, and the count."""
    order = descending(worth)
    sums = np.zeros((2, order.shape[0] + 1))
    for j in range(order.shape[0]):
        sums[0, j + 1] = sums[0, j] + worth[order[j]]
        sums[1, j + 1] = sums[0, j + 1] - price_tokens_per_ms * (
            milliseconds[j + 1] - milliseconds[0]
        )
    return order, sums, first_best(sums[1])


@compiled("i8[::1](i8[::1], i8[::1], i8, i8)")
def count_by_request(request: IntArray, order: IntArray, count: int, n: int) -> IntArray:
    """Return how many of the first ``count`` in ``order`` belong to each of n requests."""
    lens = np.zeros(n, dtype=np.int64)
    for j in range(count):
        lens[request[order[j]]] += 1
    return lens


@compiled(
    "Tuple((i8[:,::1], f8[::1], f8[::1], f8[:,::1], i8[::1], i8, i8[::1]))"
    "(f8[:,::1], f8[::1], i8[::1], i8[::1], f8[::1], f8, f8[::1])"
)
def choose(
    survival: FloatArray,
    shade: FloatArray,
    slots: IntArray,
    drafts: IntArray,
    milliseconds: FloatArray,
    price_tokens_per_ms: float,
    weights: FloatArray,
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray, int, IntArray]:
    """Return all that a `ChainChoice` holds: candidates, worth, order, how many, and lengths."""
    about, survives = chains(survival, drafts)
    believed = np.empty_like(survives)
    for j in range(believed.shape[0]):
        believed[j] = survives[j] * shade[slots[about[0, j]]]
    worth = believed
    if weights.shape[0] > 0:
        worth = np.empty_like(believed)
        for j in range(worth.shape[0]):
            worth[j] = believed[j] * weights[about[0, j]]
    order, sums, count = best_prefix(worth, milliseconds, price_tokens_per_ms)
    lens = count_by_request(about[0], order, count, drafts.shape[0])
    return about, survives, believed, sums, order, count, lens


@compiled("b1(i8[::1], i8[::1], i8)")
def lens_fit(lens: IntArray, drafts: IntArray, cap: int) -> bool:
    """Whether every verify length is in ``[0, cap]`` and at most the drafts at hand.

    >>> lens_fit(np.array([1, 3]), np.array([4, 2]), 4)
    False
    """
    for r in range(lens.shape[0]):
        if lens[r] < 0 or lens[r] > cap or lens[r] > drafts[r]:
            return False
    return True
