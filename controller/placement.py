"""Where to send a request: advice over several engines, as a ranking with reasons.

Hard rules come first and are never traded: an engine that is not where the request may be, that may
not serve its trust domain, or whose batch holds another trust domain although the request asks to be
apart, is not eligible. Nobody is rejected here: who asks decides what to do where no engine is left.

Among the others, the one is best where the request costs least, its own tokens and those of others
counted together: tokens that should miss their target with it there and with the load to come, time
that everybody takes, and headroom that others could have used. A request whose drafts are accepted, or
that must be fast, costs least where there is headroom for its drafts. One whose drafts are refused would
take that place from others and gain nothing by it, so it goes where there is no headroom anyway and
decodes plainly, as long as neither it nor anybody there is slowed beyond a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec
import numpy as np

from acclimate.controller.engine_state import (
    EngineState,
    SlotState,
    survival_of_path,
    typical_acceptance,
)
from acclimate.controller.placement_cost import answer_length, cost_of
from acclimate.controller.records import FloatArray, RequestInfo

_ROOM = 0.25  # what a token counts that others could have gained, against one that is lost


class Unfit(StrEnum):
    """Why an engine may not have a request, in the order in which it is asked."""

    RESIDENCY = "residency"  # it is not where the request may be
    TRUST_DOMAIN = "trust_domain"  # it may not serve the request's trust domain
    SHARED_BATCH = "shared_batch"  # its batch holds another trust domain, and that was ruled out


class Fit(StrEnum):
    """What an engine would be to a request."""

    HEADROOM = "headroom"  # there is room for its drafts, and they earn more than others' would
    GIVES_ROOM = "gives_room"  # there is room, but other requests would earn more by it
    PLAIN = "plain"  # it would decode plainly: no headroom, or speculation does not pay
    UNKNOWN = "unknown"  # too little is known of the engine or of the request's acceptance


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One engine for one request.

    Parameters
    ----------
    engine
        Its name.
    reason
        Why it may not have the request; None if it may.
    fit
        What it would be to the request; None if it may not have it.
    depth
        Drafts of the request that fit into its share of the headroom.
    net_tokens
        Draft tokens per step that the request would gain in its share of the headroom, less what
        typical traffic would gain there; both at the lower ends of what is believed.
    tpot_s
        Time per token that the request should see there with the load to come; None if that is not
        known.
    meets
        Whether that is within the request's target; None if there is no telling.
    lost_tokens, lost_by_others
        Tokens that should miss their target: the request's own, and those of others that would not
        without it.
    cost_tokens
        What engines are ranked by: those two, and what delay and headroom count. None if it is not
        known.
    queued
        Whether it would have to wait for a seat.
    """

    engine: str
    reason: Unfit | None = None
    fit: Fit | None = None
    depth: int = 0
    net_tokens: float = 0.0
    tpot_s: float | None = None
    meets: bool | None = None
    lost_tokens: float = 0.0
    lost_by_others: float = 0.0
    cost_tokens: float | None = None
    queued: bool = False


def unfit(
    engine: EngineState,
    *,
    trust_domain: str = "",
    residency: Sequence[str] = (),
    separate: bool = False,
) -> Unfit | None:
    """Return why an engine may not have a request, or None.

    Parameters
    ----------
    engine
        As it is now.
    trust_domain
        The request's.
    residency
        Places of which the engine must be in one; empty for anywhere. An engine that does not say
        where it is, is nowhere.
    separate
        Whether the request must not share a batch with another trust domain.

    Examples
    --------
    >>> from acclimate.controller.engine_state import Load, Place
    >>> engine = EngineState(place=Place(engine="a", residency=("eu", "de")), load=Load())
    >>> unfit(engine, residency=("fr", "de")), unfit(engine, residency=("us",))
    (None, <Unfit.RESIDENCY: 'residency'>)
    """
    place, batch = engine.place, engine.load.batch_domains
    if residency and not set(residency) & set(place.residency):
        return Unfit.RESIDENCY
    if place.trust_domains and trust_domain not in place.trust_domains:
        return Unfit.TRUST_DOMAIN
    if separate and any(domain != trust_domain for domain in batch):
        return Unfit.SHARED_BATCH
    return None


def advise(
    request: RequestInfo,
    engines: Sequence[EngineState],
    *,
    residency: Sequence[str] = (),
    separate: bool = False,
) -> tuple[Advice, ...]:
    """Return all engines for a request, the best first, those that may not have it last.

    The order: engines with a free seat; then by `Advice.cost_tokens`; then by load; then as given. An
    engine of which too little is known counts as the best of those that are known would at its load, so
    that it gets its share and becomes known.

    A request's acceptance is that of its traffic class on the engine, else elsewhere, else that of
    its domain over all tenants; never that of another trust domain.

    Parameters
    ----------
    request
        As its metadata was read; its trust domain, tenant, adapter, domain and SLO count.
    engines
        As they are now; their names must differ.
    residency, separate
        See `unfit`.

    Raises
    ------
    ValueError
        Two engines share a name.

    Examples
    --------
    >>> from acclimate.controller.engine_state import Load, Place
    >>> def engine(name, running, headroom, step_ms, joint_ms):
    ...     return EngineState(
    ...         place=Place(engine=name, seats=64), load=Load(running=running), max_depth=2,
    ...         step_ms=step_ms, loads=(running + 1, 2 * running + 2), joint_ms=joint_ms,
    ...         headroom_tokens=headroom, speedup=1.5 if headroom else 0.9,
    ...         slots=(SlotState(domain="code", graded_tokens=900.0, conditional=(.9, .9),
    ...                          low=(.88, .88), high=(.92, .92)),
    ...                SlotState(domain="prose", graded_tokens=900.0, conditional=(.3, .3),
    ...                          low=(.28, .28), high=(.32, .32))))
    >>> engines = [
    ...     engine("busy", 40, 0, (34.0, 35.0, 36.0), ((34.0, 68.0, 102.0),) * 2),
    ...     engine("idle", 20, 60, (30.0,) * 3, ((30.0, 32.0, 34.0),) * 2)]
    >>> for domain in ("code", "prose"):
    ...     ranked = advise(
    ...         RequestInfo(request=1, prompt_tokens=9, max_tokens=50, domain=domain), engines)
    ...     print(domain, [(a.engine, str(a.fit)) for a in ranked])
    code [('idle', 'headroom'), ('busy', 'plain')]
    prose [('busy', 'plain'), ('idle', 'gives_room')]
    """
    names = [engine.place.engine for engine in engines]
    if len(set(names)) < len(names):
        raise ValueError(f"engines must have names of their own, got {', '.join(sorted(names))}")
    reasons = [
        unfit(engine, trust_domain=request.trust_domain, residency=residency, separate=separate)
        for engine in engines
    ]
    fit = [engine for engine, reason in zip(engines, reasons, strict=True) if reason is None]
    everywhere = tuple(slot for engine in fit for slot in engine.slots)
    plain = [engine.step_ms[0] / 1e3 for engine in fit if engine.step_ms]
    usual_s = sum(plain) / len(plain) if plain else 1.0
    answer_tokens = answer_length(request, fit)
    advices = [
        Advice(engine=engine.place.engine, reason=reason)
        if reason is not None
        else _weigh(request, engine, everywhere, answer_tokens, usual_s)
        for engine, reason in zip(engines, reasons, strict=True)
    ]
    loads = [
        (engine.load.running + engine.load.waiting) / max(engine.place.seats, 1)
        for engine in engines
    ]
    known = [
        (advice.cost_tokens, load)
        for advice, load in zip(advices, loads, strict=True)
        if advice.cost_tokens is not None
    ]
    least, beside = min(known, default=(0.0, 0.0))

    def rank(at: int) -> tuple[float, ...]:
        advice, load = advices[at], loads[at]
        cost = advice.cost_tokens
        if cost is None:
            cost = least + answer_tokens * (load - beside)
        # Rounded, so that the order does not hang on the last bit.
        return advice.reason is not None, advice.queued, round(cost, 6), load, at

    return tuple(advices[at] for at in sorted(range(len(advices)), key=rank))


def _weigh(
    request: RequestInfo,
    engine: EngineState,
    everywhere: tuple[SlotState, ...],
    answer_tokens: float,
    usual_s: float,
) -> Advice:
    """Return what an eligible engine would be to a request."""
    load, place = engine.load, engine.place
    queued = load.waiting > 0 or load.running >= place.seats
    slot = _slot_of(request, engine.slots) or _slot_of(request, everywhere)
    if not engine.joint_ms or engine.headroom_tokens is None:
        return Advice(engine=place.engine, fit=Fit.UNKNOWN, queued=queued)
    room = _room(engine)
    depth = int(np.floor(room.sum() + 1e-9))
    net, expected = 0.0, 1.0
    usual = typical_acceptance(everywhere, engine.max_depth, surely=True)
    if slot is not None and usual is not None:
        sure = survival_of_path(slot.low)[: room.size]
        net = float(sure @ room[: sure.size]) - float(survival_of_path(usual)[: room.size] @ room)
        expected += float(sure @ room[: sure.size])
    if not depth:
        kind = Fit.PLAIN
    elif slot is None:
        kind = Fit.UNKNOWN
    else:
        kind = Fit.HEADROOM if net >= 0 else Fit.GIVES_ROOM
    cost = cost_of(request, engine, slot, answer_tokens=answer_tokens, usual_s=usual_s)
    tpot_s = request.slo.tpot_s if request.slo is not None else None
    return Advice(
        engine=place.engine,
        fit=kind,
        depth=depth,
        net_tokens=net,
        tpot_s=cost.tpot_s,
        meets=None if tpot_s is None else cost.tpot_s <= tpot_s,
        lost_tokens=cost.lost,
        lost_by_others=cost.lost_by_others,
        cost_tokens=cost.tokens - _ROOM * net * answer_tokens / expected,
        queued=queued,
    )


def _room(engine: EngineState) -> FloatArray:
    """Return which part of each draft position fits into a request's share of the headroom."""
    room = np.zeros(engine.max_depth)
    if engine.headroom_tokens is None or engine.speculation_pays is False or engine.blocked_by:
        return room
    share = engine.headroom_tokens / (engine.load.running + 1)
    return np.clip(share - np.arange(engine.max_depth), 0.0, 1.0)


def _slot_of(request: RequestInfo, slots: tuple[SlotState, ...]) -> SlotState | None:
    """Return what is known of a request's acceptance: its class's, else its domain's."""
    known = [
        slot
        for slot in slots
        if slot.graded_tokens > 0
        and (slot.trust_domain, slot.adapter, slot.domain)
        == (request.trust_domain, request.adapter, request.domain)
    ]
    own = [slot for slot in known if slot.tenant == request.tenant]
    return max(own or known, key=lambda slot: slot.graded_tokens, default=None)
