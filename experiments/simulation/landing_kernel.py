"""How a simulated engine writes a step's tokens, compiled: what was accepted, and who is done."""

from __future__ import annotations

import math

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.run_record import GAP_BINS, GAP_BINS_PER_E, GAP_LEAST_S
from acclimate.experiments.simulation.batch_layout import (
    AT_HAND,
    BY,
    COMMITTED,
    COMPUTED,
    DRAFTS,
    FIRST_NS,
    LAST_NS,
    OUTPUT,
    PROMPT,
    ROW,
    RUN,
    RUNNING,
    WRONG,
)
from acclimate.experiments.simulation.schedule_kernels import release
from acclimate.predictors.compiled import compiled


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
            release(state, cursor, slots, row)
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
