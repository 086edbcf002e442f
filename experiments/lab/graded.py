"""The draft tokens of recorded answers whose fate an engine would learn, in the order of serving."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray, int_array
from acclimate.experiments.lab.recording import Answer
from acclimate.experiments.offsets import Lookup, OffsetDrafts, ngram_drafts

_RECENT_TOKENS = 40.0  # window of a request's recent history
FIRST_BLOCK = -1
"""`GradedTokens.before` of a request that had no draft yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class GradedTokens:
    """One entry per graded draft token; arrays have shape (n,).

    Everything but ``right`` was known before the token's draft was verified.

    Parameters
    ----------
    step
        The engine step that graded it: all of one step are predicted before any is learned.
    request
        Index of the answer.
    position
        0 for a draft's first token.
    match
        Tokens of the n-gram that the draft was found by.
    age
        Graded tokens of the request so far.
    accepted, recent
        The request's graded tokens that were right, over its life and in a recent window, each
        as (right, graded) with shape (n, 2).
    before
        Tokens accepted of the request's draft before this one, `FIRST_BLOCK` without one.
    whole
        Whether all of that draft was accepted.
    right
        Whether the token was.
    context
        Tokens of prompt and answer before the draft.
    """

    step: IntArray
    request: IntArray
    position: IntArray
    match: IntArray
    age: IntArray
    accepted: FloatArray
    recent: FloatArray
    before: IntArray
    whole: npt.NDArray[np.bool_]
    right: npt.NDArray[np.bool_]
    context: IntArray

    def __len__(self) -> int:
        return int(self.right.shape[0])


@dataclasses.dataclass(slots=True)
class _Serving:
    """One answer on its way, and what its drafts have come to."""

    request: int
    drafts: OffsetDrafts
    tokens: int
    at: int = 1  # the first token comes out of the prefill
    right: int = 0
    graded: int = 0
    recent_right: float = 0.0
    recent_graded: float = 0.0
    before: int = FIRST_BLOCK
    whole: bool = False

    def learn(self, right: int, graded: int, length: int) -> None:
        keep = math.exp(-graded / _RECENT_TOKENS)
        self.right += right
        self.graded += graded
        self.recent_right = keep * self.recent_right + right
        self.recent_graded = keep * self.recent_graded + graded
        self.before = right
        self.whole = right == length


def graded_tokens(
    answers: Sequence[Answer], lookup: Lookup, *, concurrency: int, rng: np.random.Generator
) -> GradedTokens:
    """Serve ``answers`` in a random order and keep every draft token that becomes known.

    Each step verifies the draft of every request in service; the next draft starts behind what
    was committed. A token is graded if all tokens of its draft before it were right and the answer
    goes on so far; hindsight grades the same tokens whatever is verified.

    Parameters
    ----------
    answers
        What was recorded.
    lookup
        The drafter's rule.
    concurrency
        Requests in service; a finished one is replaced at once.
    rng
        Draws the order.

    Raises
    ------
    ValueError
        ``concurrency`` is below 1, or no token is graded.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be >= 1, got {concurrency}")
    waiting = [int(index) for index in rng.permutation(len(answers))][::-1]
    serving: list[_Serving] = []
    blocks: list[tuple[int, ...]] = []
    history: list[tuple[float, ...]] = []
    step = 0
    while serving or waiting:
        while waiting and len(serving) < concurrency:
            request = waiting.pop()
            answer = answers[request]
            drafts = ngram_drafts(answer.prompt, answer.output, lookup)
            serving.append(_Serving(request, drafts, len(answer.output)))
        for one in serving:
            if one.at >= one.tokens:
                continue
            length, run = int(one.drafts.length[one.at]), int(one.drafts.run[one.at])
            graded = min(run + 1, length, one.tokens - one.at)
            if graded:
                blocks.append(
                    (step, one.request, int(one.drafts.match[one.at]), one.graded, one.before,
                     int(one.whole), run, graded,
                     len(answers[one.request].prompt) + one.at)
                )  # fmt: skip
                history.append((one.right, one.graded, one.recent_right, one.recent_graded))
                one.learn(run, graded, length)
            one.at += run + 1
        serving = [one for one in serving if one.at < one.tokens]
        step += 1
    if not blocks:
        raise ValueError("answers must give at least one graded draft token, got none")
    columns = int_array(blocks)
    graded_counts = columns[:, 7]
    tokens = np.repeat(columns, graded_counts, axis=0)
    past = np.repeat(np.array(history, dtype=np.float64), graded_counts, axis=0)
    ends = np.cumsum(graded_counts)
    position = np.arange(tokens.shape[0]) - np.repeat(ends - graded_counts, graded_counts)
    return GradedTokens(
        step=tokens[:, 0],
        request=tokens[:, 1],
        position=position,
        match=tokens[:, 2],
        age=tokens[:, 3],
        accepted=past[:, :2],
        recent=past[:, 2:],
        before=tokens[:, 4],
        whole=tokens[:, 5].astype(np.bool_),
        right=position < tokens[:, 6],
        context=tokens[:, 8],
    )
