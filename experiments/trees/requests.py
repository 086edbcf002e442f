"""A request to the engine of trees, and what is known of it while it is served."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import IntArray, RequestInfo, Slo
from acclimate.experiments.trees.draft import DraftTree, no_draft

_LUCK, _DRAFTS = 0, 1  # purposes of a request's random numbers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TreeRequest:
    """What a client asks for.

    Parameters
    ----------
    prompt
        Token ids, at least one.
    max_tokens
        Output tokens at most.
    domain
        The declared traffic class.
    temperature
        0 for the target's first choices.
    stop
        Token ids that end the answer, and belong to it.
    tenant, slo, importance
        What was promised to whom, as in `RequestInfo`.

    Raises
    ------
    ValueError
        The prompt is empty, or a number is out of range.
    """

    prompt: Sequence[int]
    max_tokens: int
    domain: str = ""
    temperature: float = 0.0
    stop: tuple[int, ...] = ()
    tenant: str = ""
    slo: Slo | None = None
    importance: float = 1.0

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise ValueError("prompt must hold a token, got none")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be >= 1, got {self.max_tokens}")
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be >= 0 and finite, got {self.temperature}")


@dataclasses.dataclass(slots=True)
class Served:
    """A request in service.

    Parameters
    ----------
    number
        Unique in the engine, from 1 on.
    slot
        A small number that is used again, for the hindsight on its drafts.
    request
        What was asked for.
    text
        Prompt and output so far; the last token is not in the cache yet.
    tree, drafted_by
        The draft at hand, and the step that made it; -1 for none.
    luck, draft_luck
        The request's own random numbers: whoever shares the batch does not matter.
    """

    number: int
    slot: int
    request: TreeRequest
    text: IntArray
    length: int
    luck: np.random.Generator
    draft_luck: np.random.Generator
    arrival_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    tree: DraftTree = dataclasses.field(default_factory=no_draft)
    drafted_by: int = -1

    @classmethod
    def of(cls, number: int, slot: int, request: TreeRequest, *, seed: int, now_ns: int) -> Served:
        """Begin to serve a request."""
        prompt = np.array(request.prompt, dtype=np.int64)
        text = np.concatenate([prompt, np.zeros(request.max_tokens, dtype=np.int64)])
        luck, draft_luck = (
            np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, number, purpose]))
            for purpose in (_LUCK, _DRAFTS)
        )
        return cls(
            number, slot, request, text, prompt.shape[0], luck, draft_luck, arrival_ns=now_ns
        )

    @property
    def ids(self) -> IntArray:
        """Prompt and output so far."""
        return self.text[: self.length]

    @property
    def output(self) -> list[int]:
        """The output so far."""
        answer: list[int] = self.text[len(self.request.prompt) : self.length].tolist()
        return answer

    @property
    def committed(self) -> int:
        """Output tokens so far."""
        return self.length - len(self.request.prompt)

    @property
    def tokens_left(self) -> int:
        """Output tokens until the limit."""
        return self.request.max_tokens - self.committed

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        stopped = self.committed > 0 and int(self.text[self.length - 1]) in self.request.stop
        return stopped or self.tokens_left <= 0

    def commit(self, tokens: Sequence[int], now_ns: int) -> int:
        """Append what the target wrote up to a stop or the limit; return how many tokens stay."""
        kept = list(tokens[: self.tokens_left])
        for place, token in enumerate(kept):
            if token in self.request.stop:
                kept = kept[: place + 1]
                break
        self.text[self.length : self.length + len(kept)] = kept
        self.length += len(kept)
        self.last_ns = now_ns
        if self.committed == len(kept):
            self.first_ns = now_ns
        return len(kept)

    def info(self) -> RequestInfo:
        """Return what a control loop is told of it."""
        return RequestInfo(
            request=self.number,
            prompt_tokens=len(self.request.prompt),
            max_tokens=self.request.max_tokens,
            domain=self.request.domain,
            sampled=self.request.temperature > 0.0,
            arrival_ns=self.arrival_ns,
            tenant=self.request.tenant,
            slo=self.request.slo,
            importance=self.request.importance,
        )
