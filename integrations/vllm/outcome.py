"""What came of a step, in the loop's terms, from what the engine did with it."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import IntArray, StepOutcome, int_array
from acclimate.integrations.vllm.flight import Flight
from acclimate.integrations.vllm.grading import DraftGrader, Flat, Ids, flat_ids
from acclimate.predictors.compiled import compiled


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
    batch, scheduled, proposed = flight.batch, flight.verified, flight.at_hand
    accepted, verified, surplus = _counts(flight.raw, scheduled)
    planned = flight.planned
    if planned is not None and scheduled is not planned and np.any(scheduled > planned):
        row = int((scheduled > planned).argmax())
        disobeyed.append(f"{planned[row]} drafts were to be verified and {scheduled[row]} were")
    if surplus >= 0:
        disobeyed.append(
            f"{scheduled[surplus]} drafts were verified, {flight.raw[surplus] - 1} accepted"
        )
    invalid = flight.token.num_invalid_spec_tokens
    if invalid:
        # Drafts that the grammar forbids are neither accepted nor rejected.
        away = int_array([invalid.get(i, 0) for i in batch.ids])
        verified = np.maximum(verified - away, 0)
        proposed = np.maximum(proposed - away, verified)
    drafted_by = flight.drafted_by
    if flight.exempt:
        proposed = verified = accepted = np.zeros_like(verified)
        drafted_by = np.full_like(verified, -1)
    # The engine has cut the rows at stops since they were sampled.
    tokens = flat_ids(flight.rows)
    drafts = grader.grade(
        step=flight.step,
        slots=batch.slots,
        numbers=batch.numbers,
        drafted_by=drafted_by,
        proposed=proposed,
        verified=verified,
        accepted=accepted,
        tokens=tokens,
        proposals=_cut_proposals(flight.proposals, flight.at_hand, verified),
    )
    outcome = StepOutcome(
        step=flight.step,
        now_ns=now_ns,
        latency_ns=latency_ns,
        decode_requests=flight.decode_requests,
        verified_tokens=flight.verified_total,
        prefill_tokens=flight.prefill_tokens,
        context_tokens=flight.context_total,
        sampled_rows=flight.sampled_rows,
        draft_depth=flight.draft_depth,
        requests=batch.numbers,
        committed=tokens[1],
        drafts=drafts,
        first_tokens=flight.first_tokens,
        exempt=flight.exempt,
        stock=flight.planned is None,
    )
    return outcome, disobeyed


def _cut_proposals(
    proposals: list[Ids] | None, at_hand: IntArray, verified: IntArray
) -> Flat | None:
    """Return the ids of drafts that were not verified in full: no other can be graded later."""
    if proposals is None:
        return None
    cut = (at_hand > verified).nonzero()[0].tolist()
    lens = np.zeros_like(verified)
    ids, lens[cut] = flat_ids([proposals[row] for row in cut])
    return ids, lens


@compiled("Tuple((i8[::1], i8[::1], i8))(i8[::1], i8[::1])")
def _counts(raw: IntArray, scheduled: IntArray) -> tuple[IntArray, IntArray, int]:
    """Return accepted and verified drafts, and the first row that accepted more than there were.

    Of a request without an outcome nothing was verified.
    """
    accepted, verified = np.empty_like(raw), np.empty_like(raw)
    surplus = -1
    for r in range(raw.shape[0]):
        accepted[r] = max(raw[r] - 1, 0)
        verified[r] = scheduled[r] if raw[r] > 0 else 0
        if accepted[r] > scheduled[r]:
            accepted[r] = scheduled[r]
            surplus = r if surplus < 0 else surplus
    return accepted, verified, surplus
