"""A client of an in-process engine that sees every step: what ran in it, and what came of it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acclimate.controller.events import EventQueue, PlanEvent
from acclimate.integrations.vllm.closed_loop import Job, sampling_parameters

if TYPE_CHECKING:
    from acclimate.integrations.vllm.launch import Engine


@dataclasses.dataclass(slots=True, eq=False)
class Sent:
    """A job that was sent, and what came back; times are seconds on the client's clock.

    Parameters
    ----------
    due_s
        When the job should have been sent. Where that is between two steps, `added_s` is later.
    chunk_s, chunk_tokens
        When tokens came, and how many at a time.
    decode_s, decode_tokens
        Time of the steps without any prompt in which this request decoded, and its tokens of them.
    filler
        Whether the job only keeps the engine at its load.
    """

    job: Job
    due_s: float
    added_s: float
    filler: bool = False
    token_ids: list[int] = dataclasses.field(default_factory=list)
    chunk_s: list[float] = dataclasses.field(default_factory=list)
    chunk_tokens: list[int] = dataclasses.field(default_factory=list)
    decode_s: float = 0.0
    decode_tokens: int = 0
    finish_reason: str | None = None

    @property
    def decoding(self) -> bool:
        """Whether the first token has come."""
        return bool(self.chunk_s)


@dataclasses.dataclass(frozen=True, slots=True)
class ClientStep:
    """One engine step, our own overhead in it included.

    Parameters
    ----------
    decode_requests, prefill_tokens, verified
        What the scheduler put into the step: requests that decode, prompt tokens, draft tokens.
    committed, first_tokens
        Tokens of the requests that decode; requests that got their first token.
    depth, draft_depth
        The plan's. Where the engine's own rule acts: its depth for both.
    stock
        Whether the engine's own rule acted.
    waiting
        Requests without a place in the engine, after the step.
    """

    begun_s: float
    duration_s: float
    decode_requests: int
    prefill_tokens: int
    verified: int
    committed: int
    first_tokens: int
    depth: int
    draft_depth: int
    stock: bool
    waiting: int


class Client:
    """Sends jobs greedily and takes steps.

    Parameters
    ----------
    engine
        In-process and idle.
    depth
        The engine's ``num_speculative_tokens``; 0 without speculation.
    clock_s
        A clock in seconds.

    Attributes
    ----------
    running
        What is under way, by key.
    verify_lens
        How often a request verified 0, 1, … drafts in a step, since the client was made.
    """

    def __init__(
        self, engine: Engine, *, depth: int, clock_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self.clock_s = clock_s
        self.running: dict[str, Sent] = {}
        self.verify_lens = [0] * (depth + 1)
        self._names: dict[str, Sent] = {}  # by the name that the engine gives a request inside
        self._engine = engine.llm.llm_engine
        self._scheduler = engine.scheduler
        self._depth = depth
        self._scheduled: Any = None
        self._schedule = self._scheduler.schedule
        self._scheduler.schedule = self._watched
        self._plans: EventQueue | None = None
        self._loop = getattr(getattr(self._scheduler, "acclimate", None), "loop", None)
        if self._loop is not None:
            self._plans = EventQueue(capacity=10_000, snapshots=False)
            self._loop.attach(self._plans)

    def send(self, job: Job, *, due_s: float | None = None, filler: bool = False) -> Sent:
        """Hand a job to the engine.

        Raises
        ------
        ValueError
            A job of that key is under way.
        """
        if job.key in self.running:
            raise ValueError(f"job keys must be unique among those under way, got {job.key!r}")
        now_s = self.clock_s()
        sent = Sent(job, now_s if due_s is None else due_s, now_s, filler)
        prompt = {"prompt_token_ids": list(job.prompt_token_ids)}
        name = self._engine.add_request(job.key, prompt, sampling_parameters(job))
        self.running[job.key] = self._names[name] = sent
        return sent

    def step(self) -> ClientStep:
        """Run one engine step and take in what it gave."""
        self._scheduled = None
        begun_s = self.clock_s()
        outputs = self._engine.step()
        now_s = self.clock_s()
        decoding, prefill_tokens, verified = self._make_up()
        committed = first_tokens = 0
        duration_s = now_s - begun_s
        ended: list[Sent] = []
        for output in outputs:
            sent = self.running[output.request_id]
            completion = output.outputs[0]
            count = len(completion.token_ids)
            if count:
                if not sent.decoding:
                    first_tokens += 1
                else:
                    committed += count
                sent.chunk_s.append(now_s)
                sent.chunk_tokens.append(count)
                sent.token_ids.extend(completion.token_ids)
            if sent in decoding and not prefill_tokens:
                sent.decode_s += duration_s
                sent.decode_tokens += count
            if output.finished:
                sent.finish_reason = completion.finish_reason
                del self.running[output.request_id]
                ended.append(sent)
        if ended:
            self._names = {name: sent for name, sent in self._names.items() if sent not in ended}
        depth, draft_depth, stock = self._planned()
        return ClientStep(
            begun_s, duration_s, len(decoding), prefill_tokens, verified, committed, first_tokens,
            depth, draft_depth, stock, len(self._scheduler.waiting),
        )  # fmt: skip

    def abort(self) -> None:
        """Abort what is still under way."""
        if self.running:
            self._engine.abort_request(list(self._names), internal=True)
            self.running.clear()
            self._names.clear()
            # An empty step, by which the engine and its controller learn that nobody is left: the
            # time until the next request must not count as a step's.
            self._engine.step()

    def close(self) -> None:
        """Abort what is under way, and leave the engine as it was."""
        self.abort()
        self._scheduler.schedule = self._schedule
        if self._loop is not None:
            self._loop.detach(self._plans)

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        self._scheduled = self._schedule(*args, **kwargs)
        return self._scheduled

    def _make_up(self) -> tuple[list[Sent], int, int]:
        """Return who decoded in the step, and its prompt and draft tokens."""
        decoding: list[Sent] = []
        prefill_tokens = verified = 0
        if self._scheduled is None:
            return decoding, 0, 0
        drafts = self._scheduled.scheduled_spec_decode_tokens
        for name, tokens in self._scheduled.num_scheduled_tokens.items():
            sent = self._names[name]
            if not sent.decoding:
                prefill_tokens += tokens
                continue
            own = len(drafts.get(name, ()))
            verified += own
            self.verify_lens[own] += 1
            decoding.append(sent)
            # More than that is a prompt computed again after a preemption.
            prefill_tokens += max(tokens - 1 - own, 0)
        return decoding, prefill_tokens, verified

    def _planned(self) -> tuple[int, int, bool]:
        if self._plans is None:
            return self._depth, self._depth, True
        plans = [event.decision for event in self._plans.take() if isinstance(event, PlanEvent)]
        if not plans:
            return self._depth, self._depth, True
        return plans[-1].depth, plans[-1].draft_depth, False
