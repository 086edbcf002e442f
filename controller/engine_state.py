"""What a router may know of one engine: its load, what a step costs, what its drafts are worth."""

from __future__ import annotations

import msgspec
import numpy as np

from acclimate.controller.records import FloatArray

HEADROOM_RATIO = 0.05
"""The growth of a step's duration that still counts as none."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Who an engine is and whom it may serve.

    Parameters
    ----------
    engine
        A name that is unique among the engines of a router.
    curve_key
        What its step times depend on: device, model, version, drafting method and the like.
    trust_domains
        Whose requests it may serve; empty for all.
    residency
        Where the engine is, in the operator's words (``eu``, ``de``); empty if nobody said.
    seats
        Requests that may run at once.
    """

    engine: str
    curve_key: str = ""
    trust_domains: tuple[str, ...] = ()
    residency: tuple[str, ...] = ()
    seats: int = 1


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine holds right now.

    Parameters
    ----------
    running, waiting
        Requests with a seat, and without.
    context_tokens
        Tokens attended to by those that run, on average.
    batch_domains
        Trust domains of those that run or wait.
    """

    running: int = 0
    waiting: int = 0
    context_tokens: float = 0.0
    batch_domains: tuple[str, ...] = ()


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed of the acceptance of one traffic class.

    Parameters
    ----------
    graded_tokens
        Graded draft tokens that the beliefs rest on.
    conditional, low, high
        q per position with the ends of its 95 % interval (Wilson); 0 to 1 where nothing was graded.
    running
        Requests of this class that the engine holds.
    tpot_s
        The mean of their TPOT targets; None where none has one.
    """

    trust_domain: str = ""
    tenant: str = ""
    adapter: str = ""
    domain: str = ""
    graded_tokens: float = 0.0
    conditional: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    running: int = 0
    tpot_s: float | None = None


class EngineState(msgspec.Struct, frozen=True, kw_only=True):
    """One engine as a router may see it; read-only, and a moment old.

    Parameters
    ----------
    policy
        Who decides on the engine.
    max_depth
        The deepest draft.
    blocked_by
        Why the engine's own rule acts instead of the policy; None while the policy acts.
    rate_tokens_per_s
        g: decode tokens per second at this load; None until it is known.
    step_ms
        Durations of a step with one request more than now and 0, 1, … ``max_depth`` verified drafts;
        empty until they are known.
    headroom_tokens
        Draft tokens that can be added to that step until it takes longer by more than
        `HEADROOM_RATIO`; at most 512. None until it is known.
    loads, joint_ms
        Durations of steps at other loads: ``joint_ms[i][k]`` of one in which ``loads[i]`` requests
        verify k drafts each; ``loads`` rise. Empty until they are known.
    prompt_ms
        Milliseconds that a prompt token adds to a step.
    answer_tokens
        Tokens of an answer on average; None until it is known.
    speedup
        Decode speed at the best depth that is not 0 over that at depth 0, for the engine's own mix of
        traffic at this load; None until it is known.
    slots
        What is believed of acceptance.
    """

    place: Place
    load: Load
    policy: str = ""
    max_depth: int = 0
    blocked_by: str | None = None
    rate_tokens_per_s: float | None = None
    step_ms: tuple[float, ...] = ()
    headroom_tokens: int | None = None
    loads: tuple[int, ...] = ()
    joint_ms: tuple[tuple[float, ...], ...] = ()
    prompt_ms: float = 0.0
    answer_tokens: float | None = None
    speedup: float | None = None
    slots: tuple[SlotState, ...] = ()

    @property
    def speculation_pays(self) -> bool | None:
        """Whether speculating makes this engine faster at its load; None if nobody knows."""
        return None if self.speedup is None else self.speedup > 1.0


def headroom(step_ms: FloatArray, ratio: float = HEADROOM_RATIO) -> int:
    """Return how many tokens can be added before a step takes longer by more than a ratio.

    Parameters
    ----------
    step_ms
        Durations with 0, 1, … tokens added.

    >>> headroom(np.array([20.0, 20.5, 20.9, 26.0, 20.9]))
    2
    """
    over = np.flatnonzero(step_ms > (1.0 + ratio) * step_ms[0])
    return int(over[0]) - 1 if over.size else step_ms.shape[0] - 1


def typical_acceptance(
    slots: tuple[SlotState, ...], max_depth: int, *, surely: bool = False
) -> tuple[float, ...] | None:
    """Return q per position over all slots, by their evidence; None where nothing was graded.

    Parameters
    ----------
    slots
        Of one engine or of several.
    max_depth
        Positions to tell of.
    surely
        Whether to take the lower ends of intervals.

    >>> typical_acceptance((SlotState(graded_tokens=10.0, conditional=(0.5,)),
    ...                     SlotState(graded_tokens=30.0, conditional=(0.9,))), max_depth=1)
    (0.8,)
    """
    known = [slot for slot in slots if slot.graded_tokens > 0 and slot.conditional]
    if not known:
        return None
    weights = np.array([slot.graded_tokens for slot in known])
    q = np.zeros((len(known), max_depth))
    for row, slot in enumerate(known):
        own = (slot.low if surely else slot.conditional)[:max_depth]
        q[row, : len(own)] = own
    return tuple((weights @ q / weights.sum()).tolist())


def survival_of_path(conditional: tuple[float, ...]) -> FloatArray:
    """Return the survival of a path from its conditional acceptances.

    >>> survival_of_path((0.5, 0.5)).tolist()
    [0.5, 0.25]
    """
    q: FloatArray = np.array(conditional, dtype=np.float64)
    return q.cumprod()
