"""Recovery in graded tokens: streaks, tokens that count once, alarms, and beliefs of any policy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    FloatArray,
    int_array,
)
from acclimate.controller.reports import Alarm
from acclimate.experiments.arms import arm_names, arm_policy
from acclimate.experiments.lab.recalibration_cell import (
    RecalibrationCell,
    change_episodes,
    run_recalibration_cell,
)
from acclimate.experiments.lab.recalibration_findings import lag_s, regret_s, steady_share
from acclimate.experiments.lab.recovery import (
    STREAK_TOKENS,
    Episode,
    RecoveryMeter,
    no_beliefs_because,
    survival_beliefs,
)
from acclimate.experiments.lab.shape import best_pace
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.stage import Stage

_TRUTH = np.array([[0.6, 0.3]])
_RIGHT, _WRONG = np.array([0.62, 0.27]), np.array([0.62, 0.36])


def _meter(*episodes: Episode) -> RecoveryMeter:
    return RecoveryMeter(
        ["a"], int_array([0, 0]), lambda now_s: _TRUTH, episodes or [_change(1.0)], max_depth=2
    )


def _change(begin_s: float, end_s: float | None = None) -> Episode:
    return Episode(label="a", begin_s=begin_s, end_s=begin_s if end_s is None else end_s)


def _learn(meter: RecoveryMeter, belief: FloatArray, count: int, now_s: float = 2.0) -> None:
    meter.learn({"a": belief}, int_array([count]), now_s)


def test_every_position_must_be_near_for_long_enough() -> None:
    meter = _meter()
    _learn(meter, _WRONG, 30)
    _learn(meter, _RIGHT, 150)
    assert meter.episodes[0].recovered is None
    _learn(meter, _WRONG, 10)  # one position slips: the streak begins again
    _learn(meter, _RIGHT, 199)
    assert meter.episodes[0].recovered is None
    _learn(meter, _RIGHT, 1)
    assert meter.episodes[0].recovered == 190
    assert meter.episodes[0].graded == 390


def test_nothing_counts_before_the_change_is_complete() -> None:
    meter = _meter(_change(1.0, 3.0))
    _learn(meter, _WRONG, 500, now_s=0.5)
    _learn(meter, _WRONG, 500, now_s=2.0)
    _learn(meter, _RIGHT, 200, now_s=3.5)
    assert (meter.episodes[0].recovered, meter.episodes[0].graded) == (0, 200)


def test_the_next_change_ends_an_episode() -> None:
    meter = _meter(_change(1.0), _change(5.0))
    _learn(meter, _RIGHT, 150)
    _learn(meter, _RIGHT, 200, now_s=6.0)
    first, second = meter.episodes
    assert (first.recovered, first.graded) == (None, 150)
    assert (second.recovered, second.graded) == (0, 200)


def test_a_token_counts_once_however_many_drafts_it_grades() -> None:
    meter = _meter()
    drafts = DraftOutcomes(
        request=int_array([1, 2, 2]), drafted_by=int_array([1, 1, 1]),
        verified_by=int_array([2, 2, -1]), proposed=int_array([2, 2, 2]),
        verified=int_array([2, 1, 0]), accepted=int_array([2, 0, 0]), start=int_array([0, 0, 1]),
        graded=int_array([2, 1, 1]), matched=int_array([2, 0, 1]), fresh=int_array([2, 1, 0]),
    )  # fmt: skip
    meter.grade({"a": _RIGHT}, drafts, 2.0)
    assert meter.episodes[0].graded == 3
    count, predicted, seen = meter.calibration.sum(axis=1)
    assert (count, seen) == (4, 3)
    assert predicted == pytest.approx(2 * 0.62 + 2 * 0.27 / 0.62)


def test_alarms() -> None:
    meter = _meter(_change(1.0), _change(9.0, 12.0))
    alarm = Alarm(step=1, slot=1, label="a", signal="", before=0.0, after=0.0, graded_tokens=0)
    meter.notice([alarm], 0.5)
    _learn(meter, _WRONG, 40)
    meter.notice([alarm], 2.0)
    meter.notice([alarm], 3.0)
    assert (meter.false_alarms, meter.episodes[0].noticed) == (2, 40)
    _learn(meter, _WRONG, 10, now_s=10.0)
    meter.notice([alarm, alarm], 11.0)  # while a change goes on, none is false
    assert (meter.alarms, meter.false_alarms, meter.episodes[1].noticed) == (5, 2, 10)


def test_where_nothing_changes_every_alarm_is_false() -> None:
    meter = _meter(Episode(label="a", begin_s=0.0, end_s=0.0, cold=True))
    alarm = Alarm(step=1, slot=1, label="a", signal="", before=0.0, after=0.0, graded_tokens=0)
    meter.notice([alarm], 5.0)
    assert meter.false_alarms == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 120)), max_size=40))
def test_recovery_is_the_first_long_streak(steps: list[tuple[bool, int]]) -> None:
    meter = _meter()
    for right, count in steps:
        _learn(meter, _RIGHT if right else _WRONG, count)
    passed = streak = 0
    expected = None
    for right, count in steps:
        passed, streak = passed + count, streak + count if right else 0
        if expected is None and streak >= STREAK_TOKENS:
            expected = passed - streak
    assert meter.episodes[0].recovered == expected


def test_every_arm_has_beliefs_or_a_reason() -> None:
    stage = Stage.of(Scenario.read("stable"))
    engine = Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5))
    for name in arm_names():
        policy = arm_policy(name, ControlConfig(), engine, stage.truth)
        beliefs = survival_beliefs(policy, 5)
        assert beliefs is None or all(b.shape == (5,) for b in beliefs.values())
        assert no_beliefs_because(name)


def test_episodes_follow_the_scenario() -> None:
    def episodes(name: str) -> list[tuple[str, float, float, bool]]:
        found = change_episodes(Stage.of(Scenario.read(name)), 30.0)
        return [(e.label, e.begin_s, e.end_s, e.cold) for e in found]

    assert episodes("gradual") == [("chat", 10.0, 20.0, False)]
    assert episodes("one_of_many") == [("code", 10.0, 10.0, False)]
    assert [e[1] for e in episodes("recurring")] == [5.0, 10.0, 15.0, 20.0, 25.0]
    assert {e[0] for e in episodes("stable")} == {"code", "chat"}
    assert all(cold for *_, cold in episodes("stable"))


@pytest.mark.parametrize("uniform", [False, True])
def test_best_pace_is_the_best_of_all_shapes(uniform: bool) -> None:
    survival = np.array([[0.9, 0.7, 0.3], [0.4, 0.3, 0.1]])
    curve = np.array([10.0, 10.4, 10.8, 13.0, 13.3, 13.5, 14.0])
    drafting = np.array([0.0, 0.5, 1.0, 1.5])
    paces = []
    for a in range(4):
        for b in range(4):
            if not uniform or a == b:
                tokens = 2 + survival[0, :a].sum() + survival[1, :b].sum()
                paces.append(tokens / (curve[a + b] + drafting[max(a, b)]))
    best = best_pace(survival, np.ones((2, 3)), (0, 1, 2, 3), curve, drafting, uniform=uniform)
    assert best == pytest.approx(max(paces))


def _short(name: str, **changes: object) -> Scenario:
    return Scenario.read(name).model_copy(update={"until_s": 6.0, **changes})


def test_regret_against_itself_is_nothing_and_k0_loses() -> None:
    case = _short("stable")
    oracle, k0, again = (
        run_recalibration_cell(RecalibrationCell("stable", case, policy, 3))
        for policy in ("oracle", "k0", "oracle")
    )
    assert oracle == again
    assert regret_s(oracle, oracle) == pytest.approx(0.0, abs=1e-6)
    assert steady_share(oracle, oracle) == 1.0
    # k0 needs all of its six seconds for what the oracle had after a little over half of them.
    assert 1.5 < regret_s(k0, oracle) < 4.0
    assert (np.diff(lag_s(k0, oracle)) > -0.02).all()
    best, plain = (np.array([s for s in run.shape if s is not None]) for run in (oracle, k0))
    assert best.max() <= 1 + 1e-9
    assert np.median(best) > 0.99
    assert np.median(plain) < 0.75
