"""What a policy believes of its traffic and its engine: all learners, fed from outcomes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from acclimate.controller.asked import AskedDepths
from acclimate.controller.config import LearnConfig
from acclimate.controller.hints import DraftHints
from acclimate.controller.recalibration import Recalibration
from acclimate.controller.records import (
    Capabilities,
    FloatArray,
    IntArray,
    RequestInfo,
    StepContext,
    StepOutcome,
)
from acclimate.controller.reports import Alarm, SlotReport
from acclimate.controller.requests import RequestRows
from acclimate.controller.slot_reports import slot_reports
from acclimate.controller.slot_watch import SlotWatch
from acclimate.controller.slots import SlotTable
from acclimate.controller.step_time import learn_time
from acclimate.predictors.acceptance_mix import AcceptanceMix
from acclimate.predictors.calibration import Calibration
from acclimate.predictors.draft_length import DraftLength
from acclimate.predictors.numerics import check_range
from acclimate.predictors.watched_latency import WatchedLatency

BoolArray = npt.NDArray[np.bool_]

_UNMEASURED_ERROR = 0.5  # standard error of an extrapolation, as a share of it
_FADED_STEPS = 0.2  # decayed steps at which a measurement has faded
_LOOK_EVERY = 8  # steps between two looks at which slots have as many, and at the clock


TIME_SIGNAL = "step_time"
"""An alarm of this signal is of the length of steps."""


class Survey(NamedTuple):
    """What is believed of a step's n requests.

    ``slots`` has shape (n,), ``survival`` (n, max_depth); drafts at hand, tokens attended to and
    requests whose tokens are sampled are sums over the requests.
    """

    slots: IntArray
    survival: FloatArray
    drafts: int
    context_tokens: int
    sampled_rows: int


class Beliefs:
    """Acceptance, draft lengths, step latency, calibration and drift, per slot and request.

    Parameters
    ----------
    config
        Memory of the learners and the number of slots.
    capabilities
        The engine's depths.
    max_requests
        Largest decode count kept apart.
    """

    def __init__(self, config: LearnConfig, capabilities: Capabilities, max_requests: int) -> None:
        slots, depth = config.max_slots, max(capabilities.max_depth, 1)
        self.slots = SlotTable(slots)
        self.rows = RequestRows()
        self.acceptance = AcceptanceMix(
            slots,
            depth,
            window_tokens=config.acceptance_window_tokens,
            request_window_tokens=config.request_window_tokens,
        )
        self.hints = DraftHints(depth)
        self.lengths = DraftLength(slots, depth)
        self.asked = AskedDepths()
        # Where drafts come whatever is asked, nobody asks how long they will be.
        self._uniform = capabilities.uniform_only
        self._learns_lengths = capabilities.uniform_only or capabilities.asks_for_depth
        self.latency = WatchedLatency(
            max_requests,
            max_requests * depth,
            window_steps=config.latency_window_steps,
            capture_sizes=capabilities.capture_sizes,
            prices_drafting=capabilities.asks_for_depth,
        )
        self.calibration = Calibration(slots, window_tokens=config.acceptance_window_tokens)
        self.watch = SlotWatch(self.slots, self.calibration, config.false_alarms_per_day)
        self.recalibration = Recalibration(slots, depth)
        self.latency_error = 0.0
        self._latency_steps = 0
        self.make_room()

    def admit(self, request: RequestInfo) -> int | None:
        """Give a request a row; return the slot if one was opened for it."""
        if request.request in self.rows:
            self.forget(request.request)
        placement = self.slots.place(request)
        row = self.rows.add(request.request, slot=placement.slot, sampled=request.sampled)
        if self.rows.capacity > self._capacity:
            self.make_room()
        self.acceptance.open_request(row, placement.slot)
        self.watch.drift.open_request(row)
        if not placement.opened:
            return None
        self.acceptance.open_slot(placement.slot, placement.pool, placement.tenant)
        self.lengths.open_slot(placement.slot)
        self.calibration.open_slot(placement.slot)
        self.recalibration.open_slot(placement.slot)
        self.watch.open_slot(placement.slot)
        return placement.slot

    def make_room(self) -> None:
        """Make room in the learners for as many requests as there are rows."""
        self._capacity = self.rows.capacity
        self.acceptance.reserve(self._capacity)
        self.watch.drift.reserve(self._capacity)

    def forget(self, request: int) -> None:
        """Free a request's row; its slot keeps what it learned."""
        row = self.rows.remove(request)
        if row is not None:
            self.acceptance.close_request(row)
            self.slots.leave(int(self.rows.slot[row]))

    def survey(self, context: StepContext, *, whole: bool = False) -> Survey:
        """Return what is believed of a step's requests, and what the step adds up to.

        A request that was never admitted is predicted as a cold one of the shared slot. Unless
        ``whole``, where verify lengths decide all, nobody asks beyond the drafts at hand, and
        survival is 0 there.
        """
        rows, slots, drafts, context_tokens, sampled = self.rows.survey(
            context.requests, context.drafts, context.context_tokens
        )
        hints = self.hints.note(context.step, rows, context.candidates)
        positions = None if whole or self._learns_lengths else context.drafts
        survival = self.acceptance.survival(slots, rows, hints, positions)
        return Survey(slots, survival, drafts, context_tokens, sampled)

    def doubts(
        self,
        slots: IntArray,
        worth: FloatArray,
        depths: tuple[int, ...],
        chosen: int,
        milliseconds: FloatArray,
        price: float,
    ) -> tuple[FloatArray, BoolArray]:
        """Return how far each depth's objective may be off, and what must be measured again.

        Parameters
        ----------
        slots, worth
            Shape (n,) and (n, max_depth): each request's slot, and its survival.
        depths, chosen
            The depths to judge, and the index of the one that is chosen.
        milliseconds
            Duration of a step with 0, 1, … verified drafts.
        price
            Tokens per millisecond.

        Returns
        -------
        tuple of arrays, shape (depths,)
            Standard errors in tokens (a depth that was never measured may be nearly as quick as the
            chosen one), and whether the last measurement has faded.
        """
        # Relative variances of conditional acceptance add up along a path.
        q = worth / np.concatenate([np.ones((worth.shape[0], 1)), worth[:, :-1]], axis=1)
        q = np.minimum(q, 1.0)  # worth is shaded, in both directions
        variance = ((1.0 - q) / (q * (self.acceptance.table.evidence(slots) + 1.0))).cumsum(axis=1)
        errors = np.minimum(worth * np.sqrt(variance), np.maximum(1.0 - worth, 0.0))
        tokens = np.concatenate([[0.0], errors.sum(axis=0).cumsum()])[list(depths)]
        stale = np.zeros(len(depths), dtype=np.bool_)
        if not self._uniform:
            return tokens, stale
        n, last = slots.shape[0], milliseconds.shape[0] - 1
        for i, depth in enumerate(depths):
            verified = min(n * depth, last)
            step_ms = float(milliseconds[verified])
            error_ms = self.latency.doubt(n, verified, step_ms)
            if error_ms is None:
                least = float(milliseconds[min(n * depths[chosen], last)]) if i > chosen else 0.0
                error_ms = _UNMEASURED_ERROR * abs(step_ms - least)
            tokens[i] += price * error_ms
            stale[i] = self.latency.evidence(n, verified) < _FADED_STEPS
        return tokens, stale

    def shake(self) -> None:
        """Doubt what was learned of acceptance: what it was learned from is known to be over."""
        self.acceptance.shake()
        self.latency.expect_change()
        self.watch.anew()

    def learn_drafts(self, outcome: StepOutcome) -> list[Alarm]:
        """Learn acceptance and draft lengths from one step, and return what was noticed."""
        drafts = outcome.drafts
        self.asked.note(outcome.step, outcome.draft_depth)
        if outcome.exempt or not drafts.request.size:
            return []
        rows = self.rows.find(drafts.request)
        slots = self.rows.slot[rows]
        if self._learns_lengths:
            n = outcome.requests.shape[0]
            asked = self.asked.of(drafts.drafted_by[:n], outcome.step - 1)
            self.lengths.learn(slots[:n], drafts.proposed[:n], asked)
        hints = self.hints.of(rows, drafts.drafted_by)
        sums = self.acceptance.learn(
            slots, rows, drafts.start, drafts.graded, drafts.matched, hints
        )
        self.calibration.learn(sums)
        self.watch.spend(outcome.latency_ns)
        if outcome.step % _LOOK_EVERY == 0:
            self.watch.look(outcome.step, self.acceptance.predict_slots)
            self._set_time_threshold()
        shifts = self.watch.drift.observe(
            slots, rows, drafts.start, drafts.graded, drafts.matched, drafts.fresh
        )
        self.recalibration.learn(slots, drafts)
        alarms: list[Alarm] = []
        for slot, shift in shifts:
            returned = self.recalibration.restart(self.acceptance.table, slot, shift)
            self.acceptance.doubt(slot)
            alarms += self.watch.alarms(outcome.step, slot, shift, returned=returned)
        return alarms

    def learn_latency(self, outcome: StepOutcome) -> float | None:
        """Learn the step's duration, and return the milliseconds that were expected of it."""
        predicted_ms = learn_time(self.latency, outcome)
        if predicted_ms is None or not outcome.latency_ns:
            return None
        latency_ms = outcome.latency_ns / 1e6
        self._latency_steps += 1
        error = min(abs(predicted_ms - latency_ms) / latency_ms, 1.0)
        self.latency_error += (error - self.latency_error) / min(self._latency_steps, 200)
        return predicted_ms

    def time_alarms(self, step: int) -> list[Alarm]:
        """Return the change of step times that the latest step completed, if it did."""
        shift = self.latency.shift
        if shift is None:
            return []
        return [
            Alarm(
                step=step,
                slot=-1,
                label="",
                signal=TIME_SIGNAL,
                before=shift.before,
                after=shift.after,
                graded_tokens=self.watch.tokens,
                tokens_since=None,
                steps_since=shift.tokens_since,
                statistic=shift.statistic,
            )
        ]

    def reports(self) -> tuple[SlotReport, ...]:
        """Return an account of every slot that has seen traffic."""
        return slot_reports(self.slots, self.calibration, self.acceptance.predict_slots())

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        parts = {name: getattr(self, name).state() for name in _PARTS}
        return {
            **parts,
            **self.watch.state(),
            "recalibration": self.recalibration.state(),
            "latency_error": self.latency_error,
            "latency_steps": self._latency_steps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        for name in _PARTS:
            getattr(self, name).load(state[name])
        check_range("slot", self.rows.slot, 0, self.slots.capacity - 1)
        self.watch.load(state)
        self.latency_error = float(state["latency_error"])
        self._latency_steps = int(state["latency_steps"])
        if "recalibration" in state:
            self.recalibration.load(state["recalibration"])
        self.make_room()
        self._set_time_threshold()

    def _set_time_threshold(self) -> None:
        every_steps = self.watch.alarm_every(self._latency_steps)
        if every_steps is not None:
            self.latency.expect_alarms(every_steps)


_PARTS = ("slots", "rows", "acceptance", "hints", "lengths", "asked", "latency", "calibration")
