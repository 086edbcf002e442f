"""How well a drafter predicts answers that it was not trained on, without an engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from acclimate.experiments.drafters.answers import Answer
from acclimate.predictors.ngram import OWN_LENGTHS, BackoffModel, Levels
from acclimate.predictors.ngram_kernels import N_BUCKETS
from acclimate.predictors.ngram_tables import NgramTables

DEPTH = 4
WIDTH = 3
ALL, OWN = "all", "own"

Drafted = tuple[np.ndarray, np.ndarray, np.ndarray]


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
    unused = levels.own & (
        (levels.lengths > tables.order) | (levels.lengths < min(OWN_LENGTHS) + 1)
    )
    weights[unused] = 0.0
    return BackoffModel(tables, weights)


def measure(model: BackoffModel, answers: Iterable[Answer]) -> dict[str, HeldOut]:
    """Return what a model makes of answers, per domain and over all; see `by_domain`."""
    return by_domain(
        (answer.domain, _drafted(model, answer)) for answer in answers if len(answer.answer) > 1
    )


def by_domain(rows: Iterable[tuple[str, Drafted]]) -> dict[str, HeldOut]:
    """Return what drafts came to per domain, over prompts of a file (`ALL`) and over ours (`OWN`).

    Parameters
    ----------
    rows
        The domain of each answer, and its drafts as `summarise` takes them. Domains of our own
        prompts begin with `OWN` and a hyphen.
    """
    parts: dict[str, list[Drafted]] = {}
    for domain, drafted in rows:
        whole = OWN if domain.startswith(f"{OWN}-") else ALL
        for name in (domain, whole):
            parts.setdefault(name, []).append(drafted)
    return {name: summarise(own) for name, own in sorted(parts.items())}


def summarise(rows: Sequence[Drafted]) -> HeldOut:
    """Return what drafts came to.

    Parameters
    ----------
    rows
        Per answer: shape (tokens, `DEPTH`), whether a chain that is drafted before a token would be
        right at each position by itself; shape (tokens,), whether the token was among the best
        three, and the drafter's probability of its first draft. A chain is taken up again behind
        its first wrong position and the target's own token.

    Examples
    --------
    >>> right = np.array([[True, False, True, True]] * 4)
    >>> found = summarise([(right, np.ones(4, dtype=bool), np.ones(4))])
    >>> found.acceptance_length, found.by_position[:2]
    (2.0, (1.0, 0.0))
    """
    tokens = sum(right.shape[0] for right, _, _ in rows)
    steps = 0
    reached, accepted = np.zeros(DEPTH, dtype=np.int64), np.zeros(DEPTH, dtype=np.int64)
    for right, _, _ in rows:
        at = 0
        while at < right.shape[0]:
            hits = right[at, : right.shape[0] - at]
            good = hits.shape[0] if hits.all() else int(hits.argmin())
            reached[: min(good + 1, hits.shape[0])] += 1
            accepted[:good] += 1
            steps += 1
            at += good + 1
    first = np.concatenate([right[:, 0] for right, _, _ in rows])
    sure = np.concatenate([said for _, _, said in rows])
    return HeldOut(
        tokens=tokens,
        top1=float(first.mean()),
        top3=float(np.concatenate([three for _, three, _ in rows]).mean()),
        by_position=tuple((accepted / np.maximum(reached, 1)).tolist()),
        acceptance_length=1.0 + float(accepted.sum()) / steps,
        brier=float(((sure - first) ** 2).mean()),
    )


def _drafted(model: BackoffModel, answer: Answer) -> Drafted:
    """Draft before every token of an answer but the first, which comes with the prompt."""
    ids = np.array(answer.prompt + answer.answer, dtype=np.int64)
    first = len(answer.prompt) + 1
    best, confidence = model.rank(ids, first, WIDTH)
    right = np.zeros((best.shape[0], DEPTH), dtype=bool)
    for row in range(best.shape[0]):
        at = first + row
        drafts, _ = model.draft(ids[:at], min(DEPTH, ids.shape[0] - at))
        right[row, : drafts.shape[0]] = drafts == ids[at : at + drafts.shape[0]]
    return right, (best == ids[first:, None]).any(axis=1), confidence[:, 0]
