"""Advice in a simulated fleet: hard rules hold for every request, and headroom is used."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.engine_state import Place
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.simulation.advised import AdvisedRouter, Wish
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.fleet import Fleet
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.stage import Stage
from acclimate.experiments.simulation.table_time import TableTime

# The second card has no headroom: every verified token costs as much as the first row.
STEEP = TableTime([1, 1, 8, 8, 64, 64], [0, 4, 0, 4, 0, 4], [20.0, 60.0, 40.0, 200.0, 90.0, 500.0])


def _engines() -> list[SimulatedEngine]:
    stages = Stage.copies(Scenario.read("bursts"), 2)
    depth = stages[0].capabilities.max_depth
    table = TableTime([1, 1, 64, 64], [0, depth, 0, depth], [20.0, 20.4, 30.0, 31.0])
    times = [table, STEEP]
    return [
        dataclasses.replace(stage, step_time=time).engine(
            arm_policy("adaptive", ControlConfig(), stage.capabilities)
        )
        for stage, time in zip(stages, times, strict=True)
    ]


def _places() -> list[Place]:
    return [
        Place(engine="flat", residency=("eu",), seats=64, trust_domains=("a",)),
        Place(engine="steep", residency=("us",), seats=64, trust_domains=("a", "b")),
    ]


def test_residency_and_trust_hold_for_every_request() -> None:
    engines = _engines()

    def wish(row: int) -> Wish:
        return Wish("b") if row % 3 == 0 else Wish("a", ("us",) if row % 3 == 1 else ())

    fleet = Fleet(engines, AdvisedRouter(engines, _places(), wish)).run(until_s=8.0)
    rows = np.flatnonzero(fleet.engine_of >= 0)
    bound = rows[rows % 3 < 2]
    assert rows.size > 20 and (fleet.engine_of[bound] == 1).all()
    assert (fleet.engine_of[rows[rows % 3 == 2]] == 0).any()


def test_a_request_that_may_go_nowhere_is_an_error_and_not_a_guess() -> None:
    engines = _engines()
    router = AdvisedRouter(engines, _places(), lambda row: Wish("a", ("mars",)))
    with pytest.raises(ValueError, match="got flat residency, steep residency"):
        router(0, [0, 0])
    wishes = {0: Wish("a", ("us",)), 1: Wish("b", (), separate=True)}
    router = AdvisedRouter(engines, _places(), lambda row: wishes[row])
    assert router(0, [0, 0]) == 1
    with pytest.raises(ValueError, match="got flat trust_domain, steep shared_batch"):
        router(1, [0, 1])  # the only engine that may serve b holds a
    assert router(1, [0, 0]) == 1  # and has finished it
    with pytest.raises(ValueError, match="one per engine"):
        AdvisedRouter(engines, _places()[:1])
