"""Drafts at hand in a simulated engine, compiled: taken from the drafter, offered to the policy."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.simulation.batch_layout import (
    DRAFTED_BY,
    DRAFTS,
    DRAFTS_NOW,
    RUN,
    SLOT,
    SLOT_NOW,
)
from acclimate.predictors.compiled import compiled


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
