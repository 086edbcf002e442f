"""What the bridge knows of its engine, of a step between plan and outcome, and of its own drops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from acclimate.controller.records import IntArray
from acclimate.integrations.vllm.grading import Ids


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
    """A step between its plan and its outcome; arrays share the order of its decode requests."""

    step: int
    started_ns: int
    ids: list[str]
    slots: IntArray
    numbers: IntArray
    context_tokens: IntArray
    at_hand: IntArray
    drafted_by: IntArray
    planned: IntArray | None
    asked: int | None
    exempt: bool
    proposals: list[Ids] | None
    token: Any = None
    draft_depth: int = 0
    decode_requests: int = 0
    verified_tokens: int = 0
    prefill_tokens: int = 0
    context_total: int = 0
    sampled_rows: int = 0
    verified: list[int] = dataclasses.field(default_factory=list)
    excluded: list[int] = dataclasses.field(default_factory=list)
    gone: dict[str, str] = dataclasses.field(default_factory=dict)
    rows: list[Ids] = dataclasses.field(default_factory=list)
    raw: list[int] = dataclasses.field(default_factory=list)
    first_tokens: int = 0

    def exclude(self, rows: list[int]) -> None:
        """Say nothing of some requests: not scheduled after all, or gone before the outcome.

        Their rows stay, empty, so that an outcome's rows are the plan's.
        """
        self.excluded += rows
        self.at_hand[rows] = 0
        self.drafted_by[rows] = -1
        for row in rows:
            if self.verified:
                self.verified[row] = 0
            if self.proposals is not None:
                self.proposals[row] = ()


def prefill_forecast(
    running: Sequence[Any], waiting: Iterable[Any], seats: int, budget: int
) -> int:
    """Return the prompt tokens to expect: unfinished chunks, then waiting prompts, in budget."""
    tokens: int = sum(r.num_tokens - r.num_computed_tokens for r in running if r.is_prefill_chunk)
    for request in islice(waiting, max(0, seats - len(running))):
        if tokens >= budget:
            break
        tokens += request.num_tokens - request.num_computed_tokens
    return max(0, min(tokens, budget))
