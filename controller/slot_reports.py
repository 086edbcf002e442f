"""An account of every traffic class: what was predicted of its acceptance, and what was seen."""

from __future__ import annotations

from acclimate.controller.records import FloatArray
from acclimate.controller.reports import SlotReport
from acclimate.controller.slots import SlotTable
from acclimate.predictors.calibration import Calibration


def slot_reports(
    slots: SlotTable, calibration: Calibration, conditional: FloatArray | None = None
) -> tuple[SlotReport, ...]:
    """Return a report of every open slot; the shared one only if it has seen traffic.

    Parameters
    ----------
    slots, calibration
        The slots, and how good predictions were in each.
    conditional
        Shape (n_slots, max_depth): learned q per position; None where positions are not told apart.
    """
    reports = []
    for slot in slots.open_slots():
        means = calibration.means(slot) or (None, None, None)
        if means[0] is None and not slot:
            continue
        reports.append(
            SlotReport(
                label=slots.label(slot),
                graded_tokens=int(calibration.graded_tokens[slot]),
                accepted_tokens=int(calibration.accepted_tokens[slot]),
                predicted=means[0],
                seen=means[1],
                brier=means[2],
                conditional=() if conditional is None else tuple(conditional[slot].tolist()),
            )
        )
    return tuple(reports)
