"""Feeds an in-process engine at constant concurrency and times every step from the client's side."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acclimate.integrations.vllm.launch import Engine


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One request to send.

    Parameters
    ----------
    key
        Names the job in results; unique within a run.
    prompt_token_ids
        The prompt, templated and tokenised.
    max_tokens
        Output tokens at most.
    label
        The domain that the client declares; empty for none.
    truth
        The domain that the prompt really comes from; never sent.
    ignore_eos
        Whether to write on behind the end-of-sequence token.
    extra_args
        Further metadata to send along.
    """

    key: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    label: str = ""
    truth: str = ""
    ignore_eos: bool = False
    extra_args: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Phase:
    """Jobs to run at one concurrency, in order."""

    concurrency: int
    jobs: tuple[Job, ...]


@dataclasses.dataclass(slots=True)
class JobResult:
    """What came of a job; times are seconds on the run's clock."""

    job: Job
    added_s: float
    token_ids: list[int] = dataclasses.field(default_factory=list)
    first_token_s: float | None = None
    last_token_s: float | None = None
    finish_reason: str | None = None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None below two tokens."""
        if self.first_token_s is None or self.last_token_s is None or len(self.token_ids) < 2:
            return None
        return (self.last_token_s - self.first_token_s) / (len(self.token_ids) - 1)


@dataclasses.dataclass(frozen=True, slots=True)
class StepRecord:
    """One engine step as a client sees it: bookkeeping and our own overhead included.

    Parameters
    ----------
    phase
        Index of the phase that fed the engine.
    running
        Requests in the engine during the step.
    duration_s
        Wall time of the whole step.
    tokens
        Tokens that came back.
    first_tokens
        Requests that got their first token: their prompt was in the step.
    """

    phase: int
    running: int
    duration_s: float
    tokens: int
    first_tokens: int


@dataclasses.dataclass(slots=True)
class ClosedLoopRun:
    """Everything that a run gave, jobs in the order in which they were sent."""

    results: list[JobResult]
    steps: list[StepRecord]

    @property
    def tokens(self) -> dict[str, tuple[int, ...]]:
        """Return what each job wrote."""
        return {result.job.key: tuple(result.token_ids) for result in self.results}

    @property
    def wall_s(self) -> float:
        """Return the time of all steps."""
        return sum(step.duration_s for step in self.steps)


def run_closed_loop(
    engine: Engine,
    jobs: Iterable[Job],
    concurrency: int,
    *,
    on_step: Callable[[StepRecord], None] | None = None,
    clock_s: Callable[[], float] = time.perf_counter,
) -> ClosedLoopRun:
    """Run ``jobs`` greedily with ``concurrency`` of them in the engine; see `run_phases`."""
    return run_phases(engine, [Phase(concurrency, tuple(jobs))], on_step=on_step, clock_s=clock_s)


def run_phases(
    engine: Engine,
    phases: Sequence[Phase],
    *,
    on_step: Callable[[StepRecord], None] | None = None,
    clock_s: Callable[[], float] = time.perf_counter,
) -> ClosedLoopRun:
    """Run phases one after the other, each at a constant concurrency.

    A finished request is replaced before the next step. A phase begins when the one before has
    sent its last job, so that a rising concurrency is reached at once and a falling one by
    finishing what is under way; the last phase runs until nothing is left.

    Parameters
    ----------
    engine
        In-process and idle.
    phases
        What to send.
    on_step
        Called after every step, outside the timed part.
    clock_s
        A clock in seconds.

    Raises
    ------
    ValueError
        A concurrency is below 1, or two jobs share a key.
    """
    for phase in phases:
        if phase.concurrency < 1:
            raise ValueError(f"concurrency must be >= 1, got {phase.concurrency}")
    keys = [job.key for phase in phases for job in phase.jobs]
    if len(set(keys)) != len(keys):
        raise ValueError("job keys must be unique within a run, got a key twice")
    llm_engine = engine.llm.llm_engine
    run = ClosedLoopRun([], [])
    running: dict[str, JobResult] = {}
    for index, phase in enumerate(phases):
        jobs = iter(phase.jobs)
        last = index == len(phases) - 1
        job = next(jobs, None)
        while job is not None or (last and running):
            while job is not None and len(running) < phase.concurrency:
                result = JobResult(job, added_s=clock_s())
                llm_engine.add_request(
                    job.key,
                    {"prompt_token_ids": list(job.prompt_token_ids)},
                    sampling_parameters(job),
                )
                running[job.key] = result
                run.results.append(result)
                job = next(jobs, None)
            if job is None and not last:
                break
            record = _step(llm_engine, running, index, clock_s)
            run.steps.append(record)
            if on_step is not None:
                on_step(record)
    return run


def _step(
    llm_engine: Any, running: dict[str, JobResult], phase: int, clock_s: Callable[[], float]
) -> StepRecord:
    """Run one engine step, take in what it gave and drop finished requests from ``running``."""
    occupied = len(running)
    begun_s = clock_s()
    outputs = llm_engine.step()
    now_s = clock_s()
    tokens = first_tokens = 0
    for output in outputs:
        result = running[output.request_id]
        completion = output.outputs[0]
        if completion.token_ids:
            tokens += len(completion.token_ids)
            if result.first_token_s is None:
                result.first_token_s = now_s
                first_tokens += 1
            result.last_token_s = now_s
            result.token_ids.extend(completion.token_ids)
        if output.finished:
            result.finish_reason = completion.finish_reason
            del running[output.request_id]
    return StepRecord(phase, occupied, now_s - begun_s, tokens, first_tokens)


def sampling_parameters(job: Job) -> Any:
    """Return the engine's sampling parameters: greedy, new tokens only, no text."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    extra = dict(job.extra_args)
    if job.label:
        extra["acclimate_domain"] = job.label
    return SamplingParams(
        temperature=0.0,
        max_tokens=job.max_tokens,
        ignore_eos=job.ignore_eos,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args=extra or None,
    )
