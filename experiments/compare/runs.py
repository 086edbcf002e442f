"""Turns rows of one arm in one cell into the record that all measures read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import IntArray, int_array
from acclimate.experiments.compare.rows import CellRow, RequestRow
from acclimate.experiments.run_record import Gaps, Run, StepLog


def pooled_run(rows: Sequence[CellRow], *, max_depth: int) -> Run:
    """Return the rounds of one arm in one cell as one run, one after the other in time.

    A request keeps its number over arms, as long as they ran the same rounds, so that runs can be
    paired. Fillers come last and count as not finished: their tokens are part of the throughput,
    and nothing else is said of them. Where several tokens of a request came at once, one of them is
    the target's own and the others are accepted drafts.

    Parameters
    ----------
    rows
        In order of rounds; at least one.
    max_depth
        The depth of the comparison's engine.

    Raises
    ------
    ValueError
        There is no row.
    """
    if not rows:
        raise ValueError("rows must not be empty, got none")
    numbers = _numbers(rows)
    log = StepLog(max_depth)
    requests: list[tuple[int, float, RequestRow]] = []
    fillers: list[tuple[int, float, RequestRow]] = []
    begun_s = 0.0
    for row in rows:
        steps = row.steps
        for at in range(len(steps.begun_s)):
            decode, committed = steps.decode_requests[at], steps.committed[at]
            accepted = min(max(committed - decode, 0), steps.verified[at])
            counts = (
                decode, steps.verified[at], accepted, committed, steps.first_tokens[at],
                steps.prefill_tokens[at], min(steps.depth[at], max_depth), steps.draft_depth[at],
            )  # fmt: skip
            log.add(begun_s + steps.begun_s[at], 1e3 * steps.duration_s[at], counts)
        requests += [(numbers[row.round, r.prompt], begun_s, r) for r in row.counted]
        fillers += [(len(numbers), begun_s, r) for r in row.requests if r.filler]
        begun_s += row.duration_s
    requests.sort(key=lambda request: request[0])
    requests += fillers
    totals, kept = log.result()
    domains = tuple(dict.fromkeys(r.domain for _, _, r in requests))
    gaps_s = [np.diff(r.chunk_s) for _, _, r in requests]
    return Run(
        policy=rows[0].arm,
        max_depth=max_depth,
        begun_s=0.0,
        ended_s=begun_s,
        request=int_array([number for number, _, _ in requests]),
        arrival_s=np.array([at_s + r.due_s for _, at_s, r in requests]),
        first_token_s=np.array([_at(at_s, r, 0) for _, at_s, r in requests]),
        last_token_s=np.array([_at(at_s, r, -1) for _, at_s, r in requests]),
        tokens=int_array([r.tokens for _, _, r in requests]),
        finished=np.array([bool(r.finish) and not r.filler for _, _, r in requests]),
        domain=domains,
        domain_of=int_array([domains.index(r.domain) for _, _, r in requests]),
        gaps=Gaps.of(np.concatenate([*gaps_s, np.zeros(0)])),
        verify_lens=_lens(rows, max_depth),
        totals=totals,
        steps=kept,
        status=_summed(rows),
    )


def _numbers(rows: Sequence[CellRow]) -> dict[tuple[int, str], int]:
    """Number requests by round and prompt, whatever the order in which they were sent."""
    keys = sorted((row.round, request.prompt) for row in rows for request in row.counted)
    return {key: number for number, key in enumerate(keys)}


def _lens(rows: Sequence[CellRow], max_depth: int) -> IntArray:
    lens = np.zeros(max_depth + 1, dtype=np.int64)
    for row in rows:
        lens[: len(row.verify_lens)] += row.verify_lens
    return lens


def _at(begun_s: float, request: RequestRow, which: int) -> float:
    return begun_s + request.chunk_s[which] if request.chunk_s else float("nan")


def _summed(rows: Sequence[CellRow]) -> dict[str, int]:
    names = dict.fromkeys(name for row in rows for name in row.status)
    return {name: sum(row.status.get(name, 0) for row in rows) for name in names}
