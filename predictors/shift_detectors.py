"""Our drift detectors as River detectors: one value at a time, usable without the rest."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base

from acclimate.predictors import shift_kernels as kernels
from acclimate.predictors.drift import (
    ALARM_EVERY_TOKENS,
    REFERENCE_TOKENS,
    SMALLEST_SHIFT,
    TYPICAL_SHIFT,
    Shift,
    SlotDrift,
)
from acclimate.predictors.shift_latency import LatencyDrift

_LONE = -1
# River gives tags to estimators only, and a drift detector is none.
_CHECKS_THAT_DO_NOT_APPLY = frozenset({"check_tags"})
_STATE_VERSION = 1


class AcceptanceShiftDetector(base.DriftDetector):
    """Detects a shift of a rate, in either direction, with one threshold for all rates.

    A stream of outcomes, 0 or 1, is watched against the rate that it had; or, with ``expected``,
    against what somebody predicted of it. See `SlotDrift` for the statistic. Where outcomes come
    in groups that have rates of their own, as the tokens of a request do, pass the ``group``, or
    every new group is a shift.

    After an alarm the reference is the rate since the change: one alarm per change.

    Parameters
    ----------
    alarm_every
        Mean outcomes between false alarms; `alarm_every_tokens` converts from wall clock.
    smallest_shift, typical_shift
        In log-odds: what is looked for at all, and what is expected.
    reference_size
        Outcomes after which the reference learns no more.
    max_groups
        Groups remembered; of more, the ones longest unheard of are forgotten.

    Attributes
    ----------
    shift
        The latest `Shift`: estimates before and after, outcomes since the change, statistic.

    Examples
    --------
    >>> import random
    >>> rng, detector = random.Random(4), AcceptanceShiftDetector()
    >>> for t in range(3000):
    ...     detector.update(rng.random() < (0.8 if t < 2000 else 0.5))
    ...     if detector.drift_detected:
    ...         since = detector.shift.tokens_since
    ...         print(t, round(t + 1 - since), round(detector.shift.after, 1))
    2047 1999 0.5
    """

    def __init__(
        self,
        alarm_every: float = ALARM_EVERY_TOKENS,
        smallest_shift: float = SMALLEST_SHIFT,
        typical_shift: float = TYPICAL_SHIFT,
        reference_size: float = REFERENCE_TOKENS,
        max_groups: int = 1024,
    ) -> None:
        super().__init__()
        if max_groups < 1:
            raise ValueError(f"max_groups must be >= 1, got {max_groups}")
        self.alarm_every = alarm_every
        self.smallest_shift = smallest_shift
        self.typical_shift = typical_shift
        self.reference_size = reference_size
        self.max_groups = max_groups
        self.shift: Shift | None = None
        self.ignored = 0
        self._drift = SlotDrift(
            1,
            alarm_every_tokens=alarm_every,
            smallest_shift=smallest_shift,
            typical_shift=typical_shift,
            reference_tokens=reference_size,
        )
        self._drift.reserve(max_groups)
        self._groups: OrderedDict[Hashable, int] = OrderedDict()
        self.restart()

    def update(
        self,
        x: float,
        expected: float = 0.5,
        group: Hashable | None = None,
        trials: int = 1,
    ) -> None:
        """Take an outcome, or the number of successes in ``trials`` outcomes of one prediction.

        Parameters
        ----------
        x
            0 or 1; with ``trials``, in [0, trials]. Anything else is ignored and counted in
            ``ignored``.
        expected
            Predicted probability of 1, in (0, 1). What it misses from the start is learned.
        group
            Whose outcome it is; None for an outcome of its own. The predictions of a group should
            lie within about one log-odds of each other, see `SlotDrift.update`.
        trials
            Outcomes at once.
        """
        self._drift_detected = False
        if not (trials >= 1 and 0 <= x <= trials and x == int(x) and 0.0 < expected < 1.0):
            self.ignored += 1
            return
        row = _LONE if group is None else self._row(group)
        shift = self._drift.update(0, int(x), trials, expected, row)
        if shift is not None:
            self.shift = shift
            self._drift_detected = True

    def restart(self) -> None:
        """Forget what was seen: a change is known to have come."""
        self._groups.clear()
        self._drift.watch(0, np.array([0.5]))
        self._drift_detected = False

    @property
    def statistic(self) -> float:
        """The evidence for a change so far; an alarm when it exceeds `threshold`."""
        return self._drift.statistic(0)

    @property
    def threshold(self) -> float:
        """The evidence that makes an alarm."""
        return math.log(self.alarm_every)

    def _unit_test_skips(self) -> set[str]:
        return set(_CHECKS_THAT_DO_NOT_APPLY)

    @property
    def reference(self) -> float:
        """The rate against which outcomes with ``expected`` 0.5 are watched."""
        odds = float(self._drift.sums[0, kernels.ODDS])
        return odds / (1.0 + odds)

    def state(self) -> dict[str, Any]:
        """Return everything as plain data; groups must be plain themselves."""
        return {
            "version": _STATE_VERSION,
            "drift": self._drift.state(),
            "groups": list(self._groups.items()),
            "drift_detected": self._drift_detected,
            "ignored": self.ignored,
            "shift": None if self.shift is None else self.shift.as_list(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, bitwise.

        Raises
        ------
        ValueError
            The state is of another version or shape.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version must be {_STATE_VERSION}, got {state['version']}")
        self._drift.load(state["drift"])
        self._groups = OrderedDict((group, int(row)) for group, row in state["groups"])
        self._drift_detected = bool(state["drift_detected"])
        self.ignored = int(state["ignored"])
        self.shift = None if state["shift"] is None else Shift(*state["shift"])

    def _row(self, group: Hashable) -> int:
        row = self._groups.get(group)
        if row is None:
            row = len(self._groups)
            if row == self.max_groups:
                row = self._groups.popitem(last=False)[1]
            self._drift.open_request(row)
            self._groups[group] = row
        self._groups.move_to_end(group)
        return row


class LatencyShiftDetector(base.DriftDetector):
    """Detects that durations have become longer or shorter by a factor.

    Durations are compared with what was expected of them, by the logarithm of their ratio; without
    an expectation, with what they were. Lone stalls do not count for much, repeated ones do. See
    `LatencyDrift` for the statistic.

    Parameters
    ----------
    alarm_every
        Mean durations between false alarms.
    smallest_ratio
        Factors nearer to 1 are not looked for.

    Attributes
    ----------
    shift
        The latest `Shift`; its estimates are ratios of seen to expected duration.

    Examples
    --------
    >>> rng, detector = np.random.default_rng(0), LatencyShiftDetector()
    >>> for t in range(1000):
    ...     usual_ms = 20.0 * rng.lognormal(sigma=0.05)
    ...     detector.update(usual_ms * (1.0 if t < 500 else 1.5), expected=20.0)
    ...     if detector.drift_detected:
    ...         print(t, round(detector.shift.after, 1))
    505 1.4
    """

    def __init__(
        self, alarm_every: float = ALARM_EVERY_TOKENS, smallest_ratio: float = 1.1
    ) -> None:
        super().__init__()
        self.alarm_every = alarm_every
        self.smallest_ratio = smallest_ratio
        self.shift: Shift | None = None
        self.ignored = 0
        self._drift = LatencyDrift(alarm_every_steps=alarm_every, smallest_ratio=smallest_ratio)

    def update(self, x: float, expected: float | None = None) -> None:
        """Take a duration; one that is not positive and finite is ignored and counted."""
        self._drift_detected = False
        usual = 1.0 if expected is None else expected
        if not (0.0 < x < math.inf and 0.0 < usual < math.inf):
            self.ignored += 1
            return
        shift = self._drift.update(x / usual)
        if shift is not None:
            self.shift = shift
            self._drift_detected = True

    def restart(self) -> None:
        """Forget what was seen: a change is known to have come."""
        self._drift.restart()
        self._drift_detected = False

    @property
    def statistic(self) -> float:
        """The evidence for a change so far; an alarm when it exceeds `threshold`."""
        return self._drift.statistic

    @property
    def threshold(self) -> float:
        """The evidence that makes an alarm."""
        return math.log(self.alarm_every)

    def _unit_test_skips(self) -> set[str]:
        return set(_CHECKS_THAT_DO_NOT_APPLY)

    def state(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "version": _STATE_VERSION,
            "drift": self._drift.state(),
            "drift_detected": self._drift_detected,
            "ignored": self.ignored,
            "shift": None if self.shift is None else self.shift.as_list(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, bitwise.

        Raises
        ------
        ValueError
            The state is of another version or shape.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version must be {_STATE_VERSION}, got {state['version']}")
        self._drift.load(state["drift"])
        self._drift_detected = bool(state["drift_detected"])
        self.ignored = int(state["ignored"])
        self.shift = None if state["shift"] is None else Shift(*state["shift"])
