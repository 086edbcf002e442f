"""The demo's traffic: phases of constant concurrency, half of it under a label that misleads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from acclimate.experiments.demo.prompts import PROMPTS
from acclimate.integrations.vllm.closed_loop import Job, Phase

CHAT = "chat"
BEFORE, AFTER = ("translation", "code", "arithmetic"), "prose"
_CONCURRENCY = (1, 8, 16, 1)
_JOBS, _QUICK_JOBS = (4, 16, 40, 4), (2, 10, 24, 2)
_MAX_TOKENS = 64
_SEQUEL_JOBS, _SEQUEL_CONCURRENCY = 24, 8


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """What every arm of every round is sent, in order.

    Parameters
    ----------
    phases
        One per concurrency.
    shift
        Key of the first job labelled ``chat`` whose content is free prose.
    sequel
        More of ``chat`` after its shift: what it takes to see how soon a learner is right again.
        It is no part of the stream that arms are compared on.
    """

    phases: tuple[Phase, ...]
    shift: str
    sequel: Phase

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Return all jobs in the order in which they are sent."""
        return tuple(job for phase in self.phases for job in phase.jobs)

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """Return the concurrencies that are held, ascending."""
        return tuple(sorted({phase.concurrency for phase in self.phases}))


def build_stream(
    tokens: Callable[[list[dict[str, str]]], tuple[int, ...]], *, seed: int, quick: bool = False
) -> Stream:
    """Lay out the traffic.

    Every second job declares its true domain. The others all declare ``chat``: translation, code
    and arithmetic in turn in the first half of the stream, free prose in the second.

    Parameters
    ----------
    tokens
        Turns a conversation into prompt token ids.
    seed
        Draws which prompts come, and in which order.
    quick
        A shorter stream.

    Examples
    --------
    >>> stream = build_stream(lambda messages: (1, 2), seed=0)
    >>> [(phase.concurrency, len(phase.jobs)) for phase in stream.phases]
    [(1, 4), (8, 16), (16, 40), (1, 4)]
    >>> sum(job.label == "chat" for job in stream.jobs)
    32
    """
    rng = np.random.default_rng(seed)
    prompts = {domain: _shuffled(domain, rng) for domain in PROMPTS}
    sizes = _QUICK_JOBS if quick else _JOBS
    declared = _in_turn(tuple(PROMPTS), rng)
    early = _in_turn(BEFORE, rng)

    def job(key: str, label: str, truth: str) -> Job:
        message = {"role": "user", "content": next(prompts[truth])}
        return Job(key, tokens([message]), _MAX_TOKENS, label=label, truth=truth)

    jobs: list[Job] = []
    shift = ""
    for number in range(sum(sizes)):
        is_chat = number % 2 == 1
        late = number >= sum(sizes) // 2
        truth = (AFTER if late else next(early)) if is_chat else next(declared)
        key = f"{number:03d}-{truth}"
        if is_chat and late and not shift:
            shift = key
        jobs.append(job(key, CHAT if is_chat else truth, truth))
    ends = np.cumsum(sizes).tolist()
    phases = [
        Phase(concurrency, tuple(jobs[end - size : end]))
        for concurrency, size, end in zip(_CONCURRENCY, sizes, ends, strict=True)
    ]
    sequel = [job(f"sequel-{number:03d}-{AFTER}", CHAT, AFTER) for number in range(_SEQUEL_JOBS)]
    return Stream(tuple(phases), shift, Phase(_SEQUEL_CONCURRENCY, tuple(sequel)))


def _shuffled(domain: str, rng: np.random.Generator) -> Iterator[str]:
    """Give a domain's prompts in random order, and again when there are no more."""
    prompts = PROMPTS[domain]
    while True:
        for index in rng.permutation(len(prompts)):
            yield prompts[int(index)]


def _in_turn(names: tuple[str, ...], rng: np.random.Generator) -> Iterator[str]:
    """Give every name once per turn, each turn in random order."""
    while True:
        for index in rng.permutation(len(names)):
            yield names[int(index)]
