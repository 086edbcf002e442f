"""Sends requests when their time has come, whatever the engine has done by then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from acclimate.integrations.vllm.closed_loop import Job
from acclimate.integrations.vllm.steady_load import LoadRun, Sender


def run_open_loop(
    client: Sender,
    jobs: Sequence[Job],
    arrival_s: Sequence[float],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> LoadRun:
    """Run jobs that arrive at given times, until all are done.

    Arrivals never wait for answers. The engine runs in this thread, so that a job that is due
    during a step is handed over after it; its waiting counts from when it was due. With nothing
    under way the engine idles until the next arrival.

    Parameters
    ----------
    client
        With nothing under way.
    jobs
        In order of arrival.
    arrival_s
        Seconds since the start, ascending, one per job.
    sleep
        Waits so many seconds.

    Raises
    ------
    ValueError
        The two differ in length, or the times are not ascending from 0.
    """
    if len(jobs) != len(arrival_s):
        raise ValueError(f"there must be one arrival per job, got {len(arrival_s)}, {len(jobs)}")
    if any(b < a for a, b in zip([0.0, *arrival_s], arrival_s, strict=False)):
        raise ValueError("arrival_s must be ascending and >= 0, got disorder")
    begun_s = client.clock_s()
    run = LoadRun(begun_s, begun_s, [], [])
    at = 0
    while at < len(jobs) or client.running:
        now_s = client.clock_s() - begun_s
        while at < len(jobs) and arrival_s[at] <= now_s:
            run.sent.append(client.send(jobs[at], due_s=begun_s + arrival_s[at]))
            at += 1
        if client.running:
            run.steps.append(client.step())
        else:
            sleep(arrival_s[at] - now_s)
    run.ended_s = client.clock_s()
    return run
