"""The plan side of the bridge: from the engine's requests to a plan, and to drafts cut to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import IntArray, StepContext, int_array
from acclimate.integrations.vllm.batch import Batch, standing
from acclimate.integrations.vllm.drafts import sure_candidates
from acclimate.integrations.vllm.flight import BridgeCounters, EngineFacts, Flight
from acclimate.integrations.vllm.grading import Ids
from acclimate.integrations.vllm.table import RequestTable

_NO_IDS: Ids = ()
_NONE = int_array()


class StepPlanner:
    """Asks the loop for a plan of each step, and cuts the requests' drafts to it.

    Parameters
    ----------
    loop
        Decides.
    facts
        What the engine is.
    table
        Knows the engine's requests.
    counters
        Where exempt steps are counted.
    """

    def __init__(
        self, loop: ControlLoop, facts: EngineFacts, table: RequestTable, counters: BridgeCounters
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._table = table
        self._counters = counters
        self._capabilities = loop.capabilities
        self._step = 0
        self._batch: Batch | None = None

    def plan(
        self,
        running: Sequence[Any],
        waiting: Iterable[Any],
        *,
        waiting_prompts: int,
        token_budget: int,
        seats: int,
    ) -> Flight | None:
        """Plan the step that is about to be scheduled; see `EngineBridge.begin`.

        Returns
        -------
        What to remember of the step until its outcome is there; None where there is nothing to do.
        """
        if not running and not waiting_prompts:
            return None
        loop, table = self._loop, self._table
        started_ns = loop.clock_ns()
        self._step += 1
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
        if table.has_zeros:
            none = (table.zeros[slots] > 0) & (at_hand > 0)
            exempt = bool(none.any())
            drafts[none] = 0
            drafts_total = int(drafts.sum())
        if exempt:
            self._counters.exempt_steps += 1
        elif stand.surplus >= 0 and self._capabilities.honours_depth:
            asked, made = table.asked[slots[stand.surplus]], at_hand[stand.surplus]
            loop.violation(f"the drafter was asked for {asked} tokens, made {made}")
        forecast = 0
        n = len(requests)
        if n < len(running) or (waiting_prompts and seats > len(running)):
            forecast = prefill_forecast(running, waiting, seats, token_budget - n - drafts_total)
        plan = loop.plan(
            StepContext(
                step=self._step,
                now_ns=started_ns,
                waiting_prompts=waiting_prompts,
                prefill_forecast_tokens=forecast,
                requests=batch.numbers,
                drafts=drafts,
                committed=committed,
                context_tokens=context_tokens,
                tokens_left=left,
                candidates=sure_candidates(proposals, drafts, self._capabilities.max_depth),
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
        return Flight(
            step=self._step,
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
        if not self._facts.ids_visible:
            return None
        if self._facts.drafts_sampled and (hot := self._table.sampled[slots]).any():
            return [_NO_IDS if h else p for p, h in zip(proposals, hot.tolist(), strict=True)]
        return proposals


def prefill_forecast(
    running: Sequence[Any], waiting: Iterable[Any], seats: int, budget: int
) -> int:
    """Return the prompt tokens to expect: unfinished chunks, then waiting prompts, in budget."""
    tokens: int = sum(r.num_tokens - r.num_computed_tokens for r in running if r.is_prefill_chunk)
    for request in islice(waiting, max(0, seats - len(running))):
        if tokens >= budget:
            break
        tokens += request.num_tokens - request.num_computed_tokens
    return max(0, min(tokens, budget))
