"""What came of a step, in the loop's terms, from what the engine did with it."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import IntArray, StepOutcome
from acclimate.integrations.vllm.flight import Flight
from acclimate.integrations.vllm.grading import DraftGrader


def outcome_of(
    flight: Flight, grader: DraftGrader, now_ns: int, latency_ns: int
) -> tuple[StepOutcome, list[str]]:
    """Grade a landed step's drafts, and say where the engine did not do what was asked.

    Parameters
    ----------
    flight
        The step, with its plan and the model's tokens.
    grader
        Keeps drafts that later tokens will grade.
    now_ns, latency_ns
        The loop's clock, and what the step took of it.
    """
    disobeyed: list[str] = []
    raw: IntArray = np.array(flight.raw, dtype=np.int64)
    scheduled: IntArray = np.array(flight.verified, dtype=np.int64)
    accepted = np.maximum(raw - 1, 0)
    if flight.planned is not None and np.count_nonzero(scheduled > flight.planned):
        row = int((scheduled > flight.planned).argmax())
        disobeyed.append(
            f"{flight.planned[row]} drafts were to be verified and {scheduled[row]} were"
        )
    if np.count_nonzero(accepted > scheduled):
        row = int((accepted > scheduled).argmax())
        disobeyed.append(f"{scheduled[row]} drafts were verified, {accepted[row]} accepted")
        accepted = np.minimum(accepted, scheduled)
    proposed, verified = flight.at_hand, scheduled
    invalid = flight.token.num_invalid_spec_tokens
    if invalid:
        # Drafts that the grammar forbids are neither accepted nor rejected.
        away: IntArray = np.array([invalid.get(i, 0) for i in flight.ids], dtype=np.int64)
        verified = np.maximum(verified - away, 0)
        proposed = np.maximum(proposed - away, verified)
    if 0 in flight.raw:
        verified = np.where(raw > 0, verified, 0)
    drafted_by = flight.drafted_by
    if flight.exempt:
        proposed = verified = accepted = np.zeros_like(verified)
        drafted_by = np.full_like(verified, -1)
    drafts = grader.grade(
        step=flight.step,
        slots=flight.slots,
        numbers=flight.numbers,
        drafted_by=drafted_by,
        proposed=proposed,
        verified=verified,
        accepted=accepted,
        tokens=flight.rows,
        proposals=flight.proposals,
    )
    outcome = StepOutcome(
        step=flight.step,
        now_ns=now_ns,
        latency_ns=latency_ns,
        decode_requests=flight.decode_requests,
        verified_tokens=flight.verified_tokens,
        prefill_tokens=flight.prefill_tokens,
        context_tokens=flight.context_total,
        sampled_rows=flight.sampled_rows,
        draft_depth=flight.draft_depth,
        requests=flight.numbers,
        committed=np.array([len(row) for row in flight.rows], dtype=np.int64),
        drafts=drafts,
        first_tokens=flight.first_tokens,
        exempt=flight.exempt,
        stock=flight.planned is None,
    )
    return outcome, disobeyed
