"""Promises and tenants as metrics: a handful per class and per tenant, both bounded."""

from __future__ import annotations

from acclimate.controller.reports import ClassReport, Report, TenantReport
from acclimate.integrations.metric_names import BoundedNames


def service_metrics(
    report: Report, classes: BoundedNames, tenants: BoundedNames
) -> dict[str, float | None]:
    """Return names and values of a report's classes, tenants and delays; None has no value yet.

    Counts are since the start. Milliseconds are summed over the requests that were delayed.

    Parameters
    ----------
    report
        Says what there is.
    classes, tenants
        Which of them get a name in metrics.

    Examples
    --------
    >>> from acclimate.controller.reports import ImposedDelay
    >>> report = Report(delays=(ImposedDelay(by="batch", on="chat", milliseconds=5.0),))
    >>> service_metrics(report, BoundedNames(9), BoundedNames(9))
    {'tenants/batch/slows/chat_ms': 5.0}
    """
    values: dict[str, float | None] = {}
    for service in report.classes:
        name = classes.of(service.label)
        if name is not None:
            values |= {f"slo/{name}/{key}": value for key, value in _of_class(service).items()}
    for tenant in report.tenants:
        name = tenants.of(tenant.label)
        if name is not None:
            values |= {f"tenants/{name}/{key}": value for key, value in _of_tenant(tenant).items()}
    for delay in report.delays:
        by, on = tenants.of(delay.by), tenants.of(delay.on)
        if by is not None and on is not None:
            values[f"tenants/{by}/slows/{on}_ms"] = delay.milliseconds
    return values


def _of_class(service: ClassReport) -> dict[str, float | None]:
    return {
        "attainment": service.met / service.judged if service.judged else None,
        "judged": service.judged,
        "ttft_missed": service.ttft_missed,
        "tpot_missed": service.tpot_missed,
        "e2e_missed": service.e2e_missed,
        "alive": service.alive,
        "lost": service.lost,
        "debt_tokens": service.debt_tokens,
        "least_lead_tokens": service.least_lead_tokens,
        "lead_tokens": service.lead_tokens,
        "twin_tokens": service.twin_tokens,
    }


def _of_tenant(tenant: TenantReport) -> dict[str, float]:
    return {
        "drafted_tokens": tenant.drafted_tokens,
        "verified_tokens": tenant.verified_tokens,
        "accepted_tokens": tenant.accepted_tokens,
        "committed_tokens": tenant.committed_tokens,
        "work_tokens": tenant.work_tokens,
        "ahead_tokens": tenant.ahead_tokens,
        "imposed_ms": tenant.imposed_ms,
        "suffered_ms": tenant.suffered_ms,
    }
