"""The requests that decode in a step, as one batch: gathered anew only when its members change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.integrations.vllm.table import (
    ASKED,
    COMMITTED,
    LAST_STEP,
    LIMIT,
    PROMPT,
    SAMPLED,
    RequestTable,
)
from acclimate.predictors.compiled import compiled

V = TypeVar("V")


class Batch:
    """Decode requests in the scheduler's order, with where each of them is kept.

    Parameters
    ----------
    running
        The scheduler's running requests; left out are those whose prompt is not computed yet.
    table
        Knows them all.
    """

    __slots__ = ("_pick", "epoch", "ids", "known", "numbers", "requests", "slots")

    def __init__(self, running: Sequence[Any], table: RequestTable) -> None:
        requests = list(running)
        ids = [r.request_id for r in requests]
        slots = np.fromiter(map(table.slots.__getitem__, ids), dtype=np.int64, count=len(ids))
        decoding = table.decoding[slots] > 0
        for row in (~decoding).nonzero()[0].tolist():
            decoding[row] = table.begin_decoding(int(slots[row]), requests[row])
        if not decoding.all():
            requests = list(compress(requests, decoding))
            ids = list(compress(ids, decoding))
            slots = slots[decoding]
        self.requests = requests
        self.ids: list[str] = ids
        self.known = frozenset(ids)
        self.slots = slots
        self.numbers = table.number[slots]
        self.epoch = table.epoch
        self._pick = itemgetter(*ids) if len(ids) > 1 else None

    def holds(self, running: Sequence[Any], table: RequestTable) -> bool:
        """Whether all of ``running`` decoded before, and nobody came, went or lost its place."""
        return self.epoch == table.epoch and len(self.ids) == len(running)

    def take(self, by_id: Mapping[str, V]) -> Sequence[V]:
        """Return the values of the batch's requests, in its order."""
        if self._pick is None:
            return [by_id[i] for i in self.ids]
        values: tuple[V, ...] = self._pick(by_id)
        return values


class Standing(NamedTuple):
    """Where the n requests of a batch stand before a step.

    Parameters
    ----------
    rows
        Shape (5, n): drafts that may be verified, output tokens left and committed, tokens attended
        to, and the step that drafted what is at hand (-1 for none).
    drafts, context_tokens, sampled_rows
        Sums over the requests.
    surplus
        First request with more drafts at hand than were asked for, -1 if there is none.
    """

    rows: IntArray
    drafts: int
    context_tokens: int
    sampled_rows: int
    surplus: int


def standing(
    table: RequestTable, slots: IntArray, at_hand: IntArray, in_flight: IntArray, max_depth: int
) -> Standing:
    """Return where a batch's requests stand.

    Parameters
    ----------
    slots, at_hand
        Shape (n,): where each request is kept, and its drafts at hand.
    in_flight
        Shape (n,) or (0,): tokens that a step under way commits at least.
    max_depth
        Drafts of a request that may be verified at most; the bonus token comes on top.
    """
    return Standing(*_standing(table.rows, slots, at_hand, in_flight, max_depth))


@compiled("Tuple((i8[:,::1], i8, i8, i8, i8))(i8[:,::1], i8[::1], i8[::1], i8[::1], i8)")
def _standing(
    table: IntArray, slots: IntArray, at_hand: IntArray, in_flight: IntArray, max_depth: int
) -> tuple[IntArray, int, int, int, int]:
    n = slots.shape[0]
    rows = np.empty((5, n), dtype=np.int64)
    total, context, sampled, surplus = 0, 0, 0, -1
    for r in range(n):
        slot = slots[r]
        committed = table[COMMITTED, slot]
        left = table[LIMIT, slot] - committed
        if in_flight.shape[0]:
            left -= in_flight[r]
        drafts = max(min(at_hand[r], left - 1, max_depth), 0)
        rows[0, r] = drafts
        rows[1, r] = left
        rows[2, r] = committed
        rows[3, r] = table[PROMPT, slot] + committed
        rows[4, r] = table[LAST_STEP, slot] if at_hand[r] > 0 else -1
        total += drafts
        context += rows[3, r]
        sampled += table[SAMPLED, slot]
        if surplus < 0 and at_hand[r] > table[ASKED, slot]:
            surplus = r
    return rows, total, context, sampled, surplus
