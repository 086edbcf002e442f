"""How a simulated engine gives out a step's tokens, compiled: who decodes, who gets a place."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.experiments.simulation.batch_layout import (
    AT_HAND,
    BLOCK_TOKENS,
    BLOCKS,
    BUDGET,
    BY,
    COMMITTED,
    COMMITTED_NOW,
    COMPUTED,
    CONTEXT,
    DRAFTED_BY,
    DRAFTS,
    DRAFTS_NOW,
    FREE_BLOCKS,
    FREE_SLOTS,
    HEAD,
    LEFT,
    LIMIT,
    NUMBER,
    PREFILL_FIRST,
    PROMPT,
    ROW,
    RUN,
    RUNNING,
    SAMPLED,
    SEATS,
    SLOT,
    SLOT_NOW,
    TAIL,
)
from acclimate.predictors.compiled import compiled


@compiled("Tuple((i8[:,::1], i8, i8))(i8[:,::1], i8[::1], i8[::1], i8[::1], i8[::1], i8)")
def look(
    state: IntArray,
    running: IntArray,
    queue: IntArray,
    cursor: IntArray,
    limits: IntArray,
    max_depth: int,
) -> tuple[IntArray, int, int]:
    """Return the decoding requests as a table, the prefill to expect, and how many wait."""
    n_running, waiting = cursor[RUNNING], cursor[TAIL] - cursor[HEAD]
    n, chunks = 0, 0
    for i in range(n_running):
        row = running[i]
        need = state[row, PROMPT] + state[row, COMMITTED] - state[row, COMPUTED]
        if need == 1 and state[row, COMMITTED] > 0:
            n += 1
        else:
            chunks += need
    table = np.empty((9, n), dtype=np.int64)
    d, spent = 0, n
    for i in range(n_running):
        row = running[i]
        committed = state[row, COMMITTED]
        context = state[row, PROMPT] + committed
        if context - state[row, COMPUTED] != 1 or committed == 0:
            continue
        left = state[row, LIMIT] - committed
        drafts = max(0, min(state[row, DRAFTS], left - 1, max_depth))
        table[NUMBER, d] = row + 1
        table[AT_HAND, d] = state[row, DRAFTS]
        table[DRAFTS_NOW, d] = drafts
        table[COMMITTED_NOW, d] = committed
        table[CONTEXT, d] = context
        table[LEFT, d] = left
        table[ROW, d] = row
        table[SLOT_NOW, d] = state[row, SLOT]
        table[BY, d] = state[row, DRAFTED_BY] if state[row, DRAFTS] > 0 else -1
        spent += drafts
        d += 1
    budget = limits[BUDGET] - spent
    at = cursor[HEAD]
    while at < cursor[TAIL] and at - cursor[HEAD] < limits[SEATS] - n_running and chunks < budget:
        row = queue[at]
        chunks += state[row, PROMPT] + state[row, COMMITTED]
        at += 1
    return table, max(0, min(chunks, budget)), waiting


@compiled("b1(i8[:,::1], i8[::1], i8[::1], i8, i8)")
def _allocate(state: IntArray, cursor: IntArray, limits: IntArray, row: int, tokens: int) -> bool:
    """Take the cache blocks that ``tokens`` tokens of a request need; False if there are none."""
    if cursor[FREE_BLOCKS] < 0:
        return True  # without a limit
    block = limits[BLOCK_TOKENS]
    more = (tokens + block - 1) // block - state[row, BLOCKS]
    if more <= 0:
        return True
    if more > cursor[FREE_BLOCKS]:
        return False
    cursor[FREE_BLOCKS] -= more
    state[row, BLOCKS] += more
    return True


@compiled("b1(i8[:,::1], i8[::1], i8[::1], i8[::1], i8[::1], i8)")
def _can_prefill(
    state: IntArray, running: IntArray, queue: IntArray, cursor: IntArray, limits: IntArray, n: int
) -> bool:
    """Return whether a prompt is under way, or may begin: there is a seat and room in the cache."""
    if cursor[RUNNING] > n:
        return True
    if cursor[HEAD] == cursor[TAIL] or cursor[RUNNING] >= limits[SEATS]:
        return False
    row, block = queue[cursor[HEAD]], limits[BLOCK_TOKENS]
    tokens = min(state[row, PROMPT] + state[row, COMMITTED], limits[BUDGET])
    return bool(cursor[FREE_BLOCKS] < 0 or (tokens + block - 1) // block <= cursor[FREE_BLOCKS])


@compiled("void(i8[:,::1], i8[::1], i8[::1], i8)")
def release(state: IntArray, cursor: IntArray, slots: IntArray, row: int) -> None:
    """Give back a request's blocks and slot."""
    if cursor[FREE_BLOCKS] >= 0:
        cursor[FREE_BLOCKS] += state[row, BLOCKS]
    state[row, BLOCKS] = 0
    slots[cursor[FREE_SLOTS]] = state[row, SLOT]
    cursor[FREE_SLOTS] += 1


@compiled(
    "Tuple((i8[::1], i8[::1], i8, i8, i8, i8, i8))(i8[:,::1], i8[::1], i8[::1], i8[::1], i8[::1],"
    "i8[::1], i8[:,::1], i8[::1])"
)
def schedule(
    state: IntArray,
    running: IntArray,
    queue: IntArray,
    cursor: IntArray,
    slots: IntArray,
    limits: IntArray,
    table: IntArray,
    lens: IntArray,
) -> tuple[IntArray, IntArray, int, int, int, int, int]:
    """Give out the step's tokens: running requests in order, then waiting ones.

    With prefill first, requests that decode wait while a prompt can be computed.

    Returns
    -------
    verified
        Drafts to verify per row of the table; -1: not scheduled.
    preempted
        Rows that lost their place.
    decode, verified_tokens, prefill, context, sampled
        The step's make-up.
    """
    n = table.shape[1]
    verified = np.full(n, -1)
    gone = np.empty(cursor[RUNNING], dtype=np.int64)
    n_gone, budget, d, i = 0, limits[BUDGET], 0, 0
    decode, total, prefill, context, sampled = 0, 0, 0, 0, 0
    prompts_only = limits[PREFILL_FIRST] > 0 and _can_prefill(
        state, running, queue, cursor, limits, n
    )
    while i < cursor[RUNNING] and budget > 0:
        row = running[i]
        computed = state[row, COMPUTED]
        decodes = d < n and table[ROW, d] == row
        if decodes and prompts_only:
            d += 1
            i += 1
            continue
        if decodes:
            tokens = 1 + min(lens[d], budget - 1)
        else:
            tokens = min(state[row, PROMPT] + state[row, COMMITTED] - computed, budget)
        fits = _allocate(state, cursor, limits, row, computed + tokens)
        while not fits:
            # The last to come goes first, and will compute its tokens anew.
            last = cursor[RUNNING] - 1
            victim = running[last]
            cursor[RUNNING] = last
            release(state, cursor, slots, victim)
            state[victim, COMPUTED] = 0
            state[victim, DRAFTS] = 0
            state[victim, RUN] = 0
            cursor[HEAD] -= 1
            queue[cursor[HEAD]] = victim
            gone[n_gone] = victim
            n_gone += 1
            if victim == row:
                break
            fits = _allocate(state, cursor, limits, row, computed + tokens)
        if not fits:
            break
        budget -= tokens
        if decodes:
            verified[d] = tokens - 1
            decode += 1
            total += tokens - 1
            context += table[CONTEXT, d]
            sampled += state[row, SAMPLED]
            d += 1
        else:
            state[row, COMPUTED] += tokens
            prefill += tokens
        i += 1
    while (
        n_gone == 0
        and budget > 0
        and cursor[HEAD] < cursor[TAIL]
        and cursor[RUNNING] < limits[SEATS]
    ):
        row = queue[cursor[HEAD]]
        tokens = min(state[row, PROMPT] + state[row, COMMITTED], budget)
        if not _allocate(state, cursor, limits, row, tokens):
            break
        cursor[HEAD] += 1
        running[cursor[RUNNING]] = row
        cursor[RUNNING] += 1
        cursor[FREE_SLOTS] -= 1
        state[row, SLOT] = slots[cursor[FREE_SLOTS]]
        state[row, COMPUTED] = tokens
        prefill += tokens
        budget -= tokens
    return verified, gone[:n_gone].copy(), decode, total, prefill, context, sampled
