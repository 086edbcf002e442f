"""The simulated engine's work per step, compiled: look, schedule, land, take drafts.

A request's state is one row of ``state``; ``running`` and ``queue`` hold rows. ``cursor`` counts
what is in the arrays. A request decodes when all but its last token is computed.
"""

from __future__ import annotations

import math

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.run_record import GAP_BINS, GAP_BINS_PER_E, GAP_LEAST_S
from acclimate.predictors.compiled import compiled

# Columns of a request's state.
(
    PROMPT,
    OUTPUT,
    LIMIT,
    SAMPLED,
    COMPUTED,
    COMMITTED,
    DRAFTS,
    RUN,
    DRAFTED_BY,
    BLOCKS,
    SLOT,
    FIRST_NS,
    LAST_NS,
    ARRIVAL_NS,
) = range(14)
COLUMNS = 14

# Entries of the cursor: the queue's ends, running requests, free slots, free blocks of cache.
HEAD, TAIL, RUNNING, FREE_SLOTS, FREE_BLOCKS = range(5)

# Entries of the limits.
SEATS, BUDGET, BLOCK_TOKENS, PREFILL_FIRST = range(4)

# Rows of what `look` returns.
NUMBER, AT_HAND, DRAFTS_NOW, COMMITTED_NOW, CONTEXT, LEFT, ROW, SLOT_NOW, BY = range(9)

WRONG = 1 << 40
"""Id of a draft token that the target does not write; the true token at offset o has id o."""


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
def _release(state: IntArray, cursor: IntArray, slots: IntArray, row: int) -> None:
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
            _release(state, cursor, slots, victim)
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


@compiled(
    "Tuple((i8[:,::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8, i8, i8))(i8[:,::1],"
    "i8[::1], i8[::1], i8[::1], i8[:,::1], i8[::1], i8[::1], i8, b1, i8[::1], i8[::1], f8[::1])"
)
def land(
    state: IntArray,
    running: IntArray,
    cursor: IntArray,
    slots: IntArray,
    table: IntArray,
    lens: IntArray,
    verified: IntArray,
    now_ns: int,
    visible: bool,
    len_counts: IntArray,
    gap_counts: IntArray,
    gap_sum_s: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, int, int, int]:
    """Write the step's tokens, and count verify lengths and gaps between outputs.

    Returns
    -------
    rows
        Shape (6, n): drafted by, proposed, verified, accepted, committed and visible draft ids of
        each request of the table.
    tokens, drafts
        Ids of committed tokens, and of whole drafts where they are ``visible``, in a row.
    done
        Rows of requests that ended.
    alive, offsets
        Rows of the others that got a token, and how many they have.
    firsts, accepted_tokens, committed_tokens
        Requests whose prefill ended; totals over the table.
    """
    n = table.shape[1]
    out = np.zeros((6, n), dtype=np.int64)
    room = 0
    for d in range(n):
        room += table[AT_HAND, d]
    tokens = np.empty(room + n, dtype=np.int64)
    drafts = np.empty(room if visible else 0, dtype=np.int64)
    n_running = cursor[RUNNING]
    done = np.empty(n_running, dtype=np.int64)
    alive = np.empty(n_running, dtype=np.int64)
    n_tokens, n_drafts, n_done, n_alive = 0, 0, 0, 0
    firsts, all_accepted, all_committed = 0, 0, 0
    d, kept = 0, 0
    for i in range(n_running):
        row = running[i]
        committed = state[row, COMMITTED]
        if d < n and table[ROW, d] == row:
            if verified[d] < 0:
                # No budget was left; its drafts stay as the plan cut them.
                state[row, DRAFTS] = min(state[row, DRAFTS], lens[d])
                state[row, RUN] = min(state[row, RUN], state[row, DRAFTS])
                running[kept] = row
                kept += 1
                d += 1
                continue
            len_counts[verified[d]] += 1
            at_hand, right = table[AT_HAND, d], state[row, RUN]
            accepted = min(right, verified[d])
            new = min(accepted + 1, state[row, OUTPUT] - committed)
            out[0, d] = table[BY, d]
            out[1, d] = at_hand
            out[2, d] = verified[d]
            out[3, d] = accepted
            out[4, d] = new
            for j in range(new):
                tokens[n_tokens + j] = committed + j
            n_tokens += new
            if visible:
                out[5, d] = at_hand
                for j in range(at_hand):
                    drafts[n_drafts + j] = committed + j if j < right else WRONG
                n_drafts += at_hand
            all_accepted += accepted
            all_committed += new
            d += 1
        elif state[row, COMPUTED] == state[row, PROMPT] + committed:
            new = 1
            firsts += 1
            if committed == 0:
                state[row, FIRST_NS] = now_ns
        else:
            running[kept] = row
            kept += 1
            continue
        if committed > 0:
            gap_s = (now_ns - state[row, LAST_NS]) / 1e9
            place = int(GAP_BINS_PER_E * math.log(max(gap_s, GAP_LEAST_S) / GAP_LEAST_S))
            gap_counts[min(place, GAP_BINS - 1)] += 1
            gap_sum_s[0] += gap_s
        committed += new
        state[row, COMMITTED] = committed
        state[row, COMPUTED] = state[row, PROMPT] + committed - 1
        state[row, LAST_NS] = now_ns
        state[row, DRAFTS] = 0
        state[row, RUN] = 0
        if committed >= state[row, OUTPUT]:
            _release(state, cursor, slots, row)
            done[n_done] = row
            n_done += 1
        else:
            running[kept] = row
            kept += 1
            alive[n_alive] = row
            n_alive += 1
    cursor[RUNNING] = kept
    for e in range(d, n):
        out[0, e] = -1  # lost its place in this step
    for e in range(d):
        if verified[e] < 0:
            out[0, e] = -1
    offsets = np.empty(n_alive, dtype=np.int64)
    for a in range(n_alive):
        offsets[a] = state[alive[a], COMMITTED]
    return (
        out,
        tokens[:n_tokens].copy(),
        drafts[:n_drafts].copy(),
        done[:n_done].copy(),
        alive[:n_alive].copy(),
        offsets,
        firsts,
        all_accepted,
        all_committed,
    )


@compiled("void(i8[:,::1], i8[::1], i8[::1], i8[::1], i8, i8)")
def take_drafts(
    state: IntArray, rows: IntArray, length: IntArray, run: IntArray, depth: int, step: int
) -> None:
    """Put new drafts at hand, at most ``depth`` tokens each."""
    for r in range(rows.shape[0]):
        row = rows[r]
        state[row, DRAFTS] = min(length[r], depth)
        state[row, RUN] = min(run[r], state[row, DRAFTS])
        state[row, DRAFTED_BY] = step


@compiled("void(i8[:,::1], i8[::1], f8[:,::1], f8[:,::1])")
def keep_confidence(
    state: IntArray, rows: IntArray, confidence: FloatArray, of_slot: FloatArray
) -> None:
    """Keep the drafter's confidence where the plan of the next step finds it."""
    for r in range(rows.shape[0]):
        slot = state[rows[r], SLOT]
        for i in range(confidence.shape[1]):
            of_slot[slot, i] = confidence[r, i]


@compiled("Tuple((i8[::1], i8[::1], i8[::1], f8[::1], f8[::1]))(i8[:,::1], f8[:,::1])")
def confident_candidates(
    table: IntArray, of_slot: FloatArray
) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
    """Return the fields of `Candidates` for chains, position by position, with confidence.

    Survival is what the drafter believes: the product of its confidence along the chain.
    """
    n, total = table.shape[1], 0
    for r in range(n):
        total += table[DRAFTS_NOW, r]
    request = np.empty(total, dtype=np.int64)
    parent = np.empty(total, dtype=np.int64)
    depth = np.empty(total, dtype=np.int64)
    survival = np.empty(total)
    confidence = np.empty(total)
    previous = np.full(n, -1)
    believed = np.ones(n)
    j = 0
    for i in range(of_slot.shape[1]):
        for r in range(n):
            if table[DRAFTS_NOW, r] > i:
                sure = of_slot[table[SLOT_NOW, r], i]
                believed[r] *= sure
                request[j] = r
                parent[j] = previous[r]
                depth[j] = i + 1
                survival[j] = believed[r]
                confidence[j] = sure
                previous[r] = j
                j += 1
    return request, parent, depth, survival, confidence
