"""Several simulated engines behind a router, on one stream of arrivals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from typing import Any

import simpy

from acclimate.controller.records import IntArray, int_array
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.engine import SimulatedEngine

Router = Callable[[int, Sequence[int]], int]
"""Chooses an engine, given a request's row and the requests that each engine holds."""


def round_robin() -> Router:
    """Return a router that takes the engines in turn.

    >>> route = round_robin()
    >>> [route(row, [9, 0, 0]) for row in range(4)]
    [0, 1, 2, 0]
    """
    turn = -1

    def route(row: int, held: Sequence[int]) -> int:
        nonlocal turn
        turn = (turn + 1) % len(held)
        return turn

    return route


def least_loaded(row: int, held: Sequence[int]) -> int:
    """Return the engine that holds the fewest requests, the first of equals.

    >>> least_loaded(0, [3, 1, 1])
    1
    """
    return min(range(len(held)), key=held.__getitem__)


ROUTERS: dict[str, Callable[[], Router]] = {
    "round_robin": round_robin,
    "least_loaded": lambda: least_loaded,
}


@dataclasses.dataclass(frozen=True, slots=True)
class FleetRun:
    """What a fleet gave.

    Parameters
    ----------
    runs
        One per engine, with the requests that it served.
    engine_of
        Shape (n,): which engine served each request of the workload; -1: not sent.
    """

    runs: tuple[Run, ...]
    engine_of: IntArray

    @property
    def tokens(self) -> int:
        """Output tokens of all engines."""
        return sum(int(run.tokens.sum()) for run in self.runs)

    @property
    def duration_s(self) -> float:
        """Seconds from the first request to the last step of any engine."""
        busy = [run for run in self.runs if run.request.size]
        if not busy:
            return 0.0
        return max(run.ended_s for run in busy) - min(run.begun_s for run in busy)


class Fleet:
    """Engines that share one workload, each with its own clock, control loop and policy.

    Requests go to an engine when they arrive and stay there. The router sees an engine as it is at
    that moment: a step under way has not ended.

    Parameters
    ----------
    engines
        In open loop and idle, all with the same workload object and a clock of their own.
    router
        A key of `ROUTERS`, or a function.

    Raises
    ------
    ValueError
        There is no engine, the engines differ in workload or share a clock, or the router is
        unknown.

    Examples
    --------
    >>> from acclimate.experiments.simulation.scenario import Scenario
    >>> from acclimate.experiments.simulation.stage import Stage
    >>> from acclimate.experiments.arms import arm_policy
    >>> from acclimate.controller.config import ControlConfig
    >>> stages = Stage.copies(Scenario.read("bursts"), 2)
    >>> engines = [
    ...     stage.engine(arm_policy("k1", ControlConfig(), stage.capabilities)) for stage in stages
    ... ]
    >>> fleet = Fleet(engines, "round_robin").run()
    >>> [int(run.finished.sum()) for run in fleet.runs]
    [300, 300]
    """

    def __init__(self, engines: Sequence[SimulatedEngine], router: str | Router) -> None:
        if not engines:
            raise ValueError("a fleet must have an engine, got none")
        workloads = {id(engine.workload) for engine in engines}
        clocks = {id(engine.clock) for engine in engines}
        if len(workloads) > 1 or len(clocks) < len(engines):
            raise ValueError(
                "engines must share one workload and have a clock each, "
                f"got {len(workloads)} workloads and {len(clocks)} clocks"
            )
        if any(engine.concurrency is not None for engine in engines):
            raise ValueError("engines of a fleet must be in open loop, got a closed one")
        if isinstance(router, str):
            if router not in ROUTERS:
                raise ValueError(f"router must be one of {', '.join(ROUTERS)}, got {router!r}")
            router = ROUTERS[router]()
        self.engines = tuple(engines)
        self._route = router
        self._engine_of = int_array([-1] * len(engines[0].workload))

    def run(self, *, until_s: float | None = None) -> FleetRun:
        """Serve the whole stream, or until a time; a fleet runs once."""
        # Simulated time counts whole nanoseconds, as the engines do.
        environment = simpy.Environment()
        wake = [environment.event() for _ in self.engines]
        environment.process(self._arrivals(environment, wake))
        for index in range(len(self.engines)):
            environment.process(self._serve(environment, wake, index))
        environment.run(None if until_s is None else round(until_s * 1e9))
        return FleetRun(tuple(engine.result() for engine in self.engines), self._engine_of)

    def _arrivals(
        self, environment: simpy.Environment, wake: list[simpy.Event]
    ) -> Generator[simpy.Event, Any, None]:
        arrivals = self.engines[0].workload.arrival_s
        for row in range(arrivals.shape[0]):
            at_ns = round(float(arrivals[row]) * 1e9)
            if at_ns > environment.now:
                yield environment.timeout(at_ns - environment.now)
            index = self._route(row, [engine.in_system for engine in self.engines])
            self._engine_of[row] = index
            self.engines[index].submit(row, at_ns)
            if not wake[index].triggered:
                wake[index].succeed()

    def _serve(
        self, environment: simpy.Environment, wake: list[simpy.Event], index: int
    ) -> Generator[simpy.Event, Any, None]:
        engine = self.engines[index]
        while True:
            if not engine.in_system:
                yield wake[index]
                wake[index] = environment.event()
            if not engine.in_system:
                continue
            engine.clock.now_ns = int(environment.now)
            yield environment.timeout(engine.begin())
            engine.clock.now_ns = int(environment.now)
            engine.finish()
