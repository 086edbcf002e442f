"""The requests of a simulated engine as arrays: who runs, who waits, what each has done."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.run_record import Gaps
from acclimate.experiments.simulation import (
    batch_layout,
    draft_kernels,
    landing_kernel,
    schedule_kernels,
)
from acclimate.experiments.simulation.limits import EngineLimits
from acclimate.experiments.workload import Workload


class Landing(NamedTuple):
    """What a step wrote; see `landing_kernel.land`."""

    rows: IntArray
    tokens: IntArray
    draft_ids: IntArray
    done: IntArray
    alive: IntArray
    offsets: IntArray
    first_tokens: int
    accepted: int
    committed: int


class BatchState:
    """State of all requests of a workload, and the compiled steps that change it.

    Parameters
    ----------
    workload
        What will be served.
    limits
        What the engine can hold.
    max_depth
        The engine's.
    """

    def __init__(self, workload: Workload, limits: EngineLimits, max_depth: int) -> None:
        n, seats = len(workload), limits.max_num_seqs
        blocks = -1 if limits.kv_blocks is None else limits.kv_blocks
        self.max_depth = max_depth
        self.gaps = Gaps()
        self.verify_lens: IntArray = np.zeros(max_depth + 1, dtype=np.int64)
        self._columns: IntArray = np.zeros((n, batch_layout.COLUMNS), dtype=np.int64)
        self._columns[:, batch_layout.PROMPT] = workload.prompt_tokens
        self._columns[:, batch_layout.OUTPUT] = workload.output_tokens
        self._columns[:, batch_layout.LIMIT] = workload.limit_tokens
        self._columns[:, batch_layout.ARRIVAL_NS] = -1
        if workload.sampled is not None:
            self._columns[:, batch_layout.SAMPLED] = workload.sampled
        self._running: IntArray = np.zeros(seats, dtype=np.int64)
        self._queue: IntArray = np.zeros(max(n, 1), dtype=np.int64)
        self._slots: IntArray = np.arange(seats - 1, -1, -1, dtype=np.int64)
        self._cursor: IntArray = np.array([0, 0, 0, seats, blocks], dtype=np.int64)
        self._limits: IntArray = np.array(
            [seats, limits.token_budget, limits.block_tokens, limits.prefill_first],
            dtype=np.int64,
        )
        self._confidence: FloatArray = np.zeros((seats, max_depth))

    def submit(self, row: int, arrival_ns: int) -> None:
        """Put a request at the end of the queue."""
        self._columns[row, batch_layout.ARRIVAL_NS] = arrival_ns
        tail = self._cursor[batch_layout.TAIL]
        self._queue[tail] = row
        self._cursor[batch_layout.TAIL] = tail + 1

    def slot(self, row: int) -> int:
        """Return where a request's drafts are graded."""
        return int(self._columns[row, batch_layout.SLOT])

    def look(self) -> tuple[IntArray, int, int]:
        """Return the decoding requests, the prefill to expect, and how many wait."""
        return schedule_kernels.look(
            self._columns, self._running, self._queue, self._cursor, self._limits, self.max_depth
        )

    def schedule(
        self, table: IntArray, lens: IntArray
    ) -> tuple[IntArray, IntArray, int, int, int, int, int]:
        """Give out a step's tokens; see `schedule_kernels.schedule`."""
        return schedule_kernels.schedule(
            self._columns,
            self._running,
            self._queue,
            self._cursor,
            self._slots,
            self._limits,
            table,
            lens,
        )

    def land(
        self, table: IntArray, lens: IntArray, verified: IntArray, now_ns: int, *, visible: bool
    ) -> Landing:
        """Write a step's tokens; see `landing_kernel.land`."""
        return Landing._make(
            landing_kernel.land(
                self._columns,
                self._running,
                self._cursor,
                self._slots,
                table,
                lens,
                verified,
                now_ns,
                visible,
                self.verify_lens,
                self.gaps.counts,
                self.gaps.sum_s,
            )
        )

    def take_drafts(
        self,
        rows: IntArray,
        length: IntArray,
        run: IntArray,
        depth: int,
        step: int,
        confidence: FloatArray | None = None,
    ) -> None:
        """Put new drafts at hand, at most ``depth`` tokens each."""
        if confidence is not None:
            draft_kernels.keep_confidence(self._columns, rows, confidence, self._confidence)
        draft_kernels.take_drafts(self._columns, rows, length, run, depth, step)

    def candidates(
        self, table: IntArray
    ) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
        """Return the fields of `Candidates`, confidence included, for drafts at hand."""
        return draft_kernels.confident_candidates(table, self._confidence)

    def sent(self) -> tuple[IntArray, IntArray]:
        """Return the rows that were submitted, and their columns."""
        rows: IntArray = np.flatnonzero(self._columns[:, batch_layout.ARRIVAL_NS] >= 0)
        return rows, self._columns[rows]
