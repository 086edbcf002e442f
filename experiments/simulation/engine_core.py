"""The steps of a simulated engine: planned, scheduled and learned from as vLLM's are."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np

from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Candidates, Change, IntArray, StepContext, StepOutcome
from acclimate.experiments.run_record import Run, StepLog
from acclimate.experiments.simulation import batch_layout
from acclimate.experiments.simulation.acceptance import ConfidentSource, DraftSource
from acclimate.experiments.simulation.batch_state import BatchState, Landing
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.experiments.workload import Workload
from acclimate.integrations.vllm.grading import DraftGrader


@dataclasses.dataclass(slots=True)
class _Flight:
    """A step between its plan and its outcome."""

    step: int
    begun_ns: int
    duration_ns: int
    table: IntArray
    lens: IntArray
    verified: IntArray
    makeup: StepMakeUp
    depth: int
    stock: bool


class EngineCore:
    """Serves the requests that it was given, one step after the other.

    It knows no arrivals and moves no clock: whoever drives it calls `submit`, `begin` and `finish`.

    Parameters
    ----------
    loop, workload, drafts, step_time, limits, changes, keep_steps
        As in `SimulatedEngine`.
    """

    def __init__(
        self,
        loop: ControlLoop,
        workload: Workload,
        drafts: DraftSource,
        step_time: StepTime,
        *,
        limits: EngineLimits,
        changes: Sequence[tuple[float, Change]],
        keep_steps: bool,
    ) -> None:
        self.in_system = 0
        self.preemptions = 0
        self.steps = 0
        self.context_tokens = 0.0  # attended to by a decoding request, on average
        self._loop = loop
        self._workload = workload
        self._drafts = drafts
        self._step_time = step_time
        capabilities = self._capabilities = loop.capabilities
        self._always_drafts = capabilities.free_drafts or not capabilities.honours_depth
        self._confident = drafts if isinstance(drafts, ConfidentSource) else None
        self._grader = DraftGrader(capabilities.max_depth)
        self._log = StepLog(capabilities.max_depth, keep=keep_steps)
        self._flight: _Flight | None = None
        self._late: tuple[StepOutcome, list[tuple[int, int]]] | None = None
        self._changes = list(changes)
        self._least_passes = limits.least_draft_passes
        self._state = BatchState(workload, limits, capabilities.max_depth)

    def submit(self, row: int, arrival_ns: int) -> None:
        """Take a request of the workload into the queue."""
        self._state.submit(row, arrival_ns)
        self.in_system += 1
        self._loop.admit(self._workload.request_info(row, arrival_ns))

    def begin(self, now_ns: int) -> int:
        """Plan and schedule one step; return how many nanoseconds it takes."""
        while self._changes and now_ns >= self._changes[0][0] * 1e9:
            self._loop.declare(self._changes.pop(0)[1])
        self.steps += 1
        step, max_depth = self.steps, self._capabilities.max_depth
        table, forecast, waiting = self._state.look()
        at_hand = table[batch_layout.DRAFTS_NOW]
        plan = self._loop.plan(
            StepContext(
                step=step,
                now_ns=now_ns,
                waiting_prompts=waiting,
                prefill_forecast_tokens=forecast,
                requests=table[batch_layout.NUMBER],
                drafts=at_hand,
                committed=table[batch_layout.COMMITTED_NOW],
                context_tokens=table[batch_layout.CONTEXT],
                tokens_left=table[batch_layout.LEFT],
                candidates=Candidates(*self._state.candidates(table)) if self._confident else None,
            )
        )
        if self._late is not None:
            self._deliver(*self._late)
            self._late = None
        if plan is None:
            lens, depth, draft_depth = at_hand, max_depth, max_depth
        else:
            lens, depth = plan.verify_lens, plan.depth
            draft_depth = max_depth if self._always_drafts else plan.draft_depth
        verified, preempted, decode, verified_tokens, prefill, context, sampled = (
            self._state.schedule(table, lens)
        )
        for row in preempted.tolist():
            self.preemptions += 1
            self._grader.drop(self._state.slot(row))
            self._loop.preempt(row + 1)
        self.context_tokens = context / max(decode, 1)
        makeup = StepMakeUp(decode, verified_tokens, prefill, context, sampled, draft_depth)
        timed = makeup
        if draft_depth < self._least_passes:
            timed = msgspec.structs.replace(makeup, draft_depth=self._least_passes)
        duration_ns = round(1e6 * self._step_time.step_ms(timed))
        if duration_ns <= 0:
            raise ValueError(f"a step's time must be > 0, got {duration_ns} ns")
        self._flight = _Flight(
            step, now_ns, duration_ns, table, lens, verified, makeup, depth, plan is None
        )
        return duration_ns

    def finish(self) -> None:
        """Write the tokens of the step that `begin` scheduled, and let the loop learn."""
        flight = self._flight
        if flight is None:
            raise RuntimeError("finish must follow begin, got no step under way")
        self._flight = None
        table, makeup = flight.table, flight.makeup
        now_ns = flight.begun_ns + flight.duration_ns
        landing = self._state.land(
            table,
            flight.lens,
            flight.verified,
            now_ns,
            visible=self._capabilities.hindsight,
        )
        rows = landing.rows
        numbers, step = table[batch_layout.NUMBER], flight.step
        outcome = StepOutcome(
            step=step,
            now_ns=now_ns,
            latency_ns=flight.duration_ns,
            decode_requests=makeup.requests,
            verified_tokens=makeup.verified,
            prefill_tokens=makeup.prefill_tokens,
            context_tokens=makeup.context_tokens,
            sampled_rows=makeup.sampled_rows,
            draft_depth=makeup.draft_depth,
            requests=numbers,
            committed=rows[4],
            drafts=self._grader.grade(
                step=step,
                slots=table[batch_layout.SLOT_NOW],
                numbers=numbers,
                drafted_by=rows[0],
                proposed=rows[1],
                verified=rows[2],
                accepted=rows[3],
                tokens=(landing.tokens, rows[4]),
                proposals=(landing.draft_ids, rows[5]),
            ),
            first_tokens=landing.first_tokens,
            stock=flight.stock,
        )
        ended = [(row, self._state.slot(row)) for row in landing.done.tolist()]
        self.in_system -= len(ended)
        if self._capabilities.asynchronous:
            for _, slot in ended:
                self._grader.drop(slot)  # the slot may be taken before the outcome is delivered
            self._late = (outcome, ended)
        else:
            self._deliver(outcome, ended)
        if makeup.draft_depth:
            self._draft(landing, makeup.draft_depth, step, now_ns / 1e9)
        self._log.add(
            flight.begun_ns / 1e9,
            flight.duration_ns / 1e6,
            (
                makeup.requests,
                makeup.verified,
                landing.accepted,
                landing.committed,
                landing.first_tokens,
                makeup.prefill_tokens,
                flight.depth,
                makeup.draft_depth,
            ),
        )

    def result(self, begun_ns: int, ended_ns: int) -> Run:
        """Return what the run gave so far.

        Parameters
        ----------
        begun_ns
            When it began, should no request have come.
        ended_ns
            When it ended.
        """
        if self._late is not None:
            self._deliver(*self._late)
            self._late = None
        totals, steps = self._log.result()
        workload = self._workload
        sent, state = self._state.sent()
        tokens = state[:, batch_layout.COMMITTED].copy()
        first_s, last_s = (
            state[:, batch_layout.FIRST_NS] / 1e9,
            state[:, batch_layout.LAST_NS] / 1e9,
        )
        arrival_s = state[:, batch_layout.ARRIVAL_NS] / 1e9
        return Run(
            policy=self._loop.policy.name,
            max_depth=self._capabilities.max_depth,
            begun_s=float(arrival_s.min()) if sent.size else begun_ns / 1e9,
            ended_s=ended_ns / 1e9,
            request=sent + 1,
            arrival_s=arrival_s,
            first_token_s=np.where(tokens > 0, first_s, np.nan),
            last_token_s=np.where(tokens > 0, last_s, np.nan),
            tokens=tokens,
            finished=tokens >= state[:, batch_layout.OUTPUT],
            domain=workload.domain,
            domain_of=workload.domain_of[sent],
            tpot_target_s=None if workload.tpot_s is None else workload.tpot_s[sent],
            ttft_target_s=None if workload.ttft_s is None else workload.ttft_s[sent],
            e2e_target_s=None if workload.e2e_s is None else workload.e2e_s[sent],
            gaps=copy.deepcopy(self._state.gaps),
            verify_lens=self._state.verify_lens.copy(),
            totals=copy.deepcopy(totals),
            steps=steps,
            status={
                **self._loop.status(),
                "preemptions": self.preemptions,
                "hindsight_dropped": self._grader.dropped,
            },
        )

    def _draft(self, landing: Landing, depth: int, step: int, now_s: float) -> None:
        rows, offsets = landing.alive, landing.offsets
        confidence = None
        if self._confident is None:
            length, run = self._drafts.draw(rows, offsets, now_s)
        else:
            length, run, confidence = self._confident.draw_confident(rows, offsets, now_s)
        self._state.take_drafts(rows, length, run, depth, step, confidence)

    def _deliver(self, outcome: StepOutcome, ended: list[tuple[int, int]]) -> None:
        self._loop.observe(outcome)
        for row, slot in ended:
            self._grader.drop(slot)
            self._loop.forget(row + 1)
