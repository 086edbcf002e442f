"""Step times that notice a common change: a throttled GPU makes every step longer at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.predictors.drift import ALARM_EVERY_TOKENS, Shift
from acclimate.predictors.latency import StepLatency
from acclimate.predictors.latency_kernels import BELIEVED, KNOWN_VISITS, LEARNED, N_FEATURES
from acclimate.predictors.numerics import load_arrays, save_arrays
from acclimate.predictors.shift_latency import LatencyDrift

_REMEMBERED = 64  # latest steps
_LEAST_STEPS = 3  # of which a change is measured
_TOLD_STEPS = 5  # the same, where it was declared and its size is all that is missing
_TOGETHER = 0.7  # share of the cells that must have moved for a change to be common
_PRIOR_STEPS = 0.25  # hold the measured ratio to 1
_PACED_STEPS = 64.0  # after a change, in which the pace is still measured
_LARGEST_ERROR = 0.2  # log ratio of what one of these may say
_KEPT_VISITS = 20.0  # of a cell, after a change: it learns anew where it did not follow the others
_LOAD, _CELL, _RATIO = range(3)


class WatchedLatency(StepLatency):
    """`StepLatency` beside a `LatencyDrift` on its well-known cells.

    When the detector alarms, the ratio is measured as the median over the steps since the change
    of what they took against what was expected before it, shrunk a little towards 1. If most cells
    seen since moved together, the pace of the whole table is scaled: cells that nobody visited, the
    lines and the prior follow. For some steps the pace is still refined, then cells go on alone.
    Cells that did not move together are left to themselves. Cells that were believed to be slow
    before the alarm are counted as what they were: the first to move.

    Parameters
    ----------
    max_requests, max_verified, window_steps, capture_sizes
        As for `StepLatency`.
    alarm_every_steps
        Mean steps between false alarms, if steps are independent; see `expect_alarms`.

    Attributes
    ----------
    shift
        The change that the latest step completed, as ratios of seen to expected lengths; None if
        it completed none.

    Examples
    --------
    >>> model, rng = WatchedLatency(8, 64), np.random.default_rng(0)
    >>> for step in range(300):
    ...     n = 1 + step % 8
    ...     _ = model.learn(n, 0, latency_ms=(20.0 + n) * rng.lognormal(sigma=0.05))
    >>> for step in range(20):
    ...     n = 1 + step % 2  # the others are not visited
    ...     _ = model.learn(n, 0, latency_ms=1.5 * (20.0 + n) * rng.lognormal(sigma=0.05))
    >>> bool(abs(model.curve(8, 0)[0] / 42.0 - 1.0) < 0.03)
    True
    """

    def __init__(
        self,
        max_requests: int,
        max_verified: int,
        *,
        window_steps: float = 400.0,
        capture_sizes: tuple[int, ...] = (),
        prices_drafting: bool = True,
        alarm_every_steps: float = ALARM_EVERY_TOKENS,
    ) -> None:
        super().__init__(
            max_requests,
            max_verified,
            window_steps=window_steps,
            capture_sizes=capture_sizes,
            prices_drafting=prices_drafting,
        )
        self.drift = LatencyDrift(alarm_every_steps=alarm_every_steps)
        self.shift: Shift | None = None
        # Of cells that were believed anew: log ratio of that to what they had seen before.
        self.jumps = np.zeros_like(self.visits)
        self.recent = np.zeros((_REMEMBERED, 3))  # load, cell, log ratio; the latest last
        self._n_recent = 0
        self._paced = _PACED_STEPS  # steps that the present pace was measured over
        self._told = False

    def expect_alarms(self, every_steps: float) -> None:
        """Set the threshold: mean steps between false alarms, positive and finite."""
        self.drift.expect_alarms(every_steps)

    def expect_change(self) -> None:
        """Measure the pace anew over the next steps: something was declared to have changed."""
        self.drift.restart()
        self._forget_recent()
        self._relearn()
        self._told = True

    def learn(
        self,
        requests: int,
        verified: int,
        *,
        latency_ms: float,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        sampled_rows: int = 0,
        draft_depth: int = 0,
    ) -> float:
        """Learn from one step, and return the prediction made for it before.

        Raises
        ------
        ValueError
            ``latency_ms`` is not a positive finite number.
        """
        load, cell = self._place(requests, verified)
        known = float(self.visits[load, cell]) >= KNOWN_VISITS
        known = known or self.jumps[load, cell] != 0.0
        predicted_ms = super().learn(
            requests,
            verified,
            latency_ms=latency_ms,
            prefill_tokens=prefill_tokens,
            context_tokens=context_tokens,
            sampled_rows=sampled_rows,
            draft_depth=draft_depth,
        )
        self.shift = None
        if known and self.is_clean(prefill_tokens, requests + verified):
            self._weigh(load, cell, math.log(latency_ms / predicted_ms))
        return predicted_ms

    def state(self) -> dict[str, Any]:
        """Return sums as arrays; predictions after `load` are bitwise the same."""
        return {
            **super().state(),
            "watch": {
                **save_arrays(self, _STATE),
                "drift": self.drift.state(),
                "n_recent": self._n_recent,
                "paced": self._paced,
                "told": self._told,
            },
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`; one of a `StepLatency` is watched from now on.

        Raises
        ------
        ValueError
            The state's table has another shape.
        """
        super().load(state)
        watch = state.get("watch")
        if watch is None:
            self.drift.restart()
            self._forget_recent()
            self._paced, self._told = _PACED_STEPS, False
            return
        load_arrays(self, _STATE, watch)
        self.drift.load(watch["drift"])
        self._n_recent = int(watch["n_recent"])
        self._paced, self._told = float(watch["paced"]), bool(watch["told"])

    def check(self) -> None:
        """Refuse sums that no learner can have arrived at, see `LatencyTable.check`."""
        super().check()
        watched = (self.jumps, self.recent, np.array([self._paced]))
        if not all(np.isfinite(array).all() for array in watched):
            raise ValueError("what is watched must be finite, got NaN or infinity")
        if not 0 <= self._n_recent <= _REMEMBERED:
            raise ValueError(f"n_recent must be in [0, {_REMEMBERED}], got {self._n_recent}")

    def _weigh(self, load: int, cell: int, log_ratio: float) -> None:
        """Take what a step in a known cell took, against what was expected of it."""
        against_before = log_ratio + float(self.jumps[load, cell])
        if self.verdict == BELIEVED:
            self.jumps[load, cell] = against_before
        elif self.verdict == LEARNED and self._paced < _PACED_STEPS:
            self._paced += 1.0
            error = min(max(log_ratio, -_LARGEST_ERROR), _LARGEST_ERROR)
            self.rescale(math.exp(error / (self._paced + _PRIOR_STEPS)))
        self.recent[:-1] = self.recent[1:]
        self.recent[-1] = load, cell, against_before
        self._n_recent = min(self._n_recent + 1, _REMEMBERED)
        if self._told:
            if self._n_recent == _TOLD_STEPS:
                self._told = False
                self._follow(_TOLD_STEPS)
            return
        shift = self.drift.update(math.exp(against_before))
        if shift is None:
            return
        steps = min(max(round(shift.tokens_since), _LEAST_STEPS), self._n_recent)
        ratio = self._follow(steps)
        self.shift = Shift(
            before=shift.before,
            after=ratio,
            tokens_since=shift.tokens_since,
            statistic=shift.statistic,
        )

    def _follow(self, steps: int) -> float:
        """Scale the table by what the latest steps took, if they agree; return that ratio."""
        latest = self.recent[-steps:]
        common = float(np.median(latest[:, _RATIO]))
        places = latest[:, _LOAD] * self.visits.shape[1] + latest[:, _CELL]
        moved = [
            float(np.median(latest[places == place, _RATIO])) / common > 0.5
            for place in np.unique(places)
            if common
        ]
        if moved and sum(moved) >= _TOGETHER * len(moved):
            shrunk = math.exp(common * steps / (steps + _PRIOR_STEPS))
            self.rescale(shrunk)
            self.cells[self.jumps != 0.0, N_FEATURES] /= shrunk
            self._paced = float(steps)
            self._relearn()
        self.far_share[:] = 0.0
        self._forget_recent()
        return math.exp(common)

    def _relearn(self) -> None:
        np.minimum(self.visits, _KEPT_VISITS, out=self.visits)

    def _forget_recent(self) -> None:
        self.jumps[:] = 0.0
        self.recent[:] = 0.0
        self._n_recent = 0


_STATE = ("jumps", "recent")
