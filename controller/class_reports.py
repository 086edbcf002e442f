"""What became of the promises to each class of service, in numbers for people and trackers."""

from __future__ import annotations

import numpy as np

from acclimate.controller.promise_table import PromiseTable
from acclimate.controller.promises import PromiseTally
from acclimate.controller.reports import ClassReport
from acclimate.controller.slo_kernels import (
    E2E_S,
    FIRST_RATE,
    FREE,
    KIND,
    LOST,
    STATE,
    TOKEN_RATE,
    TWIN,
)


def class_reports(
    table: PromiseTable, tally: PromiseTally, *, twins: bool = False
) -> tuple[ClassReport, ...]:
    """Return an account of every class that has been judged or has requests with targets.

    With ``twins``, also of every class with requests whose twin has written.
    """
    sums, counts = table.sums[: table.last_row + 1], table.counts[: table.last_row + 1]
    alive = counts[:, STATE] != FREE
    targeted = alive & (sums[:, (TOKEN_RATE, FIRST_RATE, E2E_S)] > 0.0).any(axis=1)
    lost = targeted & (counts[:, LOST] > 0)
    reports = []
    for kind, label in enumerate(tally.labels):
        own = alive & (counts[:, KIND] == kind)
        ended = tally.counts_of(label)
        paired = own & (sums[:, TWIN] > 0.0)
        seen = ended["judged"] or (own & targeted).any() or (twins and paired.any())
        if not seen:
            continue
        twinned = np.flatnonzero(paired)
        lead = table.lead_tokens(twinned)
        reports.append(
            ClassReport(
                label=label,
                alive=int((own & targeted).sum()),
                lost=int((own & lost).sum()),
                debt_tokens=float(table.debt_tokens(np.flatnonzero(own)).sum()),
                least_lead_tokens=float(lead.min()) if lead.size else None,
                lead_tokens=float(lead.sum()) if lead.size else None,
                twin_tokens=float(table.twin_tokens(twinned).sum()) if lead.size else None,
                **ended,
            )
        )
    return tuple(reports)
