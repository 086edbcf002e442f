"""What sending a request to an engine costs, in tokens: its own, and those of others there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from acclimate.controller.engine_state import (
    EngineState,
    SlotState,
    survival_of_path,
    typical_acceptance,
)
from acclimate.controller.pace import Crowd, paces_ms
from acclimate.controller.records import FloatArray, RequestInfo

_GROWTH = 0.25  # by which a batch may grow while the request is served
_ALIKE = 1.0  # requests like this one that are sent before anybody sees it there
_SPREAD = 0.3  # standard deviation of the log of a pace around what is predicted
_DELAY = 0.25  # what a token's time counts that nobody promised, against a token that is lost


class Cost(NamedTuple):
    """What an engine's having a request costs, all but the first in tokens.

    Parameters
    ----------
    tpot_s
        Time per token that the request should see there, with the load to come.
    lost
        Tokens of the request itself that should miss its target.
    lost_by_others
        Those of the others there that should miss theirs, and would not without it.
    delay
        The time that it and the others take, beyond what is lost: in tokens at the pace that each
        was promised.
    """

    tpot_s: float
    lost: float
    lost_by_others: float
    delay: float

    @property
    def tokens(self) -> float:
        """The sum: a delay that breaks no promise counts for little."""
        return self.lost + self.lost_by_others + _DELAY * self.delay


def cost_of(
    request: RequestInfo,
    engine: EngineState,
    slot: SlotState | None,
    *,
    answer_tokens: float,
    usual_s: float,
) -> Cost:
    """Return what it costs to send a request to an engine, with the load to come.

    The engine is looked at with its batch a quarter larger and one more request like this one, since
    others will be sent before this one has ended. The others are those that would be there without
    the request. While it is served, each of them writes its tokens a little more slowly; the share
    of the tokens that miss their target because of that is lost.

    Parameters
    ----------
    request
        To be sent.
    engine
        Its ``joint_ms`` must be known.
    slot
        What is believed of the request's acceptance; None if nothing is.
    answer_tokens
        Tokens that its answer should get; see `answer_length`.
    usual_s
        The pace that counts as promised where nothing was.
    """
    others = _others(engine)
    # By class the load is as old as the state; in sum it is that of now.
    held = engine.load.running + engine.load.waiting
    scale = (1.0 + _GROWTH) * held / max(sum(each.running for each in others), 1)
    counts = np.array([_ALIKE, *(scale * each.running for each in others)])
    survival = np.array([_survival(each, engine.max_depth) for each in (slot, *others)])
    after = counts.copy()
    after[0] += 1.0
    prompts = {"prompt_tokens": float(request.prompt_tokens), "answer_tokens": answer_tokens}
    before_s = paces_ms(engine, Crowd(counts, survival), **prompts) / 1e3
    after_s = paces_ms(engine, Crowd(after, survival), **prompts) / 1e3
    target_s = request.slo.tpot_s if request.slo is not None else None
    targets = [target_s, *(each.tpot_s for each in others)]
    own_s = float(after_s[0])
    written = counts * answer_tokens * own_s / after_s  # by those of each class, meanwhile
    lost = np.array(
        [
            _missed(slower, target) - _missed(pace, target)
            for pace, slower, target in zip(before_s, after_s, targets, strict=True)
        ]
    )
    promised_s = np.array([usual_s if target is None else target for target in targets])
    delay = float(answer_tokens * own_s / promised_s[0])
    delay += float((written * np.maximum(after_s - before_s, 0.0) / promised_s).sum())
    return Cost(
        own_s,
        answer_tokens * _missed(own_s, target_s),
        float((written * np.maximum(lost, 0.0)).sum()),
        delay,
    )


def answer_length(request: RequestInfo, engines: Sequence[EngineState]) -> float:
    """Return how long a request's answer should get: as others do, and not longer than it may.

    >>> from acclimate.controller.engine_state import Load, Place
    >>> request = RequestInfo(request=1, prompt_tokens=9, max_tokens=500)
    >>> engine = EngineState(place=Place(engine="a"), load=Load(), answer_tokens=80.0)
    >>> answer_length(request, [engine]), answer_length(request, [])
    (80.0, 500.0)
    """
    known = [each.answer_tokens for each in engines if each.answer_tokens is not None]
    most = float(max(request.max_tokens, 1))
    return min(most, max(sum(known) / len(known), 1.0)) if known else most


def _others(engine: EngineState) -> list[SlotState]:
    """Return who is on an engine, by class; one class of the usual acceptance where it is not told."""
    known = [slot for slot in engine.slots if slot.running > 0]
    held = engine.load.running + engine.load.waiting
    if known or not held:
        return known
    usual = typical_acceptance(engine.slots, engine.max_depth) or ()
    return [SlotState(conditional=usual, running=held)]


def _survival(slot: SlotState | None, depth: int) -> FloatArray:
    survival = np.zeros(depth)
    if slot is not None:
        own = survival_of_path(slot.conditional)[:depth]
        survival[: own.size] = own
    return survival


def _missed(pace_s: float, target_s: float | None) -> float:
    """Return how likely a target is missed at a predicted pace."""
    if target_s is None:
        return 0.0
    return 0.5 * math.erfc(math.log(target_s / pace_s) / (_SPREAD * math.sqrt(2.0)))
