"""What a router may know of one engine: its load, what a step costs, what its drafts are worth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities, FloatArray

if TYPE_CHECKING:
    from acclimate.controller.beliefs import Beliefs
    from acclimate.controller.keeper import PromiseKeeper

HEADROOM_RATIO = 0.05
"""The growth of a step's duration that still counts as none."""

_LEAST_STEPS = 20  # before that a step's duration is a guess
_Z = 1.96  # of a 95 % interval
_PROMPT = 256  # tokens of the prompt that the price of a prompt token is read from
_DIGITS = 4  # of acceptance
_WIDEST = 512  # drafts added to a step that headroom is looked for among


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


def engine_state(
    policy: Policy,
    capabilities: Capabilities,
    place: Place,
    load: Load,
    *,
    blocked_by: str | None = None,
) -> EngineState:
    """Return what a policy's beliefs say of its engine; it changes nothing.

    A policy that keeps no beliefs of step times and acceptance says nothing of them.

    Examples
    --------
    >>> from acclimate.controller.build import build_policy
    >>> from acclimate.controller.config import ControlConfig
    >>> engine = Capabilities(max_depth=2, depths=(0, 1, 2), free_drafts=True)
    >>> policy = build_policy(ControlConfig(), engine)
    >>> for step in range(60):
    ...     _ = policy.beliefs.latency.learn(1, step % 3, latency_ms=20.0 + 0.4 * (step % 3))
    >>> state = engine_state(policy, engine, Place(engine="a"), Load())
    >>> [round(ms, 1) for ms in state.step_ms], state.headroom_tokens
    ([20.0, 20.4, 20.8], 2)
    """
    beliefs: Beliefs | None = getattr(policy, "beliefs", None)
    state = EngineState(
        place=place,
        load=load,
        policy=policy.name,
        max_depth=capabilities.max_depth,
        blocked_by=blocked_by,
    )
    if beliefs is None:
        return state
    slots = _slots(policy, beliefs)
    if beliefs.latency.steps < _LEAST_STEPS:
        return msgspec.structs.replace(state, slots=slots)
    next_load = load.running + 1
    curve = _curve(beliefs, load, next_load, max(_WIDEST, capabilities.max_depth))
    rate = _rate(policy, beliefs, load)
    typical = typical_acceptance(slots, capabilities.max_depth)
    loads = _loads(next_load)
    return msgspec.structs.replace(
        state,
        slots=slots,
        rate_tokens_per_s=rate,
        step_ms=tuple(curve[: capabilities.max_depth + 1].tolist()),
        headroom_tokens=headroom(curve),
        loads=loads,
        joint_ms=tuple(_joint(beliefs, load, n, capabilities.max_depth) for n in loads),
        prompt_ms=_prompt_ms(beliefs, load, next_load),
        answer_tokens=_answer_tokens(policy),
        speedup=None if typical is None else _speedup(beliefs, load, typical, capabilities),
    )


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


def _slots(policy: Policy, beliefs: Beliefs) -> tuple[SlotState, ...]:
    promised = _targets(policy, beliefs)
    table, acceptance = beliefs.slots, beliefs.acceptance
    believed = acceptance.predict_slots()
    graded = (acceptance.table.weight.T[:, :, None] * acceptance.table.graded).sum(axis=0)
    tokens = graded.sum(axis=1).round(1).tolist()
    low, high = _wilson(believed, graded)
    q, below, above = (ends.round(_DIGITS).tolist() for ends in (believed, low, high))
    states = []
    for slot in table.open_slots():
        key = table.key(slot)
        if key is None:
            continue  # shared by many, and so of none
        states.append(
            SlotState(
                trust_domain=key[0],
                tenant=key[1],
                adapter=key[2],
                domain=key[3],
                graded_tokens=tokens[slot],
                conditional=tuple(q[slot]),
                low=tuple(below[slot]),
                high=tuple(above[slot]),
                running=table.live(slot),
                tpot_s=promised.get(slot),
            )
        )
    return tuple(states)


def _targets(policy: Policy, beliefs: Beliefs) -> dict[int, float]:
    """Return the mean TPOT target in seconds of the requests of each slot that have one."""
    keeper: PromiseKeeper | None = getattr(policy, "keeper", None)
    if keeper is None:
        return {}
    rows = beliefs.rows.alive()
    targets = keeper.ledger.tpot_s(rows)
    slots, known = beliefs.rows.slot[rows], np.isfinite(targets)
    return {int(s): float(targets[known & (slots == s)].mean()) for s in np.unique(slots[known])}


def _answer_tokens(policy: Policy) -> float | None:
    keeper: PromiseKeeper | None = getattr(policy, "keeper", None)
    return None if keeper is None else keeper.ledger.lengths.mean()


def _loads(next_load: int) -> tuple[int, ...]:
    """Return the loads at which step times are told, around the one that the engine has."""
    half = next_load // 2
    return tuple(sorted({max(half, 1), next_load, next_load + half + 1, 2 * next_load + 2}))


def _joint(beliefs: Beliefs, load: Load, requests: int, max_depth: int) -> tuple[float, ...]:
    curve = _curve(beliefs, load, requests, requests * max_depth)
    at = np.minimum(requests * np.arange(max_depth + 1), curve.shape[0] - 1)
    return tuple(curve[at].tolist())


def _prompt_ms(beliefs: Beliefs, load: Load, requests: int) -> float:
    """Return how much longer a step takes for each prompt token in it."""
    context = round(requests * load.context_tokens)
    plain, filled = (
        beliefs.latency.curve(requests, 0, prefill_tokens=tokens, context_tokens=context)[0]
        for tokens in (0, _PROMPT)
    )
    return max(float(filled - plain), 0.0) / _PROMPT


def _wilson(q: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the ends of a 95 % interval of a share; 0 and 1 without evidence."""
    known = np.maximum(n, 1e-9)
    middle = (q + _Z * _Z / (2.0 * known)) / (1.0 + _Z * _Z / known)
    half = _Z * np.sqrt(q * (1.0 - q) / known + (_Z / (2.0 * known)) ** 2)
    half /= 1.0 + _Z * _Z / known
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def _curve(beliefs: Beliefs, load: Load, requests: int, verified: int) -> FloatArray:
    curve = beliefs.latency.curve(
        requests, verified, context_tokens=round(requests * load.context_tokens)
    )
    return np.maximum(curve, 1e-3)


def _rate(policy: Policy, beliefs: Beliefs, load: Load) -> float | None:
    price = getattr(policy, "price", None)
    if price is None:
        return None
    n = max(load.running, 1)
    plain = n / float(_curve(beliefs, load, n, 0)[0])
    rate = 1000.0 * float(price.tokens_per_ms(n, plain))
    return rate if math.isfinite(rate) else None


def _speedup(
    beliefs: Beliefs, load: Load, typical: tuple[float, ...], capabilities: Capabilities
) -> float | None:
    depth = capabilities.max_depth
    if not depth:
        return None
    n = max(load.running, 1)
    curve = _curve(beliefs, load, n, n * depth)
    # The model's curve ends where nothing larger is kept apart.
    at = np.minimum(n * np.arange(depth + 1), curve.shape[0] - 1)
    tokens = 1.0 + np.concatenate([[0.0], survival_of_path(typical).cumsum()])
    speeds: FloatArray = tokens / curve[at]
    return float(speeds[1:].max() / speeds[0])
