"""What a request is promised: the class that it claims and the targets that it states, if it may."""

from __future__ import annotations

import dataclasses
from collections import Counter
from enum import StrEnum

from acclimate.controller.config import SloClass, SloConfig
from acclimate.controller.records import Slo


class Problem(StrEnum):
    """Why something that a client said of its request was not taken as it was said."""

    NOT_TEXT = "not_text"  # a label that is no string
    TOO_LONG = "too_long"
    UNPRINTABLE = "unprintable"
    NOT_A_NUMBER = "not_a_number"
    NOT_FINITE = "not_finite"
    NOT_POSITIVE = "not_positive"
    TOO_SHORT = "too_short"  # a target, raised to the shortest that is allowed
    TOO_FAR = "too_far"  # a target, lowered to one hour
    UNKNOWN_CLASS = "unknown_class"
    CLASS_DENIED = "class_denied"  # the tenant may not claim it
    TARGET_DENIED = "target_denied"  # the tenant may not state targets of its own
    PRIORITY_DENIED = "priority_denied"  # the tenant may not raise its priority
    PRIORITY_CUT = "priority_cut"  # beyond the levels that count


@dataclasses.dataclass(frozen=True, slots=True)
class Terms:
    """What a request was granted.

    Parameters
    ----------
    slo
        Its targets; None where there is none.
    slo_class
        The class, empty for none.
    importance
        What one of its tokens counts, against 1.
    """

    slo: Slo | None
    slo_class: str
    importance: float


def terms_of(
    config: SloConfig,
    *,
    tenant: str,
    claimed: str,
    own: Slo,
    priority: int,
    problems: Counter[Problem],
) -> Terms:
    """Return what a request is granted; what it may not have, it does without.

    Parameters
    ----------
    config
        Classes and permissions.
    tenant
        Who sends the request.
    claimed
        The class that it names, empty for none.
    own
        Targets that it states; each replaces the class's.
    priority
        The engine's: lower is sooner, 0 is usual. One level counts ``priority_factor`` times.
    problems
        Counts what was refused.

    Examples
    --------
    >>> config = SloConfig.model_validate({"classes": {"gold": {"tpot_ms": 30, "tenants": ["a"]}}})
    >>> problems = Counter()
    >>> for tenant in ("a", "b"):
    ...     terms = terms_of(config, tenant=tenant, claimed="gold", own=Slo(ttft_s=1.0),
    ...                      priority=0, problems=problems)
    ...     print(terms.slo_class, terms.slo.ttft_s, terms.slo.tpot_s)
    gold 1.0 0.03
     1.0 None
    >>> dict(problems)
    {<Problem.CLASS_DENIED: 'class_denied'>: 1}
    """
    name = _granted(config, tenant, claimed, problems)
    granted = config.classes.get(name, _NO_CLASS)
    if not _may(config.trusted_tenants, tenant):
        if own != _NO_TARGETS:
            problems[Problem.TARGET_DENIED] += 1
            own = _NO_TARGETS
        if priority < 0:
            problems[Problem.PRIORITY_DENIED] += 1
            priority = 0
    level = max(-config.priority_levels, min(priority, config.priority_levels))
    if level != priority:
        problems[Problem.PRIORITY_CUT] += 1
    slo = Slo(
        ttft_s=_target(own.ttft_s, granted.ttft_ms),
        tpot_s=_target(own.tpot_s, granted.tpot_ms),
        e2e_s=_target(own.e2e_s, granted.e2e_ms),
    )
    return Terms(
        slo=None if slo == _NO_TARGETS else slo,
        slo_class=name,
        importance=granted.weight * config.priority_factor**-level,
    )


_NO_CLASS, _NO_TARGETS = SloClass(), Slo()


def _granted(config: SloConfig, tenant: str, claimed: str, problems: Counter[Problem]) -> str:
    if claimed:
        known = config.classes.get(claimed)
        if known is None:
            problems[Problem.UNKNOWN_CLASS] += 1
        elif not _may(known.tenants, tenant):
            problems[Problem.CLASS_DENIED] += 1
        else:
            return claimed
    return config.default_class or ""


def _may(tenants: tuple[str, ...] | None, tenant: str) -> bool:
    return tenants is None or tenant in tenants


def _target(own_s: float | None, class_ms: float | None) -> float | None:
    if own_s is not None:
        return own_s
    return None if class_ms is None else class_ms / 1e3
