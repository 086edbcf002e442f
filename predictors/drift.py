"""Notices that a slot's acceptance has shifted: one River detector per slot, on residuals."""

from __future__ import annotations

import dataclasses

import numpy as np
from river.drift import ADWIN

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray

_LEAST_TOKENS = 8.0  # a detector is fed with the mean of so many
_FED_PER_STEP = 2
_CLOCK = 4  # updates between two looks of a detector


@dataclasses.dataclass(frozen=True, slots=True)
class Shift:
    """A detected shift of a stream's mean, and after how many updates of that stream."""

    before: float
    after: float
    updates: int


class SlotDrift:
    """ADWIN per slot over the mean residual (outcome - prediction) of its latest few tokens.

    Tokens of a step are not independent, and the cost per step is bounded: residuals are summed
    until a slot has a handful, and in one step a few detectors are fed at most, those of the slots
    with the most tokens. An alarm is a report; nothing is forgotten because of it.

    Parameters
    ----------
    n_slots
        Slots watched.
    delta
        ADWIN's confidence.

    Examples
    --------
    >>> drift = SlotDrift(n_slots=1)
    >>> def feed(residual):
    ...     return drift.update(np.array([8.0]), np.array([8.0 * residual]))
    >>> [step for step in range(1000) if feed(0.0 if step < 500 else 0.5)][:1]
    [519]
    """

    def __init__(self, n_slots: int, *, delta: float = 0.002) -> None:
        self.delta = delta
        self._pending = np.zeros((2, n_slots))  # tokens, and their summed residual
        self._detectors: dict[int, ADWIN] = {}
        self._updates: dict[int, int] = {}

    def update(self, tokens: FloatArray, residuals: FloatArray) -> list[tuple[int, Shift]]:
        """Add a step's tokens and summed residuals per slot; return slots with their shifts.

        Parameters
        ----------
        tokens, residuals
            Shape (n_slots,).
        """
        shifts = []
        for slot in _due(self._pending, tokens, residuals).tolist():
            residual = float(self._pending[1, slot] / self._pending[0, slot])
            self._pending[:, slot] = 0.0
            shift = self._feed(slot, residual)
            if shift is not None:
                shifts.append((slot, shift))
        return shifts

    def restart(self, slot: int | None = None) -> None:
        """Start one slot's detector afresh, or all."""
        if slot is None:
            self._pending[:] = 0.0
            self._detectors.clear()
            self._updates.clear()
        else:
            self._pending[:, slot] = 0.0
            self._detectors.pop(slot, None)
            self._updates.pop(slot, None)

    def _feed(self, slot: int, residual: float) -> Shift | None:
        detector = self._detectors.get(slot)
        if detector is None:
            detector = self._detectors[slot] = ADWIN(delta=self.delta, clock=_CLOCK)
            self._updates[slot] = 0
        before = detector.estimation
        detector.update(residual)
        self._updates[slot] += 1
        if not detector.drift_detected:
            return None
        return Shift(before=before, after=detector.estimation, updates=self._updates[slot])


@compiled("i8[::1](f8[:,::1], f8[:], f8[:])")
def _due(pending: FloatArray, tokens: FloatArray, residuals: FloatArray) -> IntArray:
    """Add up, and return the slots with enough tokens, those with the most first, a few at most."""
    slots = np.empty(_FED_PER_STEP, dtype=np.int64)
    found = 0
    for slot in range(tokens.shape[0]):
        pending[0, slot] += tokens[slot]
        pending[1, slot] += residuals[slot]
        if pending[0, slot] < _LEAST_TOKENS:
            continue
        place = min(found, _FED_PER_STEP - 1)
        if found == _FED_PER_STEP and pending[0, slot] <= pending[0, slots[place]]:
            continue
        while place > 0 and pending[0, slot] > pending[0, slots[place - 1]]:
            slots[place] = slots[place - 1]
            place -= 1
        slots[place] = slot
        found = min(found + 1, _FED_PER_STEP)
    return slots[:found]
