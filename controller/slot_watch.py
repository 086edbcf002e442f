"""Watches the acceptance of every traffic class: from when on, how rarely to alarm, and what of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.controller.reports import Alarm
from acclimate.controller.slots import SlotTable
from acclimate.predictors.calibration import Calibration
from acclimate.predictors.common_shift import CommonShift
from acclimate.predictors.drift import (
    ALARM_EVERY_TOKENS,
    Shift,
    SlotDrift,
    alarm_every_tokens,
)

SLOT_SIGNAL, COMMON_SIGNAL = "acceptance", "acceptance_of_all"
"""What an alarm is of: acceptance of one slot, or of all that are served."""

_REFERENCE_TOKENS = 200  # what a reference for drift is made of
_RATE_KNOWN_S = 1.0  # engine time after which tokens per second are known
_IDLE_STEPS = 1_000  # steps without a token after which a slot has no say in what all slots do


class SlotWatch:
    """`SlotDrift` on every slot that has served enough for a reference, and on all of them.

    Parameters
    ----------
    slots
        Which are open, and what they are called.
    calibration
        How many tokens of each were graded.
    alarms_per_day
        False alarms per day of engine time, as if all tokens were one slot's.
    """

    def __init__(self, slots: SlotTable, calibration: Calibration, alarms_per_day: float) -> None:
        n_slots = slots.capacity
        self.drift = SlotDrift(n_slots)
        self.common = CommonShift(n_slots, within_steps=_IDLE_STEPS)
        self._slots, self._calibration = slots, calibration
        self._alarms_per_day = alarms_per_day
        self.tokens = 0  # graded, of all slots
        self._busy_s = 0.0  # engine time
        self._watched_from = np.zeros(n_slots, dtype=np.int64)
        self._looked_at = np.zeros(n_slots, dtype=np.int64)  # graded tokens at the latest look
        self._served_at = np.zeros(n_slots, dtype=np.int64)  # step of the latest look with new ones
        self._unwatched = {0}  # slots whose reference is still to come

    def anew(self) -> None:
        """Measure drift from now on: what was before is known to be over."""
        self.common.restart()
        for slot in self._slots.open_slots():
            self.open_slot(slot)

    def open_slot(self, slot: int) -> None:
        """Wait for enough tokens to freeze a new reference of a slot."""
        self.drift.restart(slot)
        self._unwatched.add(slot)
        self._watched_from[slot] = self._calibration.graded_tokens[slot]

    def spend(self, latency_ns: int | None) -> None:
        """Count a step's time, where it is known."""
        self._busy_s += latency_ns / 1e9 if latency_ns else 0.0

    def look(self, step: int, believed: Callable[[], FloatArray]) -> None:
        """Begin to watch slots with enough tokens, and see which are served and how fast.

        ``believed`` returns the acceptance that is expected now, shape (n_slots, max_depth).
        """
        graded = self._calibration.graded_tokens
        fresh = graded - self._looked_at
        self._served_at[fresh != 0] = step
        self.tokens += int(np.maximum(fresh, 0).sum())
        self._looked_at[:] = graded
        self._set_threshold()
        if not self._unwatched:
            return
        seen = graded - self._watched_from
        ready = [s for s in self._unwatched if seen[s] >= _REFERENCE_TOKENS]
        if not ready:
            return
        references = believed()
        for slot in ready:
            self.drift.watch(slot, references[slot])
            self._unwatched.remove(slot)

    def alarm_every(self, events: int) -> float | None:
        """Return how many of some events should lie between two false alarms; None if unknown.

        ``events`` is how many there were so far.
        """
        if self._busy_s < _RATE_KNOWN_S or not events:
            return None
        every = alarm_every_tokens(self._alarms_per_day, events / self._busy_s)
        return max(every, ALARM_EVERY_TOKENS)

    def alarms(self, step: int, slot: int, shift: Shift, *, returned: bool) -> list[Alarm]:
        """Return a slot's alarm, and that of all slots if this one completes it."""
        served = self._served_at > step - _IDLE_STEPS
        watched = sum(self.drift.watches(s) for s in np.flatnonzero(served).tolist())
        fell = shift.after < shift.before
        signals = [SLOT_SIGNAL]
        if self.common.add(step, slot, fell=fell, watched=watched):
            signals.append(COMMON_SIGNAL)
        return [
            slot_alarm(self._slots, self._calibration, step, slot, shift, signal, returned=returned)
            for signal in signals
        ]

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {
            "drift": self.drift.state(),
            "common": self.common.state(),
            "busy_s": self._busy_s,
            "tokens": self.tokens,
            "watched_from": self._watched_from.copy(),
            "looked_at": self._looked_at.copy(),
            "served_at": self._served_at.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`; slots and calibration are loaded already."""
        self._watched_from = np.array(state["watched_from"], dtype=np.int64)
        self.drift.restart()
        self.common.restart()
        if "drift" in state:  # older snapshots are without
            self.drift.load(state["drift"])
            self.common.load(state["common"])
            self._busy_s, self.tokens = float(state["busy_s"]), int(state["tokens"])
            self._looked_at = np.array(state["looked_at"], dtype=np.int64)
            self._served_at = np.array(state["served_at"], dtype=np.int64)
        self._unwatched = {s for s in self._slots.open_slots() if not self.drift.watches(s)}
        self._set_threshold()

    def _set_threshold(self) -> None:
        """Turn alarms per day into tokens."""
        self.drift.expect_alarms(self.alarm_every(max(self.tokens, 1)) or ALARM_EVERY_TOKENS)


def slot_alarm(
    slots: SlotTable,
    calibration: Calibration,
    step: int,
    slot: int,
    shift: Shift,
    signal: str,
    *,
    returned: bool = False,
) -> Alarm:
    """Return the alarm of a slot's shift.

    Parameters
    ----------
    slots, calibration
        Tell the slot's label, and how many tokens were graded of it.
    signal
        `SLOT_SIGNAL` or `COMMON_SIGNAL`.
    returned
        Whether what came is known from before.
    """
    return Alarm(
        step=step,
        slot=slot,
        label=slots.label(slot),
        signal=signal,
        before=shift.before,
        after=shift.after,
        graded_tokens=int(calibration.graded_tokens[slot]),
        tokens_since=shift.tokens_since,
        statistic=shift.statistic,
        returned=returned,
    )
