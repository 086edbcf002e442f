"""Measured step times on one dense grid, and interpolation in it, compiled.

Axes are context per request, prefill tokens, batch, and verified drafts per request. Between nodes
everything is linear; a node is returned bit by bit, so that a cliff stays where it was measured.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.predictors.compiled import compiled

Cell = tuple[float, float]  # batch, depth
Group = dict[Cell, float]  # ms


@dataclasses.dataclass(frozen=True, slots=True)
class StepGrid:
    """Step times ``ms`` at every combination of the four axes, each ascending."""

    contexts: FloatArray
    prefills: FloatArray
    batches: FloatArray
    depths: FloatArray
    ms: FloatArray


def build_grid(
    batch: FloatArray, depth: FloatArray, ms: FloatArray, context: FloatArray, prefill: FloatArray
) -> StepGrid:
    """Spread measured cells over a dense grid; arguments have one shape (n,).

    Cells at the smallest context and the smallest prefill are the base and may be as ragged as they
    like. Other cells count as differences from it, which are interpolated over batch and depth and
    held beyond them; where a context and a prefill were never measured together, both add up.

    Raises
    ------
    ValueError
        A context or a prefill is listed without its pair in the base.
    """
    groups: dict[tuple[float, float], dict[Cell, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for b, k, t, c, p in zip(batch, depth, ms, context, prefill, strict=True):
        groups[float(c), float(p)][float(b), float(k)].append(float(t))
    listed = {
        key: {cell: float(np.median(times)) for cell, times in cells.items()}
        for key, cells in groups.items()
    }
    contexts, prefills, batches = np.unique(context), np.unique(prefill), np.unique(batch)
    depths = np.unique(np.append(depth, 0.0))
    first_context, first_prefill = float(contexts[0]), float(prefills[0])
    wanted = [(float(c), first_prefill) for c in contexts]
    wanted += [(first_context, float(p)) for p in prefills]
    for c, p in wanted:
        if (c, p) not in listed:
            raise ValueError(
                f"a latency table must list context {c:g} with prefill {p:g}, the smallest of one "
                "with every value of the other, got no such row"
            )
    base = _base_surface(listed[first_context, first_prefill], batches, depths)
    added = {
        key: _difference(listed[key], base, batches, depths)
        for key in wanted
        if key != (first_context, first_prefill)
    }
    nothing = np.zeros_like(base)
    grid = np.empty((contexts.size, prefills.size, batches.size, depths.size))
    for i, c in enumerate(contexts):
        for j, p in enumerate(prefills):
            if (key := (float(c), float(p))) in listed:
                grid[i, j] = base + _difference(listed[key], base, batches, depths)
            else:
                more_context = added.get((key[0], first_prefill), nothing)
                grid[i, j] = base + more_context + added.get((first_context, key[1]), nothing)
            grid[i, j] = np.maximum(grid[i, j], base.min())
            for (b, k), value in listed.get(key, {}).items():
                grid[i, j, np.searchsorted(batches, b), np.searchsorted(depths, k)] = value
    return StepGrid(contexts, prefills, batches, depths, grid)


def _base_surface(cells: Group, batches: FloatArray, depths: FloatArray) -> FloatArray:
    own = np.unique([b for b, _ in cells])
    rows = np.array([_row(*_columns(cells, b, with_zero=True), depths) for b in own])
    return np.array([[extend(own, column, b) for column in rows.T.copy()] for b in batches])


def _difference(
    cells: Group, base: FloatArray, batches: FloatArray, depths: FloatArray
) -> FloatArray:
    """Return what these cells have over the base, held beyond the outermost of them."""
    extra: Group = {}
    for (b, k), value in cells.items():
        extra[b, k] = value - base[np.searchsorted(batches, b), np.searchsorted(depths, k)]
    own = np.unique([b for b, _ in extra])
    rows = np.array([np.interp(depths, *_columns(extra, b)) for b in own])
    return np.array([np.interp(batches, own, column) for column in rows.T]).T


def _row(nodes: FloatArray, values: FloatArray, depths: FloatArray) -> FloatArray:
    return np.array([extend(nodes, values, k) for k in depths])


def _columns(
    cells: Group, batch: float, *, with_zero: bool = False
) -> tuple[FloatArray, FloatArray]:
    """Return depths and milliseconds of one batch.

    A missing depth 0 lies on the line through the first two depths, no lower than the step's
    share of its tokens and no higher than the first.
    """
    depths = sorted(k for b, k in cells if b == batch)
    values = [cells[batch, k] for k in depths]
    if with_zero and depths[0] > 0:
        slope = (values[1] - values[0]) / (depths[1] - depths[0]) if len(depths) > 1 else 0.0
        at_zero = values[0] - max(slope, 0.0) * depths[0]
        values.insert(0, max(at_zero, values[0] / (1.0 + depths[0])))
        depths.insert(0, 0.0)
    return np.array(depths), np.array(values)


@compiled("Tuple((i8, f8))(f8[::1], f8)")
def _place(nodes: FloatArray, x: float) -> tuple[int, float]:
    """Return the node to the left and how far on the way to the next; above 1 beyond the last."""
    last = nodes.shape[0] - 1
    if last == 0 or x <= nodes[0]:
        return 0, 0.0
    i = min(int(np.searchsorted(nodes, x, side="right")) - 1, last - 1)
    return i, (x - nodes[i]) / (nodes[i + 1] - nodes[i])


@compiled("f8(f8, f8, f8)")
def _blend(left: float, right: float, way: float) -> float:
    if way <= 0.0:
        return left
    if way < 1.0:
        return left + (right - left) * way
    return right + max(right - left, 0.0) * (way - 1.0)


@compiled("f8(f8[::1], f8[::1], f8)")
def extend(nodes: FloatArray, values: FloatArray, x: float) -> float:
    """Interpolate; below the first node its value, beyond the last the last slope, never falling.

    >>> extend(np.array([1.0, 3.0]), np.array([5.0, 9.0]), 4.0)
    11.0
    """
    if nodes.shape[0] == 1:
        return float(values[0])
    i, way = _place(nodes, x)
    return _blend(values[i], values[i + 1], way)


@compiled("f8(f8[:,:,:,::1], i8, i8, i8, f8, i8, f8)")
def _plane(
    ms: FloatArray, context: int, prefill: int, b: int, b_way: float, k: int, k_way: float
) -> float:
    """Return milliseconds within one (context, prefill) plane."""
    k_next = min(k + 1, ms.shape[3] - 1)
    low = _blend(ms[context, prefill, b, k], ms[context, prefill, b, k_next], k_way)
    if b_way <= 0.0:
        return low
    b_next = min(b + 1, ms.shape[2] - 1)
    high = _blend(ms[context, prefill, b_next, k], ms[context, prefill, b_next, k_next], k_way)
    return _blend(low, high, b_way)


@compiled("f8(f8[:,:,:,::1], f8[::1], i8, f8, i8, f8, i8, f8, f8)")
def _at_depth(
    ms: FloatArray,
    depths: FloatArray,
    c: int,
    c_way: float,
    p: int,
    p_way: float,
    b: int,
    b_way: float,
    depth: float,
) -> float:
    k, k_way = _place(depths, depth)
    value = _plane(ms, c, p, b, b_way, k, k_way)
    if p_way > 0.0:
        value = _blend(value, _plane(ms, c, p + 1, b, b_way, k, k_way), p_way)
    if c_way > 0.0:
        more = _plane(ms, c + 1, p, b, b_way, k, k_way)
        if p_way > 0.0:
            more = _blend(more, _plane(ms, c + 1, p + 1, b, b_way, k, k_way), p_way)
        value = _blend(value, more, c_way)
    return value


@compiled(
    "f8[::1](f8[:,:,:,::1], f8[::1], f8[::1], f8[::1], f8[::1], f8, f8, i8, i8, i8, i8, i8, i8)"
)
def grid_curve(
    ms: FloatArray,
    contexts: FloatArray,
    prefills: FloatArray,
    batches: FloatArray,
    depths: FloatArray,
    prefill_ms_per_token: float,
    draft_share: float,
    requests: int,
    first_verified: int,
    last_verified: int,
    prefill_tokens: int,
    context_tokens: int,
    draft_depth: int,
) -> FloatArray:
    """Return milliseconds for ``first_verified … last_verified``, prefill and drafting included."""
    rows = max(requests, 1)
    c, c_way = _place(contexts, context_tokens / rows)
    p, p_way = _place(prefills, float(prefill_tokens))
    b, b_way = _place(batches, float(requests))
    added = 0.0
    if prefills.shape[0] == 1:
        added = max(prefill_tokens - prefills[0], 0.0) * prefill_ms_per_token
    base = 0.0
    if draft_share > 0.0:
        base = _at_depth(ms, depths, c, c_way, p, p_way, b, b_way, 0.0)
        drafted = _at_depth(ms, depths, c, c_way, p, p_way, b, b_way, float(draft_depth))
        added += draft_share * (drafted - base)
    result = np.empty(last_verified - first_verified + 1)
    for m in range(first_verified, last_verified + 1):
        value = _at_depth(ms, depths, c, c_way, p, p_way, b, b_way, m / rows)
        if draft_share > 0.0:
            value = base + (1.0 - draft_share) * (value - base)
        result[m - first_verified] = value + added
    return result
