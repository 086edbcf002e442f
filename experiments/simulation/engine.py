"""A simulated engine: continuous batching on its own clock, driven by a control loop as vLLM is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities, Change
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.acceptance import DraftSource
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.engine_core import EngineCore
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.experiments.workload import Workload


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
    >>> from acclimate.experiments.simulation.table_time import TableTime
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
        limits = limits or EngineLimits()
        max_depth = loop.capabilities.max_depth
        if drafts.max_depth != max_depth:
            raise ValueError(
                f"drafts must have the engine's depth {max_depth}, got {drafts.max_depth}"
            )
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be >= 1, got {concurrency}")
        limits.check(workload)
        self.loop = loop
        self.workload = workload
        self.clock = clock
        self.concurrency = concurrency
        self._core = EngineCore(
            loop,
            workload,
            drafts,
            step_time,
            limits=limits,
            changes=changes,
            keep_steps=keep_steps,
        )
        self._next = 0
        self._arrival_ns = np.rint(workload.arrival_s * 1e9).astype(np.int64)
        self._begun_ns = clock.now_ns

    @property
    def in_system(self) -> int:
        """Requests that were sent and have not ended."""
        return self._core.in_system

    @property
    def context_tokens(self) -> float:
        """Tokens attended to by a request that decodes, on average, in the latest step."""
        return self._core.context_tokens

    @property
    def preemptions(self) -> int:
        """How often a request lost its place."""
        return self._core.preemptions

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
        last = None if max_steps is None else self._core.steps + max_steps
        clock = self.clock
        while last is None or self._core.steps < last:
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
        self._core.submit(row, arrival_ns)

    # --- one step ------------------------------------------------------------------------------

    def begin(self) -> int:
        """Plan and schedule one step; return how many nanoseconds it takes.

        Whoever drives the engine moves the clock, then calls `finish`.
        """
        return self._core.begin(self.clock.now_ns)

    def finish(self) -> None:
        """Write the tokens of the step that `begin` scheduled, and let the loop learn."""
        self._core.finish()

    def result(self) -> Run:
        """Return what the run gave so far."""
        return self._core.result(self._begun_ns, self.clock.now_ns)


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
