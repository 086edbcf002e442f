"""Classes of service in a comparison: which request gets which promise, and what its client sends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from acclimate.integrations.vllm.closed_loop import Job

TIGHT, STANDARD, BATCH = "interactive", "standard", "batch"
CLASSES = (TIGHT, STANDARD, BATCH)
STANDARD_SCALE = 2.0
"""The standard class's time per token, as a multiple of k0's."""

TTFT_SCALE = 2.0
"""Time to the first token of the classes with targets, over what nine in ten of k0's requests keep."""

_LENGTHS = (0.5, 1.25, 0.75, 1.5, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class PlainTimes:
    """What k0 takes, in seconds: the measure of promises.

    Parameters
    ----------
    tpot_s
        Median time per token after the first.
    ttft_s
        Time to the first token that nine in ten requests keep.
    """

    tpot_s: float
    ttft_s: float


@dataclasses.dataclass(frozen=True, slots=True)
class Promise:
    """What one request is promised, in seconds; None for nothing."""

    slo_class: str = ""
    ttft_s: float | None = None
    tpot_s: float | None = None


def classes_of(jobs: Sequence[Job]) -> dict[str, str]:
    """Return the class of every job, by key: each domain's jobs take the classes in turn.

    Domains begin with different classes, so that a class is not a domain.

    >>> jobs = [Job(f"{d}{i}", (1,), 2, truth=d) for d in "ab" for i in range(3)]
    >>> list(classes_of(jobs).values())
    ['interactive', 'standard', 'batch', 'standard', 'batch', 'interactive']
    """
    domains: dict[str, int] = {}
    turns: dict[str, int] = {}
    granted = {}
    for job in jobs:
        first = domains.setdefault(job.truth, len(domains))
        turn = turns.get(job.truth, 0)
        turns[job.truth] = turn + 1
        granted[job.key] = CLASSES[(first + turn) % len(CLASSES)]
    return granted


def answer_tokens(number: int, tokens: int) -> int:
    """Return how many tokens a request may write, ``tokens`` on average.

    Answers of one length would end together in an arm of one pace, and all prompts of the next
    ones come together: that arm alone would then decode without any prompt in between.

    >>> [answer_tokens(number, 64) for number in range(6)]
    [32, 80, 48, 96, 64, 32]
    """
    return max(round(_LENGTHS[number % len(_LENGTHS)] * tokens), 2)


def promise_of(slo_class: str, scale: float, plain: PlainTimes) -> Promise:
    """Return what a class is promised in a cell.

    Parameters
    ----------
    slo_class
        One of `CLASSES`.
    scale
        The tight class's time per token, as a multiple of k0's.
    plain
        What k0 takes at this concurrency.
    """
    if slo_class == BATCH:
        return Promise(BATCH)
    times = scale if slo_class == TIGHT else STANDARD_SCALE
    return Promise(slo_class, TTFT_SCALE * plain.ttft_s, times * plain.tpot_s)


def with_promises(
    jobs: Sequence[Job], granted: Mapping[str, str], scale: float, plain: PlainTimes
) -> tuple[Job, ...]:
    """Return jobs whose clients send class and targets along, as metadata of the request."""
    return tuple(_said(job, promise_of(granted[job.key], scale, plain)) for job in jobs)


def asked(job: Job) -> Promise:
    """Return what a job's client asks for.

    >>> job = with_promises([Job("a", (1,), 2)], {"a": TIGHT}, 0.75, PlainTimes(0.04, 1.0))[0]
    >>> asked(job)
    Promise(slo_class='interactive', ttft_s=2.0, tpot_s=0.03)
    """
    said = dict(job.extra_args)
    ttft_ms, tpot_ms = (said.get(f"acclimate_slo_{kind}_ms") for kind in ("ttft", "tpot"))
    return Promise(
        str(said.get("acclimate_slo_class", "")),
        None if ttft_ms is None else ttft_ms / 1e3,
        None if tpot_ms is None else tpot_ms / 1e3,
    )


def _said(job: Job, promise: Promise) -> Job:
    said: dict[str, str | float] = {"acclimate_slo_class": promise.slo_class}
    if promise.ttft_s is not None:
        said["acclimate_slo_ttft_ms"] = round(1e3 * promise.ttft_s, 3)
    if promise.tpot_s is not None:
        said["acclimate_slo_tpot_ms"] = round(1e3 * promise.tpot_s, 3)
    return dataclasses.replace(job, extra_args=(*job.extra_args, *said.items()))
