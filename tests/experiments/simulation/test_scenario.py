"""Scenario files: all of them run, and a wrong one says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.static import StaticPolicy
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.measures import measure
from acclimate.experiments.simulation.disturbance import NoisyTime
from acclimate.experiments.simulation.fleet import Fleet
from acclimate.experiments.simulation.scenario import FOLDER, Scenario, scenario_names
from acclimate.experiments.simulation.stage import Stage, run_scenario
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime

MINIMAL: dict[str, Any] = {
    "title": "small",
    "engine": {"max_depth": 2},
    "arrivals": {"kind": "closed", "concurrency": 2, "requests": 20},
    "lengths": {"prompt_tokens": 10, "output_tokens": 30},
    "step_time": {"rows": [[1, 0, 6.0], [1, 2, 7.0]]},
    "domains": [{"name": "code", "survival": [0.8, 0.6]}],
}


def changed(**sections: Any) -> dict[str, Any]:
    return {**MINIMAL, **sections}


@pytest.mark.parametrize("name", scenario_names())
def test_every_committed_scenario_runs(name: str) -> None:
    scenario = Scenario.read(name).model_copy(update={"until_s": 2.0})
    run = run_scenario(scenario, "adaptive")
    assert run.totals.steps > 100 and run.totals.accepted > 0
    assert run_scenario(scenario, "adaptive").tokens.tolist() == run.tokens.tolist()


def test_there_is_a_scenario_for_every_kind_of_change() -> None:
    assert {
        *("stable", "abrupt_drop", "abrupt_rise", "gradual", "recurring", "one_of_many"),
        *("all_at_once", "model_swap_declared", "model_swap_undeclared", "covariate_shift"),
        *("calibration_shift", "throttled", "bursts", "f2"),
    } <= set(scenario_names())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(shift=[]), r"small\.toml: unknown key 'shift' \(did you mean 'shifts'\?\)"),
        (
            changed(domains=[{"name": "code", "survivol": [0.8, 0.6]}]),
            r"domains\.0: unknown key 'survivol' \(did you mean 'survival'\?\)",
        ),
        (
            changed(domains=[{"name": "a", "survival": [0.8, 0.6], "conditional": [0.8, 0.7]}]),
            "domains.0: must have one of survival, conditional, got survival and conditional",
        ),
        (
            changed(domains=[{"name": "code", "survival": [0.8]}]),
            r"domains\.0\.survival must have engine\.max_depth = 2 positions, got 1",
        ),
        (
            changed(shifts=[{"at_s": 1.0, "domains": ["cod"], "move_logits": 1.0}]),
            r"shifts\.0\.domains must be among code, got 'cod'",
        ),
        (
            changed(arrivals={"kind": "poison", "rate_per_s": 1.0, "requests": 3}),
            "'closed', 'poisson', 'bursts', 'staggered', 'file'",
        ),
        (
            changed(step_time={"noise": 0.1}),
            "step_time: must have one of table, rows and roofline, got none",
        ),
        (changed(engine={"max_depth": 0}), r"engine\.max_depth: .*, got 0"),
        (
            changed(domains=[{"name": "code", "survival": [80, 60]}]),
            r"domains\.0\.survival\.0: .*less than or equal to 1, got 80",
        ),
    ],
)
def test_what_is_wrong_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scenario.of(data, name="small.toml")


def test_a_file_that_is_no_scenario_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("title = ", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine\.toml must be a scenario in TOML"):
        Scenario.read(path)
    with pytest.raises(FileNotFoundError, match=r"one of abrupt_drop, .*, got 'abrup'"):
        Scenario.read("abrup")


def test_policies_of_one_seed_meet_the_same_requests() -> None:
    scenario = Scenario.read("one_of_many")
    first, second = Stage.of(scenario, seed=3), Stage.of(scenario, seed=3)
    other = Stage.of(scenario, seed=4)
    assert (first.workload.output_tokens == second.workload.output_tokens).all()
    assert (first.workload.domain_of != other.workload.domain_of).any()
    rows, offsets = np.arange(99), np.full(99, 5)
    assert (
        first.drafts.draw(rows, offsets, 0.0)[1] == second.drafts.draw(rows, offsets, 0.0)[1]
    ).all()


def test_a_throttled_gpu_is_slower_for_its_window_alone() -> None:
    throttle = [{"from_s": 0.05, "until_s": 0.1, "factor": 2.0}]
    run = run_scenario(Scenario.of(changed(throttle=throttle)), "k0")
    steps = run.steps
    assert steps is not None
    plain = (steps.decode_requests == 2) & (steps.prefill_tokens == 0)
    inside = (steps.begun_s >= 0.05) & (steps.begun_s < 0.1)
    assert set(steps.duration_ms[plain & inside].round(6)) == {12.0}
    assert set(steps.duration_ms[plain & ~inside].round(6)) == {6.0}
    assert Stage.of(Scenario.of(changed(throttle=throttle))).truth.step_time is not None


def test_noise_has_the_mean_it_disturbs() -> None:
    noisy = NoisyTime(TableTime([1, 1], [0, 1], [6.0, 7.0]), 0.2)
    drawn = [noisy.step_ms(StepMakeUp(1, 0)) for _ in range(4_000)]
    assert np.mean(drawn) == pytest.approx(6.0, rel=0.015)
    assert np.std(np.log(drawn)) == pytest.approx(0.2, rel=0.05)
    assert noisy.curve(StepMakeUp(1, 1)).tolist() == [6.0, 7.0]


def test_targets_make_goodput() -> None:
    domains = [{"name": "code", "survival": [0.8, 0.6], "tpot_slo_ms": 5.0}]
    scenario = Scenario.of(changed(domains=domains))
    slow, fast = (measure(run_scenario(scenario, arm)) for arm in ("k0", "k2"))
    assert slow.slo_attainment == 0.0 and slow.goodput_tokens_per_s == 0.0
    assert fast.slo_attainment is not None and fast.slo_attainment > 0.9


def test_arrivals_from_a_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00.0000000,12,4\n"
        "2023-11-16 18:00:01.5000000,7,9\n",
        encoding="utf-8",
    )
    arrivals = {"kind": "file", "path": "trace.csv", "speed": 3.0}
    data = {**changed(arrivals=arrivals), "folder": tmp_path}
    del data["lengths"]
    run = run_scenario(Scenario.of(data), "k1")
    assert run.tokens.tolist() == [4, 9]
    assert run.arrival_s == pytest.approx([0.0, 0.5])


def test_the_oracle_is_not_beaten() -> None:
    scenario = Scenario.read("abrupt_drop").model_copy(update={"until_s": 12.0})
    speed = {
        arm: measure(run_scenario(scenario, arm, keep_steps=False)).tokens_per_s or 0.0
        for arm in ("k0", "k1", "k3", "k5", "adaptive", "oracle")
    }
    assert speed["oracle"] == max(speed.values())
    assert speed["adaptive"] > speed["k0"]


@pytest.mark.parametrize("router", ["round_robin", "least_loaded"])
def test_a_fleet_serves_every_request_once(router: str) -> None:
    scenario = Scenario.read("bursts")
    arrivals = scenario.arrivals.model_copy(update={"requests": 150})
    stages = Stage.copies(scenario.model_copy(update={"arrivals": arrivals}), 3)
    config = ControlConfig()
    engines = [s.engine(arm_policy("adaptive", config, s.capabilities)) for s in stages]
    fleet = Fleet(engines, router).run()
    served = np.sort(np.concatenate([run.request for run in fleet.runs]))
    assert served.tolist() == list(range(1, 151))
    assert all(run.finished.all() for run in fleet.runs)
    assert fleet.tokens == stages[0].workload.tokens
    for index, run in enumerate(fleet.runs):
        assert (fleet.engine_of[run.request - 1] == index).all()
        assert (run.first_token_s >= run.arrival_s).all()


def test_a_fleet_of_one_is_the_engine() -> None:
    stage, alone = Stage.of(Scenario.read("bursts")), Stage.of(Scenario.read("bursts"))
    run = stage.engine(StaticPolicy(2, stage.capabilities)).run()
    fleet = Fleet([alone.engine(StaticPolicy(2, alone.capabilities))], "least_loaded").run()
    assert fleet.runs[0].last_token_s.tolist() == run.last_token_s.tolist()


def test_a_fleet_refuses_what_cannot_be_one() -> None:
    stages = [Stage.of(Scenario.read("bursts")) for _ in range(2)]
    engines = [s.engine(StaticPolicy(0, s.capabilities)) for s in stages]
    with pytest.raises(ValueError, match="engines must share one workload"):
        Fleet(engines, "round_robin")
    with pytest.raises(ValueError, match="router must be one of round_robin, least_loaded"):
        Fleet(engines[:1], "random")
    assert (FOLDER / "f2.csv").is_file()
