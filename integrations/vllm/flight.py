"""What the bridge knows of its engine, of a step between plan and outcome, and of its drops."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from acclimate.controller.records import IntArray, int_array
from acclimate.integrations.vllm.batch import Batch
from acclimate.integrations.vllm.grading import Ids
from acclimate.integrations.vllm.table import RequestTable

_NO_IDS: Ids = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the bridge must know of its engine.

    Parameters
    ----------
    depth
        The engine's ``num_speculative_tokens``.
    max_model_len
        Prompt and output tokens of a request at most.
    drafter_len
        Sequence length up to which the drafter works; above it the runner hands the whole batch
        drafts that are none. None where the runner has no such rule.
    drafter_extra
        Tokens that the drafter needs there besides ``depth``.
    ids_visible
        Whether draft token ids reach the scheduler.
    drafts_sampled
        Whether drafts of requests with a temperature are drawn at random.
    """

    depth: int
    max_model_len: int
    drafter_len: int | None = None
    drafter_extra: int = 0
    ids_visible: bool = False
    drafts_sampled: bool = False


@dataclasses.dataclass(slots=True)
class BridgeCounters:
    """What the bridge dropped or met, in counts that only rise."""

    requests: int = 0
    dropped_outcomes_finished: int = 0
    dropped_outcomes_preempted: int = 0
    unmatched_outputs: int = 0
    exempt_steps: int = 0
    bridge_faults: int = 0


@dataclasses.dataclass(slots=True)
class Flight:
    """A step between its plan and its outcome; arrays share the order of its batch.

    ``others`` are scheduled requests outside the batch: their prompt is in the step.
    ``proposals`` are the drafts that committed tokens may grade, None where there is nothing to
    grade; ``planned`` is None where the engine's own rule acts.
    """

    step: int
    started_ns: int
    batch: Batch
    context_tokens: IntArray
    at_hand: IntArray
    drafted_by: IntArray
    planned: IntArray | None
    planned_total: int
    asked: int | None
    exempt: bool
    proposals: list[Ids] | None
    context_total: int
    sampled_rows: int
    decode_requests: int
    token: Any = None
    draft_depth: int = 0
    verified_total: int = 0
    prefill_tokens: int = 0
    verified: IntArray = dataclasses.field(default_factory=int_array)
    excluded: list[int] = dataclasses.field(default_factory=list)
    gone: dict[str, str] = dataclasses.field(default_factory=dict)
    rows: Sequence[Ids] = ()
    raw: IntArray = dataclasses.field(default_factory=int_array)
    others: list[str] = dataclasses.field(default_factory=list)
    first_tokens: int = 0

    def scheduled(self, output: Any, table: RequestTable) -> None:
        """Take note of what the engine made of the plan; the output names the step later on."""
        self.token = output
        self.draft_depth = output.num_spec_tokens_to_schedule
        batch, tokens = self.batch, output.num_scheduled_tokens
        spec: Mapping[str, Ids] = output.scheduled_spec_decode_tokens
        if not batch.known <= tokens.keys():
            rows = [row for row, i in enumerate(batch.ids) if i not in tokens]
            self.exclude(rows)
            self.decode_requests -= len(rows)
            self.context_total -= int(self.context_tokens[rows].sum())
            self.sampled_rows -= int(table.sampled[batch.slots[rows]].sum())
        if self.decode_requests < len(tokens):
            self.others = [i for i in tokens if i not in batch.known]
        self.verified_total = sum(map(len, spec.values()))
        if self.planned is not None and self.verified_total == self.planned_total:
            # An engine can only cut what was planned: equal sums are equal rows.
            self.verified = self.planned
        else:
            lens = map(len, map(spec.get, batch.ids, repeat(_NO_IDS)))
            self.verified = np.fromiter(lens, dtype=np.int64, count=len(batch.ids))
            self.verified_total = int(self.verified.sum())
        decoded = self.decode_requests + self.verified_total
        self.prefill_tokens = output.total_num_scheduled_tokens - decoded

    def exclude(self, rows: list[int]) -> None:
        """Say nothing of some requests: not scheduled after all, or gone before the outcome.

        Their rows stay, empty, so that an outcome's rows are the plan's.
        """
        self.excluded += rows
        self.at_hand[rows] = 0
        self.drafted_by[rows] = -1
        if self.verified.shape[0]:
            self.verified = self.verified.copy()
            self.verified[rows] = 0
        if self.proposals is not None:
            for row in rows:
                self.proposals[row] = ()
