"""Connects an engine's scheduler with the control loop, without importing the engine.

The scheduler calls, per step and in this order: `begin`, `depth`, `scheduled`, `sampled`,
`finish`; and `admit`, `preempt`, `free` as requests come, lose their place and go. A step's
outcome may come after the next step began (asynchronous scheduling), so steps in flight queue up.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import IntArray, StepContext, int_array
from acclimate.integrations.vllm.batch import Batch, standing
from acclimate.integrations.vllm.flight import (
    BridgeCounters,
    EngineFacts,
    Flight,
    prefill_forecast,
)
from acclimate.integrations.vllm.grading import DraftGrader, Ids
from acclimate.integrations.vllm.metadata import MetadataReader
from acclimate.integrations.vllm.outcome import outcome_of
from acclimate.integrations.vllm.table import RequestTable

_MAX_FLIGHTS = 64
_NO_IDS: Ids = ()
_NONE = int_array()


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
    ) -> None:
        self.loop = loop
        self.facts = facts
        self.counters = BridgeCounters()
        self.metadata = MetadataReader(trust_domain)
        self.grader = DraftGrader(facts.depth)
        self.table = RequestTable(facts.max_model_len)
        self.failed = False
        self._capabilities = loop.capabilities
        self._log = log
        self._record_tokens = record_tokens
        self._step = 0
        self._batch: Batch | None = None
        self._now: Flight | None = None
        self._flights: deque[Flight] = deque()
        self._landing: Flight | None = None
        self._freed: list[str] = []
        self._sessions: dict[str, Any] = {}
        self._zeros = False
        self._last_end_ns: int | None = None

    # --- requests ------------------------------------------------------------------------------

    def admit(self, request: Any) -> None:
        """A request arrived, or a session that is known goes on."""
        if getattr(request, "resumable", False):
            self._sessions.setdefault(request.request_id, request)
        if request.request_id in self.table.slots:
            return
        slot = self.table.add(request)
        self.counters.requests += 1
        number = int(self.table.number[slot])
        self.loop.admit(self.metadata.read(request, number=number, arrival_ns=self.loop.clock_ns()))

    def preempt(self, request_id: str) -> None:
        """A request lost its place, its drafts, and what is in flight of it."""
        slot = self.table.slots.get(request_id)
        if slot is None:
            return
        self.grader.drop(slot)
        self.table.read_anew(slot)
        for flight in self._flights:
            flight.gone.setdefault(request_id, "preempted")
        self.loop.preempt(int(self.table.number[slot]))

    def free(self, request: Any) -> None:
        """A request ended: finished or aborted."""
        request_id = request.request_id
        slot = self.table.slots.get(request_id)
        if self._record_tokens is not None and slot is not None:
            number = int(self.table.number[slot])
            prompt = list(request.prompt_token_ids or ())
            self._record_tokens(number, prompt, list(request.output_token_ids))
        for flight in self._flights:
            flight.gone.setdefault(request_id, "finished")
        if self._landing is not None:
            # It ended by the very step whose outcome is being made.
            self._freed.append(request_id)
            return
        self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        slot = self.table.slots.get(request_id)
        number = self.table.remove(request_id)
        self._sessions.pop(request_id, None)
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
        self._now = None
        if not running and not waiting_prompts:
            return
        loop, table = self.loop, self.table
        started_ns = loop.clock_ns()
        self._step += 1
        step = self._step
        for request_id, request in self._sessions.items():
            slot = table.slots[request_id]
            table.refresh(slot, request)
            table.read_anew(slot)
        batch = self._batch
        if batch is None or not batch.holds(running, table):
            batch = self._batch = Batch(running, table)
        requests, slots = batch.requests, batch.slots
        proposals: list[Ids] = [r.spec_token_ids for r in requests]
        at_hand = np.fromiter(map(len, proposals), dtype=np.int64, count=len(proposals))
        in_flight = _NONE
        if self._capabilities.asynchronous:
            # A step in flight commits at least one token.
            in_flight = int_array([r.num_output_placeholders > 0 for r in requests])
        stand = standing(table, slots, at_hand, in_flight, self._capabilities.max_depth)
        drafts, left, committed, context_tokens, drafted_by = stand.rows
        drafts_total = stand.drafts
        exempt = False
        if self._zeros:
            none = (table.zeros[slots] > 0) & (at_hand > 0)
            exempt = bool(none.any())
            drafts[none] = 0
            drafts_total = int(drafts.sum())
        if exempt:
            self.counters.exempt_steps += 1
        elif stand.surplus >= 0 and self._capabilities.honours_depth:
            asked, made = table.asked[slots[stand.surplus]], at_hand[stand.surplus]
            loop.violation(f"the drafter was asked for {asked} tokens, made {made}")
        forecast = 0
        n = len(requests)
        if n < len(running) or (waiting_prompts and seats > len(running)):
            forecast = prefill_forecast(running, waiting, seats, token_budget - n - drafts_total)
        plan = loop.plan(
            StepContext(
                step=step,
                now_ns=started_ns,
                waiting_prompts=waiting_prompts,
                prefill_forecast_tokens=forecast,
                requests=batch.numbers,
                drafts=drafts,
                committed=committed,
                context_tokens=context_tokens,
                tokens_left=left,
            )
        )
        planned, planned_total = None, 0
        visible = None if exempt else self._visible(proposals, slots)
        if plan is not None:
            planned = plan.verify_lens
            planned_total = int(np.add.reduce(planned))
            if planned_total == int(np.add.reduce(at_hand)):
                visible = None  # all are verified, none is left for hindsight
            else:
                lens = planned.tolist()
                for row in (planned < at_hand).nonzero()[0].tolist():
                    # Rebind, never cut in place: requests can share one list of placeholders.
                    requests[row].spec_token_ids = proposals[row][: lens[row]]
        self._now = Flight(
            step=step,
            started_ns=started_ns,
            batch=batch,
            context_tokens=context_tokens,
            at_hand=at_hand,
            drafted_by=drafted_by,
            planned=planned,
            planned_total=planned_total,
            asked=None if plan is None else plan.draft_depth,
            exempt=exempt,
            proposals=visible,
            context_total=stand.context_tokens,
            sampled_rows=stand.sampled_rows,
            decode_requests=n,
        )

    def _visible(self, proposals: list[Ids], slots: IntArray) -> list[Ids] | None:
        """Return the drafts that committed tokens may grade."""
        if not self.facts.ids_visible:
            return None
        if self.facts.drafts_sampled and (hot := self.table.sampled[slots]).any():
            return [_NO_IDS if h else p for p, h in zip(proposals, hot.tolist(), strict=True)]
        return proposals

    def depth(self) -> int | None:
        """Return how many tokens to draft in the step being scheduled; None: as the engine does."""
        if self._now is None or self._now.asked is None or not self._capabilities.honours_depth:
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
        if flight is None or not output.total_num_scheduled_tokens:
            if not self._flights:
                self._last_end_ns = None
            return
        table, slots = self.table, flight.batch.slots
        flight.scheduled(output, table)
        if flight.excluded:
            slots = np.delete(slots, flight.excluded)
        if flight.others:
            slots = np.concatenate((slots, int_array([table.slots[i] for i in flight.others])))
        table.last_step[slots] = flight.step
        table.asked[slots] = flight.draft_depth
        zeroed = self._zeroed(output, requests)
        if zeroed or self._zeros:
            table.zeros[slots] = zeroed
            self._zeros = bool(table.zeros.any())
        self._flights.append(flight)
        if len(self._flights) > _MAX_FLIGHTS:
            self._flights.popleft()
            self._lose()

    def _zeroed(self, output: Any, requests: Mapping[str, Any]) -> bool:
        """Whether some sequence of the step is so long that the runner drafts zeros for all."""
        facts = self.facts
        if facts.drafter_len is None:
            return False
        limit = facts.drafter_len - facts.depth - facts.drafter_extra
        tokens = output.num_scheduled_tokens
        # Cheap bound first: the longest sequence plus the longest query.
        before = max(output.scheduled_cached_reqs.num_computed_tokens, default=0)
        before = max(before, max((r.num_computed_tokens for r in output.scheduled_new_reqs),
                                 default=0))  # fmt: skip
        if before + max(tokens.values()) <= limit:
            return False
        return any(requests[i].num_computed_tokens > limit for i in tokens)

    # --- a step, after it ran ------------------------------------------------------------------

    def ids_arrived(self, output: Any, drafts: Mapping[str, Ids]) -> None:
        """Take note of draft ids that arrive between a step's schedule and its outcome."""
        for flight in self._flights:
            if flight.token is output:
                flight.proposals = self._arrived(flight, drafts)
                return

    def _arrived(self, flight: Flight, drafts: Mapping[str, Ids]) -> list[Ids] | None:
        if flight.exempt or self.facts.drafts_sampled:
            return None
        return [drafts.get(i, _NO_IDS) for i in flight.batch.ids]

    def _lose(self) -> None:
        """Count an outcome that cannot be told, and read anew what the requests committed."""
        self.counters.unmatched_outputs += 1
        self.table.read_anew()

    def sampled(self, output: Any, result: Any) -> None:
        """Take note of the model's tokens, before the engine cuts them at stops."""
        self._landing = None
        while self._flights and self._flights[0].token is not output:
            if not any(flight.token is output for flight in self._flights):
                break
            self._flights.popleft()
            self._lose()
        if not self._flights or self._flights[0].token is not output:
            if output.total_num_scheduled_tokens:
                self._lose()
            return
        flight = self._landing = self._flights.popleft()
        batch = flight.batch
        sampled, index = result.sampled_token_ids, result.req_id_to_index
        if flight.others and sampled:
            flight.first_tokens = sum(
                bool(sampled[index[i]]) for i in flight.others if i not in flight.gone
            )
        if flight.gone:
            self._exclude_gone(flight)
        if not sampled:
            flight.rows = [_NO_IDS] * len(batch.ids)
        elif not flight.excluded:
            flight.rows = [sampled[row] for row in batch.take(index)]
        else:
            out = set(flight.excluded)
            flight.rows = [
                _NO_IDS if row in out else sampled[index[i]] for row, i in enumerate(batch.ids)
            ]
        flight.raw = np.fromiter(map(len, flight.rows), dtype=np.int64, count=len(flight.rows))

    def _exclude_gone(self, flight: Flight) -> None:
        """Leave out, and count, requests that ended or lost their place in between."""
        rows = [
            row
            for row, i in enumerate(flight.batch.ids)
            if i in flight.gone and row not in flight.excluded
        ]
        preempted = sum(flight.gone[flight.batch.ids[row]] == "preempted" for row in rows)
        self.counters.dropped_outcomes_preempted += preempted
        self.counters.dropped_outcomes_finished += len(rows) - preempted
        flight.exclude(rows)

    def finish(self, *, more_work: bool) -> None:
        """Build the outcome of the step whose tokens `sampled` saw, and learn from it.

        Parameters
        ----------
        more_work
            Whether requests are left: then the next step's time runs from now on.
        """
        flight, self._landing = self._landing, None
        if flight is not None:
            now_ns = self.loop.clock_ns()
            since_ns = flight.started_ns if self._last_end_ns is None else self._last_end_ns
            self._last_end_ns = now_ns if more_work or self._flights else None
            outcome, disobeyed = outcome_of(flight, self.grader, now_ns, now_ns - since_ns)
            self.table.committed[flight.batch.slots] += outcome.committed
            for what in disobeyed:
                self.loop.violation(what)
            self.loop.observe(outcome)
        if self._freed:
            freed, self._freed = self._freed, []
            for request_id in freed:
                self._forget(request_id)

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

    def status(self) -> dict[str, Any]:
        """Return counters and state for people and metrics."""
        return {
            **self.loop.status(),
            **dataclasses.asdict(self.counters),
            "failed": self.failed,
            "live_requests": len(self.table),
            "rejected_metadata": self.metadata.rejected,
            "hindsight_dropped": self.grader.dropped,
        }
