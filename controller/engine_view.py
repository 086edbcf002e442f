"""What a policy's beliefs say of its engine, as a router may see it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from acclimate.controller.engine_state import (
    EngineState,
    Load,
    Place,
    SlotState,
    headroom,
    survival_of_path,
    typical_acceptance,
)
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities, FloatArray

if TYPE_CHECKING:
    from acclimate.controller.beliefs import Beliefs
    from acclimate.controller.keeper import PromiseKeeper

_LEAST_STEPS = 20  # before that a step's duration is a guess
_Z = 1.96  # of a 95 % interval
_DIGITS = 4  # of acceptance
_PROMPT = 256  # tokens of the prompt that the price of a prompt token is read from
_WIDEST = 512  # drafts added to a step that headroom is looked for among


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
    targets = keeper.ledger.table.tpot_s(rows)
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
    depths = np.arange(max_depth + 1)
    at = np.minimum(requests * depths, curve.shape[0] - 1)
    drafting_ms = beliefs.latency.drafting(requests, depths.astype(np.float64))
    return tuple((curve[at] + drafting_ms).tolist())


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
