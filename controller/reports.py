"""What a policy says of its beliefs: alarms, and an account of itself for people and trackers."""

from __future__ import annotations

import msgspec


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A detected change of one slot's acceptance, of all slots together, or of all steps' length.

    ``before`` and ``after`` are the estimated acceptance on both sides of the change,
    ``tokens_since`` the graded tokens of the slot since then, ``statistic`` the log of the evidence;
    the last two are None where the detector does not tell them. An alarm of all slots follows the
    alarm of the slot that completed it, and names that slot.

    Of the length of steps ``before`` and ``after`` are ratios of seen to expected lengths,
    ``steps_since`` the steps since then; there is no slot (-1). ``returned`` says of a
    slot that its acceptance is again what it was before an earlier change.
    """

    step: int
    slot: int
    label: str
    signal: str
    before: float
    after: float
    graded_tokens: int
    tokens_since: float | None = None
    statistic: float | None = None
    steps_since: float | None = None
    returned: bool = False


class SlotReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed and was seen of one slot's acceptance, over its recent graded tokens.

    ``graded_tokens`` and ``accepted_tokens`` are counts since the start; ``predicted``, ``seen``
    (conditional acceptance, pooled over positions) and ``brier`` are discounted means, None before
    the first graded token; ``conditional`` is the learned q per position.
    """

    label: str
    graded_tokens: int
    accepted_tokens: int
    predicted: float | None
    seen: float | None
    brier: float | None
    conditional: tuple[float, ...]


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """What plans that did not act would have made, since the start.

    Speeds are decode tokens per second of the same ``steps``; ``speed_ratio`` is planned over actual,
    above 1 if the plans are better. All are None before the first step whose planned duration can be
    told; ``unknown_steps`` counts those where it cannot.
    """

    steps: int
    unknown_steps: int
    tokens_per_s: float | None = None
    planned_tokens_per_s: float | None = None
    speed_ratio: float | None = None


class ClassReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the promises of one class of service.

    Of the requests with targets that ended since the start: how many were ``judged``, met all
    targets, and missed which. Of those alive: how many there are, how many of them have lost a
    target, what they owe together, what their twins in the engine without speculation have written,
    and by how much they lead these, together and at least (None before any has written).
    """

    label: str
    judged: int
    met: int
    ttft_missed: int
    tpot_missed: int
    e2e_missed: int
    alive: int
    lost: int
    debt_tokens: float
    least_lead_tokens: float | None
    lead_tokens: float | None = None
    twin_tokens: float | None = None


class TenantReport(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's account since the start.

    ``work_tokens`` are token positions that the target computed for it. ``imposed_ms`` is the delay
    that its drafts brought upon requests of others, ``suffered_ms`` what those of others brought
    upon its own, both summed over requests. ``ahead_tokens`` is how far it is ahead of the tenant
    that was served least among those with requests alive, 0 for one without.
    """

    label: str
    alive: int
    requests: int
    drafted_tokens: int
    verified_tokens: int
    accepted_tokens: int
    committed_tokens: int
    work_tokens: int
    imposed_ms: float
    suffered_ms: float
    ahead_tokens: float


class ImposedDelay(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds by which one tenant's drafts delayed another tenant's requests, summed over these."""

    by: str
    on: str
    milliseconds: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's account of itself, for people and trackers.

    ``latency_error_ratio`` is the mean |predicted - seen| / seen step latency, ``marginal_gain``
    the realised minus the required acceptance of tokens admitted at the margin; both discounted,
    None before any evidence. ``shadow`` is there in shadow mode only; classes, tenants and the
    largest delays between tenants only where a policy keeps such accounts.
    """

    slots: tuple[SlotReport, ...] = ()
    latency_error_ratio: float | None = None
    marginal_gain: float | None = None
    shadow: ShadowReport | None = None
    classes: tuple[ClassReport, ...] = ()
    tenants: tuple[TenantReport, ...] = ()
    delays: tuple[ImposedDelay, ...] = ()
