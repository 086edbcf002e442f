"""The latency bench: its worlds are what they say, its figures judge who learns them."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.experiments.bench.latency import (
    efficiencies,
    relative_errors,
    run_bench_latency,
    teach,
)
from acclimate.experiments.bench.latency_models import MODELS
from acclimate.experiments.bench.latency_worlds import F2_SURVIVALS, WORLDS, f2, one_cliff


class Oracle:
    """Knows the table."""

    def __init__(self, world):
        self._world = world

    def learn(self, requests, depth, ms):
        pass

    def predict(self, requests, depth):
        b, d = self._world.batches.index(requests), self._world.depths.index(depth)
        return float(self._world.ms[b, d])


def test_f2_has_the_best_depths_of_facts():
    world = f2()
    assert world.batches == (1, 4, 16, 64, 256)
    known = ([3, 3, 3, 1, 0], [5, 5, 5, 3, 0], [3, 3, 3, 0, 0])
    for survival, best in zip(F2_SURVIVALS, known, strict=True):
        chosen = world.throughput(world.ms, survival).argmax(axis=1)
        assert [world.depths[d] for d in chosen] == best


def test_the_cliff_is_four_times_what_more_tokens_cost():
    world = one_cliff()
    at = {n * (k + 1): world.ms[b, d] for b, n in enumerate(world.batches)
          for d, k in enumerate(world.depths)}  # fmt: skip
    assert at[48] == pytest.approx(4 * at[64])


@pytest.mark.parametrize("case", WORLDS)
def test_who_knows_the_table_makes_no_error_and_a_line_makes_some(case):
    world = WORLDS[case]()
    assert relative_errors(Oracle(world), world).max() == 0.0
    assert efficiencies(Oracle(world), world).min() == 1.0
    model = MODELS["linear"](world.exact())
    teach(model, world.exact(), 3, np.random.default_rng(0))
    assert np.median(relative_errors(model, world)) > 0.05


def test_noise_and_stalls_are_as_named():
    world, rng = f2(), np.random.default_rng(1)
    ms = np.array([world.step_ms((0, 0), rng) for _ in range(5_000)]) / world.ms[0, 0]
    assert (ms > 5).mean() == pytest.approx(0.02, abs=0.006)
    assert np.log(ms[ms < 5]).std() == pytest.approx(0.05, rel=0.05)


def test_every_case_has_its_figures_and_a_seed_repeats_them(tmp_path):
    runs = [run_bench_latency(seeds=1, seed=3, json=tmp_path / "out.json") for _ in range(2)]
    assert runs[0] == runs[1]
    names = {figure.name for figure in runs[0]}
    for case in WORLDS:
        for kind in (case, f"{case}_exact"):
            assert f"latency/{kind}/median_rel_error" in names
            assert f"latency/{kind}/efficiency_share" in names
    assert "latency/slowdown/rel_error_after_50_steps" in names
    assert not any(n.startswith("latency/slowdown") and "median_rel" in n for n in names)
    assert {"latency/slow_cell/kept_share", "latency/lone_stall/ignored_share"} <= names
    assert all(figure.value is not None for figure in runs[0])
