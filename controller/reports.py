"""What a policy says of its beliefs: alarms, and an account of itself for people and trackers."""

from __future__ import annotations

import msgspec


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A detected change of one slot's acceptance, or of all slots together.

    ``before`` and ``after`` are the estimated acceptance on both sides of the change,
    ``tokens_since`` the graded tokens of the slot since then, ``statistic`` the log of the evidence;
    the last two are None where the detector does not tell them. An alarm of all slots follows the
    alarm of the slot that completed it, and names that slot.
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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's account of itself, for people and trackers.

    ``latency_error_ratio`` is the mean |predicted - seen| / seen step latency, ``marginal_gain``
    the realised minus the required acceptance of tokens admitted at the margin; both discounted,
    None before any evidence. ``shadow`` is there in shadow mode only.
    """

    slots: tuple[SlotReport, ...] = ()
    latency_error_ratio: float | None = None
    marginal_gain: float | None = None
    shadow: ShadowReport | None = None
