"""A simulated engine: continuous batching on its own clock, driven by a control loop as vLLM is."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Candidates,
    Capabilities,
    Change,
    IntArray,
    StepContext,
    StepOutcome,
)
from acclimate.experiments.run_record import Run, StepLog
from acclimate.experiments.simulation import kernels
from acclimate.experiments.simulation.acceptance import ConfidentSource, DraftSource
from acclimate.experiments.simulation.batch_state import BatchState, Landing
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.experiments.workload import Workload
from acclimate.integrations.vllm.grading import DraftGrader

__all__ = ["EngineLimits", "SimulatedEngine", "simulate"]


@dataclasses.dataclass(slots=True)
class _Flight:
    """A step between its plan and its outcome."""

    step: int
    begun_ns: int
    duration_ns: int
    table: IntArray
    lens: IntArray
    verified: IntArray
    decode: int
    verified_tokens: int
    prefill: int
    context: int
    sampled: int
    depth: int
    draft_depth: int
    stock: bool


class SimulatedEngine:
    """Runs a workload step by step, asking the loop as vLLM's scheduler asks it.

    Each step serves running requests in order (one token and the verified drafts each), then
    prompts in chunks while the token budget lasts. Without room in the cache the last request to
    come loses its place and computes its tokens anew. When nothing runs, the clock jumps to the
    next arrival. Arrivals never wait for answers, unless ``concurrency`` closes the loop.

    Under ``capabilities.asynchronous`` outcomes reach the policy one step late; the engine itself
    does not run ahead.

    Parameters
    ----------
    loop
        Decides and learns; its clock must be ``clock``.
    workload
        What to serve.
    drafts
        What the drafter proposes and the target accepts.
    step_time
        How long a step takes.
    clock
        The simulation's.
    limits
        What the engine can hold.
    concurrency
        Closed loop: so many requests are in the engine at all times, a finished one is replaced
        before the next step. None: open loop, by arrival times.
    changes
        Change-points that somebody declares, with their times in seconds, ascending.
    keep_steps
        Whether `Run.steps` is wanted; without it memory does not grow with the steps.

    Raises
    ------
    ValueError
        Drafts and engine differ in depth, or a request can never fit into the cache.

    Examples
    --------
    >>> from acclimate.controller.static import StaticPolicy
    >>> from acclimate.experiments.simulation.acceptance import DrawnDrafts
    >>> from acclimate.experiments.simulation.regimes import Regime
    >>> from acclimate.experiments.simulation.step_time import TableTime
    >>> engine = Capabilities(max_depth=1, depths=(0, 1), hindsight=True)
    >>> work = Workload.closed(4, prompt_tokens=8, output_tokens=21)
    >>> always = DrawnDrafts([Regime.of_survival([1.0])], (0,), work.domain_of)
    >>> table = TableTime([1, 1], [0, 1], [10.0, 12.0])
    >>> run = simulate(StaticPolicy(1, engine), engine, work, always, table, concurrency=1)
    >>> run.tokens.tolist(), run.totals.steps
    ([21, 21, 21, 21], 44)
    """

    def __init__(
        self,
        loop: ControlLoop,
        workload: Workload,
        drafts: DraftSource,
        step_time: StepTime,
        clock: SimulatedClock,
        *,
        limits: EngineLimits | None = None,
        concurrency: int | None = None,
        changes: Sequence[tuple[float, Change]] = (),
        keep_steps: bool = True,
    ) -> None:
        self.loop = loop
        self.workload = workload
        self.drafts = drafts
        self.step_time = step_time
        self.clock = clock
        self.limits = limits or EngineLimits()
        self.concurrency = concurrency
        self.in_system = 0
        self.preemptions = 0
        capabilities = loop.capabilities
        if drafts.max_depth != capabilities.max_depth:
            raise ValueError(
                f"drafts must have the engine's depth {capabilities.max_depth}, "
                f"got {drafts.max_depth}"
            )
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be >= 1, got {concurrency}")
        self.limits.check(workload)
        self._capabilities = capabilities
        self._always_drafts = capabilities.free_drafts or not capabilities.honours_depth
        self._confident = drafts if isinstance(drafts, ConfidentSource) else None
        self._grader = DraftGrader(capabilities.max_depth)
        self._log = StepLog(capabilities.max_depth, keep=keep_steps)
        self._step = 0
        self._next = 0
        self._flight: _Flight | None = None
        self._late: tuple[StepOutcome, list[tuple[int, int]]] | None = None
        self._changes = list(changes)
        self._arrival_ns = np.rint(workload.arrival_s * 1e9).astype(np.int64)
        self._begun_ns = clock.now_ns
        self._state = BatchState(workload, self.limits, capabilities.max_depth)

    # --- the whole run -------------------------------------------------------------------------

    def run(
        self, *, until_s: float | None = None, max_steps: int | None = None, drain: bool = True
    ) -> Run:
        """Serve until everything is done; a later call goes on where one ended early.

        Parameters
        ----------
        until_s
            End at this time.
        max_steps
            End after so many further steps.
        drain
            Whether a closed loop serves on when it has nothing more to send, at ever lower
            concurrency.
        """
        until_ns = None if until_s is None else round(until_s * 1e9)
        last = None if max_steps is None else self._step + max_steps
        clock = self.clock
        while last is None or self._step < last:
            if not self.feed():
                break
            if until_ns is not None and clock.now_ns >= until_ns:
                break
            if not drain and self.in_system < (self.concurrency or 0):
                break
            clock.now_ns += self.begin()
            self.finish()
        return self.result()

    def feed(self) -> bool:
        """Send what has arrived; without work jump to the next arrival. False: all is done."""
        n = len(self.workload)
        if self.concurrency is not None:
            while self.in_system < self.concurrency and self._next < n:
                self.submit(self._next, self.clock.now_ns)
                self._next += 1
            return self.in_system > 0
        if not self.in_system and self._next < n:
            self.clock.now_ns = max(self.clock.now_ns, int(self._arrival_ns[self._next]))
        while self._next < n and self._arrival_ns[self._next] <= self.clock.now_ns:
            self.submit(self._next, int(self._arrival_ns[self._next]))
            self._next += 1
        return self.in_system > 0

    def submit(self, row: int, arrival_ns: int) -> None:
        """Take a request of the workload into the queue."""
        self._state.submit(row, arrival_ns)
        self.in_system += 1
        self.loop.admit(self.workload.request_info(row, arrival_ns))

    # --- one step ------------------------------------------------------------------------------

    def begin(self) -> int:
        """Plan and schedule one step; return how many nanoseconds it takes.

        Whoever drives the engine moves the clock, then calls `finish`.
        """
        now_ns = self.clock.now_ns
        while self._changes and now_ns >= self._changes[0][0] * 1e9:
            self.loop.declare(self._changes.pop(0)[1])
        self._step += 1
        step, max_depth = self._step, self._capabilities.max_depth
        table, forecast, waiting = self._state.look()
        at_hand = table[kernels.DRAFTS_NOW]
        plan = self.loop.plan(
            StepContext(
                step=step,
                now_ns=now_ns,
                waiting_prompts=waiting,
                prefill_forecast_tokens=forecast,
                requests=table[kernels.NUMBER],
                drafts=at_hand,
                committed=table[kernels.COMMITTED_NOW],
                context_tokens=table[kernels.CONTEXT],
                tokens_left=table[kernels.LEFT],
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
            self.loop.preempt(row + 1)
        duration_ns = round(
            1e6
            * self.step_time.step_ms(
                requests=decode,
                verified=verified_tokens,
                prefill_tokens=prefill,
                context_tokens=context,
                sampled_rows=sampled,
                draft_depth=draft_depth,
            )
        )
        if duration_ns <= 0:
            raise ValueError(f"a step's time must be > 0, got {duration_ns} ns")
        self._flight = _Flight(
            step,
            now_ns,
            duration_ns,
            table,
            lens,
            verified,
            decode,
            verified_tokens,
            prefill,
            context,
            sampled,
            depth,
            draft_depth,
            plan is None,
        )
        return duration_ns

    def finish(self) -> None:
        """Write the tokens of the step that `begin` scheduled, and let the loop learn."""
        flight = self._flight
        if flight is None:
            raise RuntimeError("finish must follow begin, got no step under way")
        self._flight = None
        table = flight.table
        now_ns = flight.begun_ns + flight.duration_ns
        landing = self._state.land(
            table,
            flight.lens,
            flight.verified,
            now_ns,
            visible=self._capabilities.hindsight,
        )
        rows = landing.rows
        numbers, step = table[kernels.NUMBER], flight.step
        outcome = StepOutcome(
            step=step,
            now_ns=now_ns,
            latency_ns=flight.duration_ns,
            decode_requests=flight.decode,
            verified_tokens=flight.verified_tokens,
            prefill_tokens=flight.prefill,
            context_tokens=flight.context,
            sampled_rows=flight.sampled,
            draft_depth=flight.draft_depth,
            requests=numbers,
            committed=rows[4],
            drafts=self._grader.grade(
                step=step,
                slots=table[kernels.SLOT_NOW],
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
        if flight.draft_depth:
            self._draft(landing, flight.draft_depth, step, now_ns / 1e9)
        self._log.add(
            flight.begun_ns / 1e9,
            flight.duration_ns / 1e6,
            (
                flight.decode,
                flight.verified_tokens,
                landing.accepted,
                landing.committed,
                landing.first_tokens,
                flight.prefill,
                flight.depth,
                flight.draft_depth,
            ),
        )

    def result(self) -> Run:
        """Return what the run gave so far."""
        if self._late is not None:
            self._deliver(*self._late)
            self._late = None
        totals, steps = self._log.result()
        workload = self.workload
        sent, state = self._state.sent()
        tokens = state[:, kernels.COMMITTED].copy()
        first_s, last_s = state[:, kernels.FIRST_NS] / 1e9, state[:, kernels.LAST_NS] / 1e9
        arrival_s = state[:, kernels.ARRIVAL_NS] / 1e9
        return Run(
            policy=self.loop.policy.name,
            max_depth=self._capabilities.max_depth,
            begun_s=float(arrival_s.min()) if sent.size else self._begun_ns / 1e9,
            ended_s=self.clock.now_s,
            request=sent + 1,
            arrival_s=arrival_s,
            first_token_s=np.where(tokens > 0, first_s, np.nan),
            last_token_s=np.where(tokens > 0, last_s, np.nan),
            tokens=tokens,
            finished=tokens >= state[:, kernels.OUTPUT],
            domain=workload.domain,
            domain_of=workload.domain_of[sent],
            tpot_target_s=None if workload.tpot_s is None else workload.tpot_s[sent],
            ttft_target_s=None if workload.ttft_s is None else workload.ttft_s[sent],
            gaps=copy.deepcopy(self._state.gaps),
            verify_lens=self._state.verify_lens.copy(),
            totals=copy.deepcopy(totals),
            steps=steps,
            status={
                **self.loop.status(),
                "preemptions": self.preemptions,
                "hindsight_dropped": self._grader.dropped,
            },
        )

    # --- inside --------------------------------------------------------------------------------

    def _draft(self, landing: Landing, depth: int, step: int, now_s: float) -> None:
        rows, offsets = landing.alive, landing.offsets
        confidence = None
        if self._confident is None:
            length, run = self.drafts.draw(rows, offsets, now_s)
        else:
            length, run, confidence = self._confident.draw_confident(rows, offsets, now_s)
        self._state.take_drafts(rows, length, run, depth, step, confidence)

    def _deliver(self, outcome: StepOutcome, ended: list[tuple[int, int]]) -> None:
        self.loop.observe(outcome)
        for row, slot in ended:
            self._grader.drop(slot)
            self.loop.forget(row + 1)


def simulate(
    policy: Policy,
    capabilities: Capabilities,
    workload: Workload,
    drafts: DraftSource,
    step_time: StepTime,
    *,
    config: ControlConfig | None = None,
    clock: SimulatedClock | None = None,
    until_s: float | None = None,
    drain: bool = True,
    **engine: Any,
) -> Run:
    """Run a policy on a simulated engine of its own; see `SimulatedEngine` for the arguments.

    Raises
    ------
    RuntimeError
        The policy failed: its plans were not what was measured.
    """
    clock = clock or SimulatedClock()
    lines: list[str] = []
    loop = ControlLoop(
        policy, capabilities, config or ControlConfig(), clock_ns=clock, log=lines.append
    )
    simulated = SimulatedEngine(loop, workload, drafts, step_time, clock, **engine)
    run = simulated.run(until_s=until_s, drain=drain)
    if lines:
        raise RuntimeError(f"policy {policy.name!r} must not fail in a simulation, got: {lines[0]}")
    return run
