"""What the adaptive arm believed when: its logged inputs are fed to a fresh policy of its kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from acclimate.controller.events import (
    AddEvent,
    AlarmEvent,
    FreeEvent,
    ObserveEvent,
    PlanEvent,
)
from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    DraftOutcomes,
    FloatArray,
    StepContext,
    StepPlan,
)
from acclimate.controller.reports import Alarm
from acclimate.experiments.demo.arms import ArmRun
from acclimate.experiments.demo.stream import CHAT, Stream
from acclimate.integrations.vllm.closed_loop import Job

_TOLERANCE = 0.05
_STREAK_TOKENS = 200


@dataclasses.dataclass(frozen=True, slots=True)
class GradedToken:
    """One draft token whose fate became known, and what had been believed of it.

    Parameters
    ----------
    round, time_s
        When: the round, and the seconds of service of the adaptive arm.
    label, shifted
        The declared domain, and whether it is ``chat`` after its content has shifted.
    position
        1 for the first draft token.
    predicted
        The slot's probability of acceptance given that all tokens before were accepted.
    right
        Whether it was.
    """

    round: int
    time_s: float
    label: str
    shifted: bool
    position: int
    predicted: float
    right: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StepPoint:
    """One step of the adaptive arm, for the picture: load, cap, and drafts verified per request."""

    round: int
    time_s: float
    requests: int
    depth: int
    verified_per_request: float


@dataclasses.dataclass(slots=True)
class Learning:
    """Everything that the adaptive arm learned and chose, in order.

    ``chosen`` holds, per label and concurrency, the requests that had drafts, their drafts at hand
    and those that were verified, shape (3,). ``recovery`` is None where the arm was never right for long enough; ``noticed`` counts graded
    tokens of ``chat`` from the shift to the first alarm, None without one. Both concern the first
    round, in which nothing was known before.
    """

    tokens: list[GradedToken] = dataclasses.field(default_factory=list)
    steps: list[StepPoint] = dataclasses.field(default_factory=list)
    shifts_s: list[float] = dataclasses.field(default_factory=list)
    alarms: list[tuple[float, Alarm]] = dataclasses.field(default_factory=list)
    rounds_s: list[float] = dataclasses.field(default_factory=list)
    chosen: dict[tuple[str, int], FloatArray] = dataclasses.field(default_factory=dict)
    shift_tokens: int = 0
    recovery: int | None = None
    noticed: int | None = None

    def of(self, label: str) -> list[GradedToken]:
        """Return the graded tokens under one label."""
        return [token for token in self.tokens if token.label == label]


def relive(policy: Policy, runs: Sequence[ArmRun], stream: Stream) -> Learning:
    """Feed the inputs of the adaptive arm's rounds to ``policy`` and note what it believes.

    Parameters
    ----------
    policy
        Fresh, and built as the arm's own was.
    runs
        The arm's rounds, in order.
    stream
        What was sent.
    """
    learning = Learning()
    began_s = 0.0
    shifted_keys = _shifted(stream)
    for run in runs:
        learning.rounds_s.append(began_s)
        jobs: dict[int, Job] = {}
        parts = [run.run] if run.sequel is None else [run.run, run.sequel]
        waiting = iter(result.job for part in parts for result in part.results)
        curve: list[tuple[FloatArray, int]] = []
        began_ns, now_s, noticed = None, began_s, None
        seen_since_shift = 0
        for event in run.events:
            match event:
                case AddEvent(request=request):
                    jobs[request.request] = next(waiting)
                    policy.admit(request)
                case PlanEvent(context=context, decision=decision):
                    began_ns = context.now_ns if began_ns is None else began_ns
                    now_s = began_s + (context.now_ns - began_ns) / 1e9
                    policy.plan(context)
                    n = context.requests.shape[0]
                    mean = float(decision.verify_lens.mean()) if n else 0.0
                    learning.steps.append(StepPoint(run.round, now_s, n, decision.depth, mean))
                    _note_choice(learning.chosen, context, decision, jobs)
                case ObserveEvent(outcome=outcome):
                    beliefs = _conditional(policy)
                    fresh = list(_graded(outcome.drafts, jobs, beliefs, shifted_keys))
                    learning.tokens += [
                        dataclasses.replace(token, round=run.round, time_s=now_s) for token in fresh
                    ]
                    if len(learning.shifts_s) < len(learning.rounds_s) and any(
                        token.shifted for token in fresh
                    ):
                        learning.shifts_s.append(now_s)
                    if len(learning.shifts_s) == len(learning.rounds_s):
                        count = sum(token.label == CHAT for token in fresh)
                        seen_since_shift += count
                        if CHAT in beliefs:
                            survival: FloatArray = np.cumprod(beliefs[CHAT], dtype=np.float64)
                            curve.append((survival, count))
                    policy.observe(outcome)
                case AlarmEvent(alarm=alarm):
                    learning.alarms.append((now_s, alarm))
                    if noticed is None and alarm.label == CHAT and seen_since_shift:
                        noticed = seen_since_shift
                case FreeEvent(request=request):
                    policy.forget(request)
        if run is runs[0]:
            learning.noticed = noticed
            learning.shift_tokens = seen_since_shift
            learning.recovery = _tokens_to_recover(curve, hindsight(learning.tokens))
        began_s = now_s
    learning.rounds_s.append(began_s)
    return learning


def _note_choice(
    chosen: dict[tuple[str, int], FloatArray],
    context: StepContext,
    decision: StepPlan,
    jobs: dict[int, Job],
) -> None:
    n = context.requests.shape[0]
    for i in np.flatnonzero(context.drafts):
        key = (jobs[int(context.requests[i])].label, n)
        sums = chosen.setdefault(key, np.zeros(3))
        sums += (1, context.drafts[i], decision.verify_lens[i])


def hindsight(tokens: Sequence[GradedToken]) -> FloatArray:
    """Return survival by position over all of the shifted traffic, shape (max position,)."""
    shifted = [token for token in tokens if token.shifted]
    if not shifted:
        return np.zeros(0)
    positions = np.array([token.position for token in shifted]) - 1
    right = np.array([token.right for token in shifted], dtype=np.float64)
    graded = np.bincount(positions)
    accepted = np.bincount(positions, right)
    survival: FloatArray = np.cumprod(accepted / np.maximum(graded, 1))
    return survival


def _tokens_to_recover(curve: list[tuple[FloatArray, int]], truth: FloatArray) -> int | None:
    """Return the graded tokens until every survival is near the truth and stays so for a while.

    >>> right, wrong, truth = np.array([0.5]), np.array([0.9]), np.array([0.52])
    >>> _tokens_to_recover([(wrong, 30), (right, 150), (right, 50)], truth)
    30
    >>> _tokens_to_recover([(wrong, 30), (right, 150)], truth) is None
    True
    """
    passed = streak = 0
    for survival, count in curve:
        m = min(survival.shape[0], truth.shape[0])
        near = m > 0 and bool((np.abs(survival[:m] - truth[:m]) <= _TOLERANCE).all())
        streak = streak + count if near else 0
        passed += count
        if streak >= _STREAK_TOKENS:
            return passed - streak
    return None


def _shifted(stream: Stream) -> frozenset[str]:
    keys = [job.key for job in (*stream.jobs, *stream.sequel.jobs) if job.label == CHAT]
    return frozenset(keys[keys.index(stream.shift) :])


def _conditional(policy: Policy) -> dict[str, FloatArray]:
    return {slot.label: np.array(slot.conditional) for slot in policy.report().slots}


def _graded(
    drafts: DraftOutcomes,
    jobs: dict[int, Job],
    beliefs: dict[str, FloatArray],
    shifted_keys: frozenset[str],
) -> Iterator[GradedToken]:
    """Give every committed token that graded a draft for the first time."""
    for i in range(drafts.request.shape[0]):
        if not drafts.fresh[i]:
            continue
        job = jobs[int(drafts.request[i])]
        believed = beliefs.get(job.label)
        last = int(drafts.start[i] + drafts.graded[i])
        right_until = int(drafts.start[i] + drafts.matched[i])
        for position in range(last - int(drafts.fresh[i]) + 1, last + 1):
            known = believed is not None and position <= believed.shape[0]
            yield GradedToken(
                round=0,
                time_s=0.0,
                label=job.label,
                shifted=job.key in shifted_keys,
                position=position,
                predicted=float(believed[position - 1]) if known else float("nan"),  # type: ignore[index]
                right=position <= right_until,
            )
