"""The cluster of ``lab sovereign``: four engines with different cards, in two regions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from acclimate.controller.engine_state import Place
from acclimate.controller.records import IntArray
from acclimate.experiments.lab.sovereign_cell import (
    RequestFates,
    fates_of,
    shield_config,
    sovereign_policy,
)
from acclimate.experiments.simulation.advised import AdvisedRouter, Wish
from acclimate.experiments.simulation.disturbance import NoisyTime
from acclimate.experiments.simulation.engine import SimulatedEngine
from acclimate.experiments.simulation.fleet import Fleet, FleetRun, Router
from acclimate.experiments.simulation.roofline import RooflineTime
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.stage import Stage
from acclimate.experiments.simulation.truth import DrawnTruth
from acclimate.experiments.workload import Workload

ENGINES = (("h100", "eu"), ("a100", "eu"), ("h100", "us"), ("rtx4090", "us"))
"""Card and region of each engine."""

ROUTERS = ("least_loaded", "advised")
CLUSTER_ARMS = ("k0", "always_on", "ours")


class ClusterCell(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    Parameters
    ----------
    router
        ``least_loaded``: of the engines in the request's region the one with the fewest requests.
        ``advised``: the one that placement advice ranks first.
    arm
        What every engine runs.
    length
        Factor on the time that is simulated.
    """

    router: str
    arm: str
    seed: int
    length: float = 1.0

    @property
    def key(self) -> str:
        """Name of the cell."""
        return f"cluster/{self.router}/{self.arm}/seed{self.seed}"


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, tag="cluster"):
    """What came of a cell, of the requests that arrived after the warm-up and finished.

    Parameters
    ----------
    tokens, tokens_met
        Their output tokens, and those of requests that met their targets.
    window_s
        Time in which they arrived.
    fates
        What became of each, to be paired with the run without speculation.
    sent
        Requests that each engine got.
    abroad
        Requests that were sent to another region than their own.
    mixed
        Engines that served two regions.
    """

    key: str
    cell: ClusterCell
    tokens: int
    tokens_met: int
    window_s: float
    fates: RequestFates
    sent: list[int]
    abroad: int
    mixed: int


def run_cluster_cell(cell: ClusterCell) -> ClusterRow:
    """Run a cell; the same cell gives the same row."""
    scenario = Scenario.read("sovereign/cluster")
    until_s = cell.length * (scenario.until_s or 0.0)
    engines = cluster_engines(scenario, cell.arm, cell.seed)
    fleet = Fleet(engines, _router(cell.router, engines)).run(until_s=until_s)
    return _row(cell, fleet, engines[0].workload, cell.length * scenario.measure_from_s, until_s)


def cluster_engines(scenario: Scenario, arm: str, seed: int) -> list[SimulatedEngine]:
    """Return the engines, each with its card, its policy and a clock of its own."""
    engines = []
    stages = Stage.copies(scenario, len(ENGINES), seed=seed)
    for index, ((card, _), stage) in enumerate(zip(ENGINES, stages, strict=True)):
        exact = RooflineTime(card)
        truth = DrawnTruth(stage.drafts, exact)
        noisy = NoisyTime(exact, scenario.step_time.noise, seed=seed + 1_000 * index)
        stage = dataclasses.replace(stage, step_time=noisy, truth=truth)
        config = shield_config(arm, seed)
        policy = sovereign_policy(arm, config, stage.capabilities, truth, scenario)
        engines.append(stage.engine(policy, config=config, log=_refuse, keep_steps=False))
    return engines


def regional(workload: Workload) -> Router:
    """Return a router that takes, of the engines in a request's region, the least loaded."""
    region_of = _regions(workload)

    def route(row: int, held: Sequence[int]) -> int:
        region = region_of[row]
        own = [at for at, (_, where) in enumerate(ENGINES) if where == region]
        return min(own, key=lambda at: held[at])

    return route


def _router(name: str, engines: Sequence[SimulatedEngine]) -> Router:
    workload = engines[0].workload
    if name == "least_loaded":
        return regional(workload)
    if name != "advised":
        raise ValueError(f"router must be one of {', '.join(ROUTERS)}, got {name!r}")
    region_of = _regions(workload)
    places = [
        Place(engine=f"{card}-{region}", residency=(region,), trust_domains=(region,), seats=256)
        for card, region in ENGINES
    ]
    return AdvisedRouter(
        engines, places, lambda row: Wish(region_of[row], (region_of[row],), separate=True)
    )


def _row(
    cell: ClusterCell, fleet: FleetRun, workload: Workload, from_s: float, until_s: float
) -> ClusterRow:
    region_of = np.array(_regions(workload))
    fates = [fates_of(run, from_s) for run in fleet.runs]
    merged = RequestFates(*(_joined(fates, name) for name in RequestFates.__struct_fields__))
    judged: IntArray = np.asarray(merged.request, dtype=np.int64) - 1
    tokens = workload.output_tokens[judged]
    sent = np.flatnonzero(fleet.engine_of >= 0)
    where = np.array([region for _, region in ENGINES])[fleet.engine_of[sent]]
    served = [set(region_of[sent][fleet.engine_of[sent] == at]) for at in range(len(ENGINES))]
    return ClusterRow(
        key=cell.key,
        cell=cell,
        tokens=int(tokens.sum()),
        tokens_met=int(tokens[np.asarray(merged.met) == 1].sum()),
        window_s=until_s - from_s,
        fates=merged,
        sent=np.bincount(fleet.engine_of[sent], minlength=len(ENGINES)).tolist(),
        abroad=int(np.count_nonzero(where != region_of[sent])),
        mixed=sum(len(regions) > 1 for regions in served),
    )


def _joined(fates: Sequence[RequestFates], name: str) -> list[Any]:
    return [value for each in fates for value in getattr(each, name)]


def _regions(workload: Workload) -> list[str]:
    if workload.trust_of is None:
        raise ValueError("requests must have a trust domain, got none")
    return [workload.trust_domain[index] for index in workload.trust_of.tolist()]


def _refuse(line: str) -> None:
    raise RuntimeError(f"policies of a cluster must not fail in a simulation, got: {line}")
