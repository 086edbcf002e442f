"""Notices that a slot's acceptance has shifted: one River detector per slot, on residuals."""

from __future__ import annotations

import dataclasses

from river.drift import ADWIN


@dataclasses.dataclass(frozen=True, slots=True)
class Shift:
    """A detected shift of a stream's mean, and after how many updates of that stream."""

    before: float
    after: float
    updates: int


class SlotDrift:
    """ADWIN per slot over the mean residual (outcome - prediction) of each step.

    One update per slot and step, not per token: tokens of a step are not independent, and the
    cost per step stays fixed. An alarm is a report; nothing is forgotten because of it.

    Parameters
    ----------
    delta
        ADWIN's confidence.

    Examples
    --------
    >>> drift = SlotDrift()
    >>> [step for step in range(1000) if drift.update(0, 0.0 if step < 500 else 0.5)][:1]
    [543]
    """

    def __init__(self, *, delta: float = 0.002) -> None:
        self.delta = delta
        self._detectors: dict[int, ADWIN] = {}
        self._updates: dict[int, int] = {}

    def update(self, slot: int, residual: float) -> Shift | None:
        """Feed one step's mean residual of a slot; return the shift that it reveals, if any."""
        detector = self._detectors.get(slot)
        if detector is None:
            detector = self._detectors[slot] = ADWIN(delta=self.delta)
            self._updates[slot] = 0
        before = detector.estimation
        detector.update(residual)
        self._updates[slot] += 1
        if not detector.drift_detected:
            return None
        return Shift(before=before, after=detector.estimation, updates=self._updates[slot])

    def restart(self, slot: int | None = None) -> None:
        """Start one slot's detector afresh, or all."""
        if slot is None:
            self._detectors.clear()
            self._updates.clear()
        else:
            self._detectors.pop(slot, None)
            self._updates.pop(slot, None)
