"""What policies believed around a swap of the drafter: a real engine's outcomes, lived anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from acclimate.controller.events import AddEvent, Event, FreeEvent, ObserveEvent, PlanEvent
from acclimate.controller.policy import Policy
from acclimate.controller.records import Change, DraftOutcomes, FloatArray, int_array
from acclimate.experiments.lab.recovery import Episode, RecoveryMeter, survival_beliefs

LABEL = "swap"
"""Domain that all requests of the experiment declare: one slot, one truth before and after."""


@dataclasses.dataclass(frozen=True, slots=True)
class SwapRun:
    """What the control loop was told around one swap.

    Parameters
    ----------
    before, after
        Events up to the swap, and from then on.
    swapped_ns
        When it was, on the loop's clock.
    max_depth
        The engine's.
    """

    before: Sequence[Event]
    after: Sequence[Event]
    swapped_ns: int
    max_depth: int


@dataclasses.dataclass(frozen=True, slots=True)
class SwapRecovery:
    """How soon one policy was right again after one swap, in graded tokens.

    Parameters
    ----------
    recovered
        Until every survival was within 0.05 of the truth for 200 tokens; None if it never was.
    noticed
        Until the first alarm; None without one.
    graded
        Graded after the swap in all.
    """

    recovered: int | None
    noticed: int | None
    graded: int


def hindsight(events: Sequence[Event], max_depth: int) -> FloatArray:
    """Return survival by position over everything that was graded, shape (max_depth,).

    Positions that nothing reached have the survival of the last one that was.
    """
    graded, matched = np.zeros(max_depth), np.zeros(max_depth)
    for event in events:
        if isinstance(event, ObserveEvent):
            _tally(event.outcome.drafts, graded, matched)
    conditional = np.divide(matched, graded, out=np.ones(max_depth), where=graded > 0)
    survival: FloatArray = np.cumprod(conditional)
    return survival


def relive(
    run: SwapRun, policy: Policy, *, at_swap: Callable[[Policy], None] = lambda policy: None
) -> SwapRecovery:
    """Feed a run's inputs to a fresh policy, and see when its beliefs are right after the swap.

    Drafts and their fates are the engine's, whatever the policy would have chosen: greedy tokens
    are the same, and hindsight grades what was not verified.

    Parameters
    ----------
    policy
        Fresh.
    at_swap
        What is done to the policy at the swap: nothing, where it is kept secret.
    """
    events = [*run.before, *run.after]
    requests = [e.request.request for e in events if isinstance(e, AddEvent)]
    label_of = int_array([0] * max(requests, default=0))
    truth = hindsight(run.after, run.max_depth)[None, :]
    swapped_s = run.swapped_ns / 1e9
    episode = Episode(label=LABEL, begin_s=swapped_s, end_s=swapped_s)
    meter = RecoveryMeter([LABEL], label_of, lambda now_s: truth, [episode], run.max_depth)
    for index, event in enumerate(events):
        if index == len(run.before):
            at_swap(policy)
        match event:
            case AddEvent(request=request):
                policy.admit(request)
            case PlanEvent(context=context):
                policy.plan(context)
            case ObserveEvent(outcome=outcome):
                now_s = outcome.now_ns / 1e9
                beliefs = survival_beliefs(policy, run.max_depth)
                if index >= len(run.before):
                    meter.grade(beliefs, outcome.drafts, now_s)
                alarms = policy.observe(outcome)
                if index >= len(run.before):
                    meter.notice(alarms, now_s)
            case FreeEvent(request=number):
                policy.forget(number)
    found = meter.episodes[0]
    return SwapRecovery(found.recovered, found.noticed, found.graded)


def declare_swap(policy: Policy) -> None:
    """Tell a policy of the swap, as the loop does when an operator announces a new drafter."""
    policy.declare(Change(kind="draft"))


def _tally(drafts: DraftOutcomes, graded: FloatArray, matched: FloatArray) -> None:
    """Add one step's graded draft tokens to counts per position."""
    for start, count, right in zip(
        drafts.start.tolist(), drafts.graded.tolist(), drafts.matched.tolist(), strict=True
    ):
        graded[start : start + count] += 1
        matched[start : start + right] += 1
