"""A drafter's worth that changes is noticed, once, and learned anew from what followed."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.controller.tree_drift import ALL, TreeDrift, families
from acclimate.controller.tree_paths import PathWorth
from acclimate.predictors.draft_calibration import DraftCalibration
from acclimate.predictors.draft_memory import DraftMemory, DraftNodes


def _serve(drift: TreeDrift, rng: np.random.Generator, steps: int, shift: float) -> list[set[int]]:
    """Serve two requests of two slots whose outcomes differ from beliefs by ``shift`` log-odds."""
    alarms = []
    slots = rows = np.array([1, 2])
    for _ in range(steps):
        odds = rng.normal(scale=2.0, size=2)
        believed, true = (1.0 / (1.0 + np.exp(-(odds + by))) for by in (0.0, shift))
        roots, request = np.full(2, -1), np.array([0, 1])
        hit = (rng.random(2) < true).astype(np.int64)
        found = families(request, roots, believed, hit, np.arange(2))
        alarms.append(set(drift.observe(slots, rows, found)))
    return alarms


def test_a_change_of_all_is_noticed_soon_and_calm_is_left_alone() -> None:
    rng, drift = np.random.default_rng(0), TreeDrift(3)
    assert not any(_serve(drift, rng, 2_000, 0.0))
    alarms = _serve(drift, rng, 150, -1.5)
    first = next(i for i, found in enumerate(alarms) if found)
    assert ALL in set.union(*alarms) and first < 60


def test_it_goes_on_from_its_state() -> None:
    drift = TreeDrift(3)
    _serve(drift, np.random.default_rng(0), 300, 0.0)
    other = TreeDrift(3)
    other.load(drift.state())
    ours, theirs = (_serve(d, np.random.default_rng(1), 100, 1.5) for d in (drift, other))
    assert ours == theirs and any(ours)


def test_the_memory_gives_back_a_slots_latest_families() -> None:
    memory = DraftMemory(3, capacity=50)
    for step in range(40):
        slots = np.array([1, 1, 2])
        number = np.full(3, step)
        memory.add(
            DraftNodes(slots, slots, slots, number, np.full(3, 0.5), np.array([1, 0, 0])),
            np.array([0, 0, 1]),
        )
    found = memory.latest(1, families=3)
    assert found.depth.tolist() == [37, 37, 38, 38, 39, 39]
    assert memory.latest(2, families=1e9).depth.tolist() == list(range(23, 40))
    memory.open_slot(2)
    assert not memory.latest(2, families=5).depth.size
    other = DraftMemory(3, capacity=50)
    other.load(memory.state())
    assert other.latest(1, families=3).depth.tolist() == found.depth.tolist()


def test_beliefs_rest_on_what_followed_the_change() -> None:
    rng, drafter = np.random.default_rng(0), DraftCalibration(2, 4)
    n = 3_000
    ones, said = np.ones(n, dtype=np.int64), rng.uniform(0.05, 0.95, n)
    drafter.learn(ones, ones, ones, said, (rng.random(n) < said).astype(np.int64))
    probe = np.array([0.5])
    one = ones[:1]
    pool = drafter.pool_line.copy()
    recent, rows = said[:150], np.where(np.arange(150) % 2, 1, 0)
    odds = recent / (1.0 - recent) * np.exp(-1.5)
    hits = (rng.random(150) < odds / (1.0 + odds)).astype(np.int64)
    drafter.learn_anew(1, rows, ones[:150], recent, hits)
    assert drafter.conditional(one, 0 * one, one, probe)[0] == pytest.approx(0.18, abs=0.09)
    assert (drafter.pool_line == pool).all()
    assert np.isfinite(drafter.offset).all() and drafter.offset[0] == 0.0


def test_a_path_is_never_likelier_than_its_parent() -> None:
    worth = PathWorth(1)
    zeros, depth = np.zeros(3, np.int64), np.array([1, 2, 3])
    for _ in range(100):
        worth.learn(zeros, depth, np.array([0.5, 0.4, 0.3]), np.ones(3, np.int64), zeros + 1)
    found = worth.apply(zeros, np.array([-1, 0, 1]), depth, np.array([0.5, 0.45, 0.4]))
    assert found.tolist() == [0.5, 0.5, 0.5]
