"""The outcome side of the bridge: from what the engine scheduled and sampled to what is learned."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import int_array
from acclimate.integrations.vllm.flight import BridgeCounters, EngineFacts, Flight
from acclimate.integrations.vllm.grading import DraftGrader, Ids
from acclimate.integrations.vllm.outcome import outcome_of
from acclimate.integrations.vllm.table import RequestTable

_MAX_FLIGHTS = 64
_NO_IDS: Ids = ()


class StepsInFlight:
    """Steps that were scheduled and whose outcome is not learned yet, oldest first.

    Parameters
    ----------
    loop
        Learns.
    facts
        What the engine is.
    table
        Knows the engine's requests.
    grader
        Keeps drafts that later tokens will grade.
    counters
        Where outcomes that are dropped are counted.
    """

    def __init__(
        self,
        loop: ControlLoop,
        facts: EngineFacts,
        table: RequestTable,
        grader: DraftGrader,
        counters: BridgeCounters,
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._table = table
        self._grader = grader
        self._counters = counters
        self._flights: deque[Flight] = deque()
        self._landing: Flight | None = None
        self._last_end_ns: int | None = None

    @property
    def landing(self) -> bool:
        """Whether a step's tokens were sampled and its outcome is not made yet."""
        return self._landing is not None

    def scheduled(self, flight: Flight | None, output: Any, requests: Mapping[str, Any]) -> None:
        """Take note of what was scheduled; see `EngineBridge.scheduled`."""
        if flight is None or not output.total_num_scheduled_tokens:
            if not self._flights:
                self._last_end_ns = None
            return
        table, slots = self._table, flight.batch.slots
        flight.scheduled(output, table)
        if flight.excluded:
            slots = np.delete(slots, flight.excluded)
        if flight.others:
            slots = np.concatenate((slots, int_array([table.slots[i] for i in flight.others])))
        zeroed = self._zeroed(output, requests)
        table.scheduled(slots, flight.step, flight.draft_depth, zeroed=zeroed)
        self._flights.append(flight)
        if len(self._flights) > _MAX_FLIGHTS:
            self._flights.popleft()
            self._lose()

    def _zeroed(self, output: Any, requests: Mapping[str, Any]) -> bool:
        """Whether some sequence of the step is so long that the runner drafts zeros for all."""
        facts = self._facts
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

    def gone(self, request_id: str, why: str) -> None:
        """Expect no more of a request in any step: it was ``preempted`` or has ``finished``."""
        for flight in self._flights:
            flight.gone.setdefault(request_id, why)

    def ids_arrived(self, output: Any, drafts: Mapping[str, Ids]) -> None:
        """Take note of draft ids that arrive between a step's schedule and its outcome."""
        for flight in self._flights:
            if flight.token is output:
                visible = not (flight.exempt or self._facts.drafts_sampled)
                ids = flight.batch.ids
                flight.proposals = [drafts.get(i, _NO_IDS) for i in ids] if visible else None
                return

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
            got = [i for i in flight.others if i not in flight.gone and sampled[index[i]]]
            flight.first_tokens = len(got)
            for i in got:
                slot = self._table.slots[i]
                if self._table.decoding[slot]:
                    # Asynchronously: its next step was planned before this token was there.
                    self._table.committed[slot] += len(sampled[index[i]])
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

    def _lose(self) -> None:
        """Count an outcome that cannot be told, and read anew what the requests committed."""
        self._counters.unmatched_outputs += 1
        self._table.read_anew()

    def _exclude_gone(self, flight: Flight) -> None:
        """Leave out, and count, requests that ended or lost their place in between."""
        rows = [
            row
            for row, i in enumerate(flight.batch.ids)
            if i in flight.gone and row not in flight.excluded
        ]
        preempted = sum(flight.gone[flight.batch.ids[row]] == "preempted" for row in rows)
        self._counters.dropped_outcomes_preempted += preempted
        self._counters.dropped_outcomes_finished += len(rows) - preempted
        flight.exclude(rows)

    def finish(self, *, more_work: bool) -> None:
        """Build the outcome of the step that is landing, and learn from it.

        Parameters
        ----------
        more_work
            Whether requests are left: then the next step's time runs from now on.
        """
        flight, self._landing = self._landing, None
        if flight is None:
            return
        loop = self._loop
        now_ns = loop.clock_ns()
        since_ns = flight.started_ns if self._last_end_ns is None else self._last_end_ns
        self._last_end_ns = now_ns if more_work or self._flights else None
        outcome, disobeyed = outcome_of(flight, self._grader, now_ns, now_ns - since_ns)
        self._table.committed[flight.batch.slots] += outcome.committed
        for what in disobeyed:
            loop.violation(what)
        loop.observe(outcome)
