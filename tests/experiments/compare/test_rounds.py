"""Which arm runs what, where and when; what is thinned to keep to a budget."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from tests.experiments.compare.scripted_engine import ScriptedEngine

from acclimate.experiments.compare.arms import parse_arms
from acclimate.experiments.compare.cells import Cell, arrivals_of, build_cells, jobs_of
from acclimate.experiments.compare.plan import Pace, Plan, make_plan
from acclimate.experiments.compare.rounds import Traffic, run_rounds
from acclimate.experiments.compare.warm_up import engine_names, warm_up
from acclimate.integrations.vllm.closed_loop import Job

JOBS = tuple(
    Job(f"{domain}{i}", (1,), 12, label=domain, truth=domain)
    for domain in ("code", "prose", "qa")
    for i in range(4)
)
ARMS = parse_arms("none,stock-k2,k1,adaptive", max_depth=4)
NAMES = [arm.name for arm in ARMS]
PACES = {1: Pace(20.0, 10.0, 0.5), 4: Pace(60.0, 10.0, 0.7)}


def _plan(cells: tuple[Cell, ...], *, rounds: int = 4, budget_s: float = 1e9) -> Plan:
    return make_plan(
        cells, prompts=Counter(job.truth for job in JOBS), paces=PACES, capacity_per_s=6.0,
        arms=len(ARMS), rounds=rounds, budget_s=budget_s,
    )  # fmt: skip


def _run(plan: Plan, *, seed: int = 0) -> tuple[dict[str, ScriptedEngine], int]:
    engines = {name: ScriptedEngine(dict.fromkeys(NAMES, 0.05)) for name in engine_names(ARMS)}
    traffic = Traffic(JOBS, 6.0, "poisson", np.zeros(0))
    done = run_rounds(engines, ARMS, plan, traffic, seed=seed, go_on=lambda number: True,
                      on_row=lambda row: None)  # fmt: skip
    return engines, done


def test_every_arm_gets_the_same_prompts_at_the_same_time_on_its_own_engine() -> None:
    engines, done = _run(_plan(build_cells([1, 4], [0.6])))
    assert done == 4
    by_place = defaultdict(list)
    for name, engine in engines.items():
        for order in engine.orders:
            assert {arm.name: arm.engine for arm in ARMS}[order.arm] == name
            by_place[order.round, order.cell, order.block].append(order)
    for orders in by_place.values():
        assert sorted(order.arm for order in orders) == sorted(NAMES)
        assert len({order.jobs for order in orders}) == 1
        assert len({order.arrival_s for order in orders}) == 1
    # Every prompt in every round and cell; another order in another round.
    sent = Counter(
        (place[0], place[1], job.key)
        for place, orders in by_place.items()
        for job in orders[0].jobs
    )
    assert set(sent.values()) == {1} and len(sent) == 4 * 3 * len(JOBS)
    assert by_place[0, "c4", 0][0].jobs != by_place[1, "c4", 0][0].jobs


def test_the_order_of_arms_rotates_and_turns() -> None:
    order: list[tuple[tuple[int, str, int], str]] = []
    engines = {name: ScriptedEngine(dict.fromkeys(NAMES, 0.05)) for name in engine_names(ARMS)}
    run_rounds(
        engines, ARMS, _plan(build_cells([4], []), rounds=12), Traffic(JOBS, 6.0, "poisson",
        np.zeros(0)), seed=0, go_on=lambda number: True, on_row=lambda row: None,
        on_order=lambda o: order.append(((o.round, o.cell, o.block), o.arm)),
    )  # fmt: skip
    first, follows = Counter(), Counter()  # type: ignore[var-annotated]
    for (place, arm), (place_before, before) in zip(order[1:], order, strict=False):
        if place == place_before:
            follows[before, arm] += 1
        else:
            first[arm] += 1
    assert max(first.values()) <= 3
    # Neighbours follow each other both ways, about as often.
    assert all(abs(count - follows[b, a]) <= 3 for (a, b), count in follows.items())


def test_a_run_stops_after_a_whole_round() -> None:
    engines = {name: ScriptedEngine(dict.fromkeys(NAMES, 0.05)) for name in engine_names(ARMS)}
    rows: list[int] = []
    done = run_rounds(
        engines, ARMS, _plan(build_cells([1], [])), Traffic(JOBS, 6.0, "poisson", np.zeros(0)),
        seed=0, go_on=lambda number: number < 2, on_row=lambda row: rows.append(row.round),
    )  # fmt: skip
    assert done == 2 and set(rows) == {0, 1}
    assert rows.count(0) == rows.count(1)


def test_a_seed_repeats_orders_and_arrivals() -> None:
    plan = _plan(build_cells([4], [0.6]))
    first, again, other = (_run(plan, seed=seed)[0]["none"].orders for seed in (1, 1, 2))
    assert first == again != other


def test_a_small_budget_thins_what_is_dear_and_keeps_two_measurements_of_a_prompt() -> None:
    cells = build_cells([1, 4], [0.3, 0.9])
    whole = _plan(cells)
    assert whole.words == ""
    tight = _plan(cells, budget_s=0.8 * whole.total_s)
    assert tight.total_s <= 0.8 * whole.total_s
    dear = next(cell for cell in tight.cells if cell.cell.load == "c1")
    assert 1 < dear.slices <= 2 and dear.slices * dear.every <= 2
    assert "c1 sends 1/2 of the prompts a round" in tight.words
    # With less than that there is one measurement left, and at last nothing to thin.
    least = _plan(cells, budget_s=1.0)
    assert all(any(cell.runs_in(n) for n in range(4)) for cell in least.cells)


def test_slices_cover_all_prompts_and_every_domain() -> None:
    rng = np.random.default_rng(0)
    parts = [jobs_of(Cell(concurrency=1), JOBS, round=n, slices=3, rng=rng) for n in range(3)]
    assert sorted(job.key for part in parts for job in part) == sorted(job.key for job in JOBS)
    assert all({job.truth for job in part} == {"code", "prose", "qa"} for part in parts)
    single = jobs_of(Cell(concurrency=1, domain="qa"), JOBS, round=0, slices=1, rng=rng)
    assert {job.truth for job in single} == {"qa"} and len(single) == 4


@pytest.mark.parametrize("kind", ["poisson", "bursts", "trace"])
def test_arrivals_have_the_mean_rate_that_is_asked_for(kind: str) -> None:
    recorded_s = np.cumsum(np.random.default_rng(1).exponential(7.0, size=3_000))
    times_s = arrivals_of(kind, 2_000, 0.5, np.random.default_rng(0), recorded_s)
    assert times_s.shape == (2_000,) and (np.diff(times_s) >= 0).all()
    assert 2_000 / times_s[-1] == pytest.approx(0.5, rel=0.08)


def test_a_warm_up_wakes_everything_and_leaves_policies_cold() -> None:
    engines = {name: ScriptedEngine(dict.fromkeys(NAMES, 0.05)) for name in engine_names(ARMS)}
    paces = warm_up(engines, ARMS, JOBS, [1, 4])
    orders = [order for engine in engines.values() for order in engine.orders]
    assert all(order.fresh and order.round == -1 for order in orders)
    assert {"none", "stock-k2", "adaptive", "k0"} <= {order.arm for order in orders}
    assert paces[1].tokens == 12 and 0 < paces[1].tokens_per_s < 20
