"""A fleet's router that follows placement advice, from what its engines have learned so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import msgspec

from acclimate.controller.engine_state import EngineState, Load, Place
from acclimate.controller.engine_view import engine_state
from acclimate.controller.placement import advise
from acclimate.experiments.simulation.engine import SimulatedEngine


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks of its place; see `acclimate.controller.placement.unfit`."""

    trust_domain: str = ""
    residency: tuple[str, ...] = ()
    separate: bool = False


class AdvisedRouter:
    """Sends each request of a fleet to the engine that `advise` ranks first.

    Parameters
    ----------
    engines
        Of the fleet, in its order.
    places
        Who they are; as many.
    wish
        What a request of the workload, given by its row, asks for.

    Raises
    ------
    ValueError
        There are not as many places as engines; later: a request may go nowhere.

    Examples
    --------
    >>> from acclimate.experiments.arms import arm_policy
    >>> from acclimate.experiments.simulation.fleet import Fleet
    >>> from acclimate.experiments.simulation.scenario import Scenario
    >>> from acclimate.experiments.simulation.stage import Stage
    >>> from acclimate.controller.config import ControlConfig
    >>> stages = Stage.copies(Scenario.read("bursts"), 2)
    >>> engines = [s.engine(arm_policy("adaptive", ControlConfig(), s.capabilities)) for s in stages]
    >>> places = [Place(engine=name, residency=(name,), seats=32) for name in ("eu", "us")]
    >>> router = AdvisedRouter(engines, places, lambda row: Wish(residency=("us",)))
    >>> int(Fleet(engines, router).run(until_s=2.0).engine_of.max())
    1
    """

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        places: Sequence[Place],
        wish: Callable[[int], Wish] = lambda row: Wish(),
    ) -> None:
        if len(places) != len(engines):
            raise ValueError(f"places must be {len(engines)}, one per engine, got {len(places)}")
        self._engines = tuple(engines)
        self._places = tuple(places)
        self._wish = wish
        self._index = {place.engine: at for at, place in enumerate(places)}
        # Who was sent since an engine was empty last: at least those that it holds.
        self._domains: list[set[str]] = [set() for _ in engines]

    def __call__(self, row: int, held: Sequence[int]) -> int:
        """Return the engine for a request of the workload."""
        for domains, count in zip(self._domains, held, strict=True):
            if not count:
                domains.clear()
        wish = self._wish(row)
        workload = self._engines[0].workload
        request = msgspec.structs.replace(
            workload.request_info(row, 0), trust_domain=wish.trust_domain
        )
        states = [self._state(at, count) for at, count in enumerate(held)]
        ranked = advise(request, states, residency=wish.residency, separate=wish.separate)
        if ranked[0].reason is not None:
            why = ", ".join(f"{advice.engine} {advice.reason}" for advice in ranked)
            raise ValueError(f"request {row} must have an engine that may serve it, got {why}")
        at = self._index[ranked[0].engine]
        self._domains[at].add(wish.trust_domain)
        return at

    def _state(self, at: int, held: int) -> EngineState:
        loop, place = self._engines[at].loop, self._places[at]
        running = min(held, place.seats)
        load = Load(
            running=running,
            waiting=held - running,
            context_tokens=self._engines[at].context_tokens,
            batch_domains=tuple(sorted(self._domains[at])),
        )
        return engine_state(loop.policy, loop.capabilities, place, load)
