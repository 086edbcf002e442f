"""Holds an engine at a constant concurrency until every job that counts is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from acclimate.integrations.vllm.client import ClientStep, Sent
from acclimate.integrations.vllm.closed_loop import Job


class Sender(Protocol):
    """What a load needs of a `acclimate.integrations.vllm.client.Client`."""

    running: dict[str, Sent]
    clock_s: Callable[[], float]

    def send(self, job: Job, *, due_s: float | None = None, filler: bool = False) -> Sent:
        """Hand a job to the engine."""

    def step(self) -> ClientStep:
        """Run one engine step."""

    def abort(self) -> None:
        """Abort what is still under way."""


@dataclasses.dataclass(slots=True)
class LoadRun:
    """What a load gave: jobs in the order in which they were sent, and steps."""

    begun_s: float
    ended_s: float
    sent: list[Sent]
    steps: list[ClientStep]


def run_steady(client: Sender, jobs: Sequence[Job], concurrency: int) -> LoadRun:
    """Run jobs with ``concurrency`` of them in the engine from the first step to the last.

    A finished job is replaced before the next step. When all jobs are sent they are sent again, as
    fillers, so that the last ones do not run in an engine that empties; what is left of the fillers
    is aborted when the last job is done.

    Parameters
    ----------
    client
        With nothing under way.
    jobs
        Each counts once.
    concurrency
        Jobs in the engine at a time.

    Raises
    ------
    ValueError
        The concurrency is below 1, or there is no job.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be >= 1, got {concurrency}")
    if not jobs:
        raise ValueError("jobs must not be empty, got none")
    run = LoadRun(client.clock_s(), 0.0, [], [])
    count = 0
    while count < len(jobs) or any(not sent.filler for sent in client.running.values()):
        while len(client.running) < concurrency:
            again, at = divmod(count, len(jobs))
            job = jobs[at]
            if again:
                job = dataclasses.replace(job, key=f"{job.key}/again{again}")
            run.sent.append(client.send(job, filler=again > 0))
            count += 1
        run.steps.append(client.step())
    client.abort()
    run.ended_s = client.clock_s()
    return run
