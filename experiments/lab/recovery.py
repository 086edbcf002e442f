"""How soon beliefs are right again after a change, counted in graded tokens, for any policy.

A policy has *recovered* when every position's predicted survival has been within 0.05 of the truth
for 200 graded tokens in a row. A token counts once, however many drafts it graded. Counting begins
when the change is complete, for each label that it concerns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from acclimate.controller.beliefs import TIME_SIGNAL
from acclimate.controller.policy import Policy
from acclimate.controller.records import DraftOutcomes, FloatArray, IntArray
from acclimate.controller.reports import Alarm
from acclimate.controller.slot_watch import COMMON_SIGNAL

TOLERANCE = 0.05
STREAK_TOKENS = 200
CURVE_TOKENS = np.arange(0, 4_001, 50)
"""Graded tokens since a change at which the error of beliefs is noted."""
CALIBRATION_BINS = 10

_GLOBAL: dict[str, Callable[[Any], float]] = {"turbospec": lambda policy: policy.acceptance}
_NO_BELIEFS = {
    "oracle": "knows the truth",
    "vllm_adaptive_verification": "estimates what confidence means, not positions",
}


class Episode(msgspec.Struct, kw_only=True):
    """One label after one change of its acceptance.

    Parameters
    ----------
    label
        As policies are told it.
    begin_s, end_s
        When acceptance began to change, and when the change was complete.
    graded
        Tokens graded since then, up to the next change.
    recovered
        How many of them until beliefs were right; None where they never were for long enough.
    noticed
        Tokens graded from the beginning of the change to the first alarm; None without one.
    cold
        Not a change, but the start, at which nothing is known.
    """

    label: str
    begin_s: float
    end_s: float
    graded: int = 0
    recovered: int | None = None
    noticed: int | None = None
    cold: bool = False


def survival_beliefs(policy: Policy, max_depth: int) -> dict[str, FloatArray] | None:
    """Return the survival that a policy predicts by label, "" for all; None where it has no belief.

    Returns
    -------
    By label, shape (max_depth,): P(the first i drafts are all accepted).

    Examples
    --------
    >>> from acclimate.controller.config import ControlConfig
    >>> from acclimate.controller.records import Capabilities
    >>> from acclimate.experiments.arms import arm_policy
    >>> engine = Capabilities(max_depth=2, depths=(0, 1, 2))
    >>> survival_beliefs(arm_policy("turbospec", ControlConfig(), engine), 2)[""].round(2).tolist()
    [0.7, 0.49]
    >>> survival_beliefs(arm_policy("k1", ControlConfig(), engine), 2) is None
    True
    """
    overall = _GLOBAL.get(policy.name)
    if overall is not None:
        return {"": _survival([overall(policy)] * max_depth)}
    slots = policy.report().slots
    if not slots:
        return None
    return {slot.label: _survival(slot.conditional) for slot in slots}


def _survival(conditional: Sequence[float]) -> FloatArray:
    survival: FloatArray = np.cumprod(conditional, dtype=np.float64)
    return survival


def no_beliefs_because(name: str) -> str:
    """Return why a policy that reports no beliefs has none."""
    return _NO_BELIEFS.get(name, "keeps no estimate of acceptance by position")


class RecoveryMeter:
    """Compares what is believed with what is true, outcome by outcome.

    Parameters
    ----------
    labels
        Every label under which requests come.
    label_of
        Shape (requests,): index into ``labels`` of the request with number ``row + 1``.
    truth
        Returns true survival of each label at a time in seconds, shape (labels, max_depth).
    episodes
        Changes, by label and in order of time.
    max_depth
        The engine's.

    Examples
    --------
    >>> from acclimate.controller.records import int_array
    >>> meter = RecoveryMeter(
    ...     ["a"], int_array([0]), lambda now_s: np.array([[0.5]]),
    ...     [Episode(label="a", begin_s=1.0, end_s=1.0)], max_depth=1)
    >>> for believed in (0.9, *[0.52] * 40):
    ...     meter.learn({"a": np.array([believed])}, np.array([10]), 2.0)
    >>> meter.episodes[0].recovered
    10
    """

    def __init__(
        self,
        labels: Sequence[str],
        label_of: IntArray,
        truth: Callable[[float], FloatArray],
        episodes: Sequence[Episode],
        max_depth: int,
    ) -> None:
        self.episodes = list(episodes)
        self.max_depth = max_depth
        self.believes = False
        self.alarms = self.false_alarms = 0
        self.calibration = np.zeros((3, CALIBRATION_BINS))
        self._labels = list(labels)
        self._label_of = label_of
        self._truth = truth
        self._streak = [0] * len(self.episodes)
        self._since_begin = [0] * len(self.episodes)
        self._curves: list[list[float]] = [[] for _ in self.episodes]

    def grade(
        self, beliefs: dict[str, FloatArray] | None, drafts: DraftOutcomes, now_s: float
    ) -> None:
        """Take the tokens of one step and what had been believed of them before."""
        tokens = _graded(drafts)
        label = self._label_of[tokens.request - 1]
        fresh = np.bincount(label[tokens.fresh], minlength=len(self._labels))
        if beliefs is not None:
            self.believes = True
            self._calibrate(beliefs, label, tokens)
        self.learn(beliefs, fresh, now_s)

    def learn(self, beliefs: dict[str, FloatArray] | None, fresh: IntArray, now_s: float) -> None:
        """Count fresh tokens per label, and see whether beliefs are right; times in seconds."""
        truth: FloatArray | None = None
        for index, episode in self._under_way(now_s):
            number = self._labels.index(episode.label)
            count = int(fresh[number])
            self._since_begin[index] += count
            if now_s < episode.end_s:
                continue
            before = episode.graded
            episode.graded += count
            open_curve = len(self._curves[index]) < CURVE_TOKENS.shape[0]
            if beliefs is None or (episode.recovered is not None and not open_curve):
                continue
            believed = beliefs.get(episode.label, beliefs.get(""))
            if believed is None:
                continue
            truth = self._truth(now_s) if truth is None else truth
            error = float(np.abs(believed - truth[number]).max())
            while open_curve and CURVE_TOKENS[len(self._curves[index])] <= before:
                self._curves[index].append(error)
                open_curve = len(self._curves[index]) < CURVE_TOKENS.shape[0]
            if episode.recovered is None:
                self._streak[index] = self._streak[index] + count if error <= TOLERANCE else 0
                if self._streak[index] >= STREAK_TOKENS:
                    episode.recovered = episode.graded - self._streak[index]

    def notice(self, alarms: Sequence[Alarm], now_s: float) -> None:
        """Take alarms: the first of a label since a change is right, any further one is false.

        While a change is still under way, none is false.
        """
        for alarm in alarms:
            if alarm.signal in (COMMON_SIGNAL, TIME_SIGNAL):
                continue  # of all slots: repeats what their own alarms have told; or of step times
            self.alarms += 1
            own = [(i, e) for i, e in self._under_way(now_s) if e.label == alarm.label]
            index, episode = own[-1] if own else (-1, None)
            if (
                episode is None
                or episode.cold
                or (episode.noticed is not None and now_s > episode.end_s)
            ):
                self.false_alarms += 1
            elif episode.noticed is None:
                episode.noticed = self._since_begin[index]

    def error_curve(self) -> list[float | None]:
        """Return the largest error of any position by tokens since a change, mean over episodes."""
        columns: list[float | None] = []
        for at in range(CURVE_TOKENS.shape[0]):
            known = [curve[at] for curve in self._curves if len(curve) > at]
            columns.append(float(np.mean(known)) if known else None)
        return columns

    def _under_way(self, now_s: float) -> list[tuple[int, Episode]]:
        """Return the latest episode of each label that has begun."""
        latest: dict[str, tuple[int, Episode]] = {}
        for index, episode in enumerate(self.episodes):
            if episode.begin_s <= now_s:
                latest[episode.label] = (index, episode)
        return list(latest.values())

    def _calibrate(self, beliefs: dict[str, FloatArray], label: IntArray, tokens: _Tokens) -> None:
        table = np.full((len(self._labels), self.max_depth), np.nan)
        for number, name in enumerate(self._labels):
            survival = beliefs.get(name, beliefs.get(""))
            if survival is not None:
                table[number] = survival / np.concatenate([[1.0], np.maximum(survival[:-1], 1e-9)])
        predicted = table[label, tokens.position]
        known = np.isfinite(predicted)
        bins = np.clip((predicted[known] * CALIBRATION_BINS).astype(np.int64), 0, 9)
        for row, weights in enumerate((None, predicted[known], tokens.right[known])):
            self.calibration[row] += np.bincount(bins, weights, minlength=CALIBRATION_BINS)


@dataclasses.dataclass(frozen=True, slots=True)
class _Tokens:
    """Graded tokens, one entry each: whose, where in the draft (from 0), right, and news."""

    request: IntArray
    position: IntArray
    right: FloatArray
    fresh: np.ndarray[Any, np.dtype[np.bool_]]


def _graded(drafts: DraftOutcomes) -> _Tokens:
    graded = drafts.graded
    row = np.repeat(np.arange(graded.shape[0]), graded)
    step = np.arange(row.shape[0]) - np.repeat(np.cumsum(graded) - graded, graded)
    return _Tokens(
        request=drafts.request[row],
        position=drafts.start[row] + step,
        right=(step < drafts.matched[row]).astype(np.float64),
        fresh=step >= (graded - drafts.fresh)[row],
    )
