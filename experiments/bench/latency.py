"""``acclimate bench latency``: how well step times are learned, cliffs, stalls and slowdowns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.bench.latency_models import MODELS, OURS, LatencyModel
from acclimate.experiments.bench.latency_worlds import (
    CAPTURED,
    F2_SURVIVALS,
    NOISE,
    STALL_FACTOR,
    WORLDS,
    World,
    captured_ms,
)
from acclimate.experiments.figures import Figure, Meta, print_figures, write_figures
from acclimate.predictors.watched_latency import WatchedLatency

VISITS = 20
_GOOD, _EXACT = 0.98, 1.0 - 1e-9  # of the best cell's tokens per second
_SLOWER = 1.5
_SLOW_STEPS, _SLOW_CELLS = 50, 5
_SLOW_CELL_FACTOR, _SLOW_CELL_VISITS = 4.0, 3
_RAGGED_BATCHES, _RAGGED_DEPTH, _RAGGED_STEPS = (4, 8, 16), 5, 1_000
_NEAR = 0.2  # a relative error below which a cell counts as known

_CellRun = Callable[[LatencyModel, World, np.random.Generator], float]


def run_bench_latency(*, seeds: int = 50, json: Path | None = None, seed: int = 0) -> list[Figure]:
    """Teach the learner and its peers engines whose step times are known, and compare.

    Figures of our learner are ``latency/<case>/…``, those of peers ``latency/<case>/<peer>/…``.
    Cases ending in ``_exact`` have neither noise nor stalls.

    Parameters
    ----------
    seeds
        Runs of each case.
    json
        Where the figures go.
    seed
        The first run's; they count up.
    """
    figures: list[Figure] = []
    for case, make in WORLDS.items():
        world = make()
        figures += _table_figures(case, world, seeds, seed, _GOOD)
        figures += _table_figures(f"{case}_exact", world.exact(), 3, seed, _EXACT)
    figures += _slow_cell_figures(seeds, seed)
    figures += _lone_stall_figures(seeds, seed)
    figures += _slowdown_figures(seeds, seed)
    figures += _padding_figures(seeds, seed)
    print_figures(figures, title=f"step times after {VISITS} visits of each cell")
    if json is not None:
        write_figures(json, figures, Meta("bench latency", seed=seed))
    return figures


def teach(model: LatencyModel, world: World, visits: int, rng: np.random.Generator) -> None:
    """Visit every cell equally often, in random order."""
    cells = [cell for cell in world.cells for _ in range(visits)]
    for i in rng.permutation(len(cells)):
        _visit(model, world, cells[i], rng)


def relative_errors(model: LatencyModel, world: World) -> FloatArray:
    """Return |predicted - true| / true of every cell, shape (batches, depths)."""
    errors: FloatArray = np.abs(_predicted(model, world) / world.ms - 1.0)
    return errors


def efficiencies(model: LatencyModel, world: World) -> FloatArray:
    """Return the true speed of the depth that looks best, as a share of the best depth's.

    Shape (survivals, batches): the depth with most expected tokens per predicted millisecond.
    """
    predicted = _predicted(model, world)
    rows = []
    for survival in F2_SURVIVALS:
        chosen = world.throughput(predicted, survival).argmax(axis=1)
        true = world.throughput(world.ms, survival)
        rows.append(true[np.arange(chosen.size), chosen] / true.max(axis=1))
    return np.array(rows)


def _predicted(model: LatencyModel, world: World) -> FloatArray:
    return np.array([[model.predict(n, k) for k in world.depths] for n in world.batches])


def _visit(
    model: LatencyModel, world: World, cell: tuple[int, int], rng: np.random.Generator
) -> None:
    b, d = cell
    model.learn(world.batches[b], world.depths[d], world.step_ms(cell, rng))


def _runs(seeds: int, seed: int) -> Iterator[tuple[str, str, int]]:
    """Give each model's name, its part of a figure's name, and the runs."""
    for name in MODELS:
        for s in range(seeds):
            yield name, "" if name == OURS else f"{name}/", seed + s


def _table_figures(case: str, world: World, seeds: int, seed: int, good: float) -> list[Figure]:
    """Return the median error over cells and runs, and the share of cells with a good choice."""
    errors: dict[str, list[FloatArray]] = {}
    shares: dict[str, list[FloatArray]] = {}
    for name, prefix, run in _runs(seeds, seed):
        model, rng = MODELS[name](world), np.random.default_rng(run)
        teach(model, world, VISITS, rng)
        errors.setdefault(prefix, []).append(relative_errors(model, world).ravel())
        good_choice = (efficiencies(model, world).ravel() >= good).astype(np.float64)
        shares.setdefault(prefix, []).append(good_choice)
    figures = []
    for prefix, rows in errors.items():
        figures.append(_median(f"latency/{case}/{prefix}median_rel_error", rows))
        figures.append(_share(f"latency/{case}/{prefix}efficiency_share", shares[prefix]))
    return figures


def _slow_cell_figures(seeds: int, seed: int) -> list[Figure]:
    """Return the error at a cell four times as slow as its neighbours say, after three visits."""

    def run(model: LatencyModel, world: World, rng: np.random.Generator) -> float:
        cell = _hidden(world, rng)
        _teach_without(model, world, cell, rng)
        slow_ms = _SLOW_CELL_FACTOR * world.ms[cell]
        b, d = cell
        for _ in range(_SLOW_CELL_VISITS):
            noise = np.exp(world.noise * rng.standard_normal())
            model.learn(world.batches[b], world.depths[d], float(slow_ms * noise))
        return float(abs(model.predict(world.batches[b], world.depths[d]) / slow_ms - 1.0))

    return _cell_figures("slow_cell", "kept_share", run, seeds, seed)


def _lone_stall_figures(seeds: int, seed: int) -> list[Figure]:
    """Return the error at a cell whose only step was a stall of ten times its length."""

    def run(model: LatencyModel, world: World, rng: np.random.Generator) -> float:
        cell = _hidden(world, rng)
        _teach_without(model, world, cell, rng)
        b, d = cell
        model.learn(world.batches[b], world.depths[d], float(STALL_FACTOR * world.ms[cell]))
        return float(abs(model.predict(world.batches[b], world.depths[d]) / world.ms[cell] - 1.0))

    return _cell_figures("lone_stall", "ignored_share", run, seeds, seed)


def _cell_figures(case: str, share: str, run: _CellRun, seeds: int, seed: int) -> list[Figure]:
    errors: dict[str, list[FloatArray]] = {}
    for name, prefix, number in _runs(seeds, seed):
        world = WORLDS["f2"]()
        error = run(MODELS[name](world), world, np.random.default_rng(number))
        errors.setdefault(prefix, []).append(np.array([error]))
    figures = []
    for prefix, rows in errors.items():
        figures.append(_median(f"latency/{case}/{prefix}median_rel_error", rows))
        near = [(row < _NEAR).astype(np.float64) for row in rows]
        figures.append(_share(f"latency/{case}/{prefix}{share}", near))
    return figures


def _slowdown_figures(seeds: int, seed: int) -> list[Figure]:
    """Return errors 50 steps after all steps became 1.5 times as long, five cells visited since."""
    everywhere: dict[str, list[FloatArray]] = {}
    visited: dict[str, list[FloatArray]] = {}
    for name, prefix, number in _runs(seeds, seed):
        world = WORLDS["f2"]()
        model, rng = MODELS[name](world), np.random.default_rng(number)
        teach(model, world, VISITS, rng)
        slow = world.slower(_SLOWER)
        cells = [slow.cells[i] for i in rng.choice(len(slow.cells), _SLOW_CELLS, replace=False)]
        for step in range(_SLOW_STEPS):
            _visit(model, slow, cells[step % _SLOW_CELLS], rng)
        errors = relative_errors(model, slow)
        everywhere.setdefault(prefix, []).append(errors.ravel())
        visited.setdefault(prefix, []).append(np.array([errors[cell] for cell in cells]))
    figures = []
    for prefix, rows in everywhere.items():
        name = f"latency/slowdown/{prefix}rel_error_after_{_SLOW_STEPS}_steps"
        figures.append(_median(name, rows))
        figures.append(_median(f"{name}_visited", visited[prefix]))
    return figures


def _padding_figures(seeds: int, seed: int) -> list[Figure]:
    """Return errors at odd counts of an engine that pads, after steps with even counts.

    Once the learner is told the sizes that the engine captured, and once it is not.
    """
    figures = []
    for prefix, sizes in (("", CAPTURED), ("sizes_unknown/", ())):
        rows = []
        for run in range(seed, seed + seeds):
            rng = np.random.default_rng(run)
            largest = _RAGGED_BATCHES[-1]
            model = WatchedLatency(largest, largest * _RAGGED_DEPTH, capture_sizes=sizes)
            for _ in range(_RAGGED_STEPS):
                n = int(rng.choice(_RAGGED_BATCHES))
                m = 2 * int(rng.integers(n * _RAGGED_DEPTH // 2 + 1))
                noise = float(np.exp(NOISE * rng.standard_normal()))
                model.learn(n, m, latency_ms=captured_ms(n + m) * noise)
            rows.append(np.concatenate([_odd_errors(model, n) for n in _RAGGED_BATCHES]))
        figures.append(_median(f"latency/padding/{prefix}median_rel_error", rows))
    return figures


def _odd_errors(model: WatchedLatency, n: int) -> FloatArray:
    odd = np.arange(1, n * _RAGGED_DEPTH, 2)
    true = np.array([captured_ms(n + int(m)) for m in odd])
    errors: FloatArray = np.abs(model.curve(n, n * _RAGGED_DEPTH)[odd] / true - 1.0)
    return errors


def _hidden(world: World, rng: np.random.Generator) -> tuple[int, int]:
    return world.cells[int(rng.integers(len(world.cells)))]


def _teach_without(
    model: LatencyModel, world: World, cell: tuple[int, int], rng: np.random.Generator
) -> None:
    cells = [other for other in world.cells if other != cell for _ in range(VISITS)]
    for i in rng.permutation(len(cells)):
        _visit(model, world, cells[i], rng)


def _median(name: str, rows: list[FloatArray]) -> Figure:
    """Return the median over all entries; the interval comes from whole runs drawn anew."""
    table = np.array(rows)
    value = float(np.median(table))
    if len(rows) < 3:
        return Figure(name, value, n=len(rows))
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(rows), (1_000, len(rows)))
    low, high = np.quantile([np.median(table[draw]) for draw in draws], [0.025, 0.975])
    return Figure(name, value, float(low), float(high), n=len(rows))


def _share(name: str, rows: list[FloatArray]) -> Figure:
    """Return the share of all entries that hold; the interval comes from whole runs drawn anew."""
    means = np.array([float(row.mean()) for row in rows])
    value = float(means.mean())
    if means.size < 3:
        return Figure(name, value, n=means.size)
    rng = np.random.default_rng(0)
    drawn = means[rng.integers(0, means.size, (1_000, means.size))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Figure(name, value, float(low), float(high), n=means.size)
