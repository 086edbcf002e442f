"""Connects an engine's scheduler with the control loop, without importing the engine.

The scheduler calls, per step and in this order: `begin`, `depth`, `scheduled`, `sampled`,
`finish`; and `admit`, `preempt`, `free` as requests come, lose their place and go. A step's
outcome may come after the next step began (asynchronous scheduling), so steps in flight queue up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from acclimate.controller.engine_state import EngineState, Load, Place
from acclimate.controller.engine_view import engine_state
from acclimate.controller.loop import ControlLoop
from acclimate.integrations.vllm.flight import BridgeCounters, EngineFacts, Flight
from acclimate.integrations.vllm.grading import DraftGrader, Ids
from acclimate.integrations.vllm.metadata import MetadataReader
from acclimate.integrations.vllm.state_publisher import StatePublisher
from acclimate.integrations.vllm.step_planner import StepPlanner
from acclimate.integrations.vllm.steps_in_flight import StepsInFlight
from acclimate.integrations.vllm.table import RequestTable


class EngineBridge:
    """One scheduler's connection to its `ControlLoop`.

    Parameters
    ----------
    loop
        Decides and learns.
    facts
        What the engine is.
    trust_domain
        Of all requests of this engine.
    log
        Gets one line when the bridge itself fails and hands over to the engine for good.
    record_tokens
        Gets number, prompt ids and output ids of every request that ended, if anybody wants them.
    place
        Who the engine is, for routers.
    publisher
        Shows the engine's state to other processes, if anybody wants that.

    Examples
    --------
    >>> from types import SimpleNamespace as Object
    >>> from acclimate.controller.config import ControlConfig
    >>> from acclimate.controller.records import Capabilities
    >>> from acclimate.controller.static import StaticPolicy
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> loop = ControlLoop(StaticPolicy(2, engine), engine, ControlConfig(), clock_ns=lambda: 0)
    >>> bridge = EngineBridge(loop, EngineFacts(depth=4, max_model_len=100))
    >>> request = Object(request_id="a", num_prompt_tokens=5, max_tokens=64, sampling_params=None,
    ...                  num_computed_tokens=5, num_output_tokens=1, is_prefill_chunk=False,
    ...                  spec_token_ids=[7, 8, 9])
    >>> bridge.admit(request)
    >>> bridge.begin([request])
    >>> request.spec_token_ids
    [7, 8]
    """

    def __init__(
        self,
        loop: ControlLoop,
        facts: EngineFacts,
        *,
        trust_domain: str = "",
        log: Callable[[str], None] = lambda line: None,
        record_tokens: Callable[[int, list[int], list[int]], None] | None = None,
        place: Place | None = None,
        publisher: StatePublisher | None = None,
    ) -> None:
        self.loop = loop
        self.facts = facts
        self.counters = BridgeCounters()
        self.metadata = MetadataReader(trust_domain)
        self.grader = DraftGrader(facts.depth)
        self.table = RequestTable(facts.max_model_len)
        self.failed = False
        self._honours_depth = loop.capabilities.honours_depth
        self._log = log
        self._record_tokens = record_tokens
        self._place = place or Place(engine="0", trust_domains=(trust_domain,))
        self._publisher = publisher
        self._running, self._waiting = 0, 0
        self._planner = StepPlanner(loop, facts, self.table, self.counters)
        self._now: Flight | None = None
        self._in_flight = StepsInFlight(loop, facts, self.table, self.grader, self.counters)
        self._freed: list[str] = []
        if publisher is not None:
            publisher.step(self.engine_state, loop.clock_ns())

    # --- requests ------------------------------------------------------------------------------

    def admit(self, request: Any) -> None:
        """A request arrived, or a session that is known goes on."""
        if getattr(request, "resumable", False):
            self.table.sessions.setdefault(request.request_id, request)
        if request.request_id in self.table.slots:
            return
        slot = self.table.add(request)
        self.counters.requests += 1
        number = int(self.table.number[slot])
        self.loop.admit(
            self.metadata.read(
                request,
                number=number,
                arrival_ns=self.loop.clock_ns(),
                service=self.loop.config.slo,
            )
        )

    def preempt(self, request_id: str) -> None:
        """A request lost its place, its drafts, and what is in flight of it."""
        slot = self.table.slots.get(request_id)
        if slot is None:
            return
        self.grader.drop(slot)
        self.table.read_anew(slot)
        self._in_flight.gone(request_id, "preempted")
        self.loop.preempt(int(self.table.number[slot]))

    def free(self, request: Any) -> None:
        """A request ended: finished or aborted."""
        request_id = request.request_id
        slot = self.table.slots.get(request_id)
        if self._record_tokens is not None and slot is not None:
            number = int(self.table.number[slot])
            prompt = list(request.prompt_token_ids or ())
            self._record_tokens(number, prompt, list(request.output_token_ids))
        self._in_flight.gone(request_id, "finished")
        if self._in_flight.landing:
            # It ended by the very step whose outcome is being made.
            self._freed.append(request_id)
            return
        self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        slot = self.table.slots.get(request_id)
        number = self.table.remove(request_id)
        if slot is None or number is None:
            return
        self.grader.drop(slot)
        self.loop.forget(number)

    # --- a step, before it runs ----------------------------------------------------------------

    def begin(
        self,
        running: Sequence[Any],
        waiting: Iterable[Any] = (),
        *,
        waiting_prompts: int = 0,
        token_budget: int = 0,
        seats: int = 0,
    ) -> None:
        """Plan the step that is about to be scheduled, and cut its drafts to the plan.

        Parameters
        ----------
        running
            The scheduler's running requests.
        waiting
            Waiting requests in order; only the first ``seats - len(running)`` are looked at.
        waiting_prompts
            How many requests wait.
        token_budget
            Tokens of a step at most.
        seats
            Requests that may run at once.
        """
        self._hold(len(running), waiting_prompts)
        if self.table.sessions:
            for slot in self.table.refresh_sessions():
                self.grader.drop(slot)  # what the last turn proposed says nothing of the next
        self._now = self._planner.plan(
            running,
            waiting,
            waiting_prompts=waiting_prompts,
            token_budget=token_budget,
            seats=seats,
        )

    def depth(self) -> int | None:
        """Return how many tokens to draft in the step being scheduled; None: as the engine does."""
        if self._now is None or self._now.asked is None or not self._honours_depth:
            return None
        return self._now.asked

    def scheduled(self, output: Any, requests: Mapping[str, Any]) -> None:
        """Take note of what was scheduled.

        Parameters
        ----------
        output
            The scheduler's output; its identity names the step later on.
        requests
            All requests of the engine, by id, advanced by this step.
        """
        flight, self._now = self._now, None
        self._in_flight.scheduled(flight, output, requests)

    # --- a step, after it ran ------------------------------------------------------------------

    def ids_arrived(self, output: Any, drafts: Mapping[str, Ids]) -> None:
        """Take note of draft ids that arrive between a step's schedule and its outcome."""
        self._in_flight.ids_arrived(output, drafts)

    def sampled(self, output: Any, result: Any) -> None:
        """Take note of the model's tokens, before the engine cuts them at stops."""
        self._in_flight.sampled(output, result)

    def finish(self, *, more_work: bool) -> None:
        """Build the outcome of the step whose tokens `sampled` saw, and learn from it.

        Parameters
        ----------
        more_work
            Whether requests are left: then the next step's time runs from now on.
        """
        self._in_flight.finish(more_work=more_work)
        for request_id, session in self.table.sessions.items():
            if session.num_stale_output_tokens:
                # Its turn ended: what is under way of it beyond that the engine drops.
                self._in_flight.gone(request_id, "finished")
        if self._freed:
            freed, self._freed = self._freed, []
            for request_id in freed:
                self._forget(request_id)
        if not more_work:
            self._hold(0, 0)
        if self._publisher is not None:
            self._publisher.step(self.engine_state, self.loop.clock_ns())

    # --- for people ----------------------------------------------------------------------------

    def fail(self, where: str, error: Exception) -> None:
        """Hand over to the engine for good: something in the bridge itself is wrong."""
        self.counters.bridge_faults += 1
        if not self.failed:
            self.failed = True
            self._log(
                f"disabled: {where} raised {type(error).__name__}: {error}; "
                "the engine's own rule acts"
            )
            self.close()

    def close(self) -> None:
        """Show no state any more; a second call does nothing."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()

    def engine_state(self) -> EngineState:
        """Return what a router may know of this engine; it changes nothing.

        To be called where the scheduler runs; other processes see it through
        `acclimate.integrations.state_page.read_states`.
        """
        slots = list(self.table.slots.values())
        tokens = self.table.prompt[slots] + self.table.committed[slots]
        load = Load(
            running=self._running,
            waiting=self._waiting,
            context_tokens=float(np.mean(tokens)) if slots else 0.0,
            batch_domains=(self.metadata.trust_domain,) if slots else (),
        )
        loop = self.loop
        blocked_by = None if loop.stock is None else str(loop.stock)
        return engine_state(
            loop.policy, loop.capabilities, self._place, load, blocked_by=blocked_by
        )

    def _hold(self, running: int, waiting: int) -> None:
        if (running, waiting) != (self._running, self._waiting):
            self._running, self._waiting = running, waiting
            if self._publisher is not None:
                self._publisher.load(running, waiting)

    def status(self) -> dict[str, Any]:
        """Return counters and state for people and metrics."""
        return {
            **self.loop.status(),
            **dataclasses.asdict(self.counters),
            "failed": self.failed,
            "live_requests": len(self.table),
            "rejected_metadata": self.metadata.rejected,
            "metadata_problems": {str(k): n for k, n in sorted(self.metadata.problems.items())},
            "hindsight_dropped": self.grader.dropped,
        }
