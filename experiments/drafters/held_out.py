"""How well a drafter predicts answers that it was not trained on, without an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from acclimate.experiments.drafters.answers import Answer
from acclimate.predictors.ngram import OWN_LENGTHS, BackoffModel, Levels
from acclimate.predictors.ngram_kernels import N_BUCKETS
from acclimate.predictors.ngram_tables import NgramTables

DEPTH = 4
WIDTH = 3
ALL = "all"


@dataclasses.dataclass(frozen=True, slots=True)
class HeldOut:
    """What came of a drafter on held-out answers of one domain.

    Parameters
    ----------
    tokens
        Answer tokens that were predicted.
    top1, top3
        Shares of tokens that the first draft named, and one of the best three.
    by_position
        Conditional acceptance of draft positions 1 to `DEPTH`: right if all before were right.
    acceptance_length
        Tokens per verification at depth `DEPTH`, bonus token included.
    brier
        Mean squared error of the drafter's probability of its first draft.
    """

    tokens: int
    top1: float
    top3: float
    by_position: tuple[float, ...]
    acceptance_length: float
    brier: float


def plain_backoff(tables: NgramTables) -> BackoffModel:
    """Return the plain back-off that drafters are compared with.

    The longest context that was ever seen decides, in the text itself if it is known there, and its
    most frequent successor is the draft. Own contexts are at least two tokens, and none is longer
    than the tables' order.
    """
    levels = Levels.of(tables.order)
    weights = np.ones((len(levels), N_BUCKETS))
    unused = levels.own & ((levels.lengths > tables.order) | (levels.lengths < min(OWN_LENGTHS) + 1))
    weights[unused] = 0.0
    return BackoffModel(tables, weights)


def measure(model: BackoffModel, answers: Iterable[Answer]) -> dict[str, HeldOut]:
    """Return what a model makes of answers, per domain and over `ALL`."""
    parts: dict[str, list[_Counts]] = {}
    for answer in answers:
        if answer.answer:
            parts.setdefault(answer.domain, []).append(_count(model, answer))
    found = {domain: _sum(counts) for domain, counts in sorted(parts.items())}
    if found:
        found[ALL] = _sum([count for counts in parts.values() for count in counts])
    return found


@dataclasses.dataclass(slots=True)
class _Counts:
    tokens: int
    right1: int
    right3: int
    squares: float
    steps: int
    reached: np.ndarray
    accepted: np.ndarray


def _count(model: BackoffModel, answer: Answer) -> _Counts:
    ids = np.array(answer.prompt + answer.answer, dtype=np.int64)
    first = len(answer.prompt)
    best, confidence = model.rank(ids, first, WIDTH)
    right = best == ids[first:, None]
    reached, accepted = np.zeros(DEPTH, dtype=np.int64), np.zeros(DEPTH, dtype=np.int64)
    at, steps = first + 1, 0  # the first token comes with the prompt
    while at < ids.shape[0]:
        drafts, _ = model.draft(ids[:at], min(DEPTH, ids.shape[0] - at))
        hits = drafts == ids[at : at + drafts.shape[0]]
        good = int(hits.argmin()) if not hits.all() else hits.shape[0]
        reached[: min(good + 1, hits.shape[0])] += 1
        accepted[:good] += 1
        steps += 1
        at += good + 1
    return _Counts(
        right.shape[0],
        int(right[:, 0].sum()),
        int(right.any(axis=1).sum()),
        float(((confidence[:, 0] - right[:, 0]) ** 2).sum()),
        steps,
        reached,
        accepted,
    )


def _sum(counts: list[_Counts]) -> HeldOut:
    tokens = sum(count.tokens for count in counts)
    steps = sum(count.steps for count in counts)
    reached = np.sum([count.reached for count in counts], axis=0)
    accepted = np.sum([count.accepted for count in counts], axis=0)
    return HeldOut(
        tokens=tokens,
        top1=sum(count.right1 for count in counts) / tokens,
        top3=sum(count.right3 for count in counts) / tokens,
        by_position=tuple((accepted / np.maximum(reached, 1)).tolist()),
        acceptance_length=1.0 + float(accepted.sum()) / steps if steps else 1.0,
        brier=sum(count.squares for count in counts) / tokens,
    )
