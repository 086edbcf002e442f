"""What a policy of trees believes of its traffic: acceptance of drafted nodes, per class and request."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.config import LearnConfig
from acclimate.controller.records import (
    Candidates,
    FloatArray,
    IntArray,
    NodeOutcomes,
    RequestInfo,
    StepContext,
)
from acclimate.controller.reports import Alarm, SlotReport
from acclimate.controller.requests import RequestRows
from acclimate.controller.slot_reports import slot_reports
from acclimate.controller.slot_watch import COMMON_SIGNAL, SLOT_SIGNAL, slot_alarm
from acclimate.controller.slots import SlotTable
from acclimate.controller.tree_drift import ALL, TreeDrift, families
from acclimate.controller.tree_paths import PathWorth
from acclimate.controller.trees import conditionals, path_survival
from acclimate.predictors.calibration import Calibration
from acclimate.predictors.draft_calibration import DraftCalibration
from acclimate.predictors.draft_memory import DraftMemory, DraftNodes
from acclimate.predictors.drift import Shift

_PARTS = ("slots", "rows", "drafter", "drift", "memory", "paths", "calibration")


class TreeBeliefs:
    """The drafter's probabilities, corrected by what was accepted; what shifted is learned anew.

    Parameters
    ----------
    learn
        Memory of the learners and the number of slots.
    depth
        Levels of a tree at most, >= 1.
    """

    def __init__(self, learn: LearnConfig, depth: int) -> None:
        self.slots = SlotTable(learn.max_slots)
        self.rows = RequestRows()
        # A step grades several siblings per token.
        self.drafter = DraftCalibration(
            learn.max_slots,
            depth,
            window_tokens=2.0 * learn.acceptance_window_tokens,
            request_window_tokens=4.0 * learn.request_window_tokens,
        )
        self.drift = TreeDrift(learn.max_slots)
        self.memory = DraftMemory(learn.max_slots)
        self.paths = PathWorth(learn.max_slots)
        self.calibration = Calibration(
            learn.max_slots, window_tokens=2.0 * learn.acceptance_window_tokens
        )

    def admit(self, request: RequestInfo) -> tuple[int, int | None]:
        """Give a request a row; return it, and the slot if one was opened for it."""
        placement = self.slots.place(request)
        row = self.rows.add(request.request, slot=placement.slot, sampled=request.sampled)
        self.drafter.reserve(self.rows.capacity)
        self.drafter.open_request(row)
        if not placement.opened:
            return row, None
        self.drafter.open_slot(placement.slot, placement.pool)
        for part in (self.drift, self.memory, self.paths, self.calibration):
            part.open_slot(placement.slot)
        return row, placement.slot

    def forget(self, request: int) -> int | None:
        """Free a request's row and return it, None if it has none; its slot keeps what it learned."""
        row = self.rows.remove(request)
        if row is not None:
            self.slots.leave(int(self.rows.slot[row]))
        return row

    def shake(self) -> None:
        """Doubt what was learned of the drafter: it is known to have changed."""
        self.drafter.shake()
        self.drift.restart()

    def survival(self, context: StepContext, candidates: Candidates) -> FloatArray:
        """Return P(the path to each candidate is accepted) as it is believed, shape (m,)."""
        rows = self.rows.find(context.requests)[candidates.request]
        said = candidates.confidence
        if said is None:
            said = conditionals(candidates.parent, candidates.survival)
        slots = self.rows.slot[rows]
        conditional = self.drafter.conditional(slots, rows, candidates.depth, said)
        product = path_survival(
            candidates.request, candidates.parent, conditional, context.requests.shape[0]
        )
        return self.paths.apply(slots, candidates.parent, candidates.depth, product)

    def learn(
        self, step: int, requests: IntArray, nodes: NodeOutcomes
    ) -> tuple[list[Alarm], list[int]]:
        """Learn a step's graded nodes; where a class has shifted, learn it anew.

        Returns
        -------
        tuple
            Alarms, one per class or one for all; and the slots that were learned anew.
        """
        row_of = self.rows.find(requests)
        all_rows = row_of[nodes.request]
        all_slots = self.rows.slot[all_rows]
        believed = self.drafter.conditional(all_slots, all_rows, nodes.depth, nodes.confidence)
        product = path_survival(nodes.request, nodes.parent, believed, requests.shape[0])
        self.paths.learn(all_slots, nodes.depth, product, nodes.accepted, nodes.verified)
        known = np.flatnonzero(nodes.graded)
        owners, rows, slots = nodes.request[known], all_rows[known], all_slots[known]
        depth, said, accepted = nodes.depth[known], nodes.confidence[known], nodes.accepted[known]
        graded = families(nodes.request, nodes.parent, believed[known], nodes.accepted, known)
        self.memory.add(
            DraftNodes(slots, rows, requests[owners], depth, said, accepted), graded.of_node
        )
        self.calibration.learn(self.drafter.learn(slots, rows, depth, said, accepted))
        shifted = self.drift.observe(self.rows.slot[row_of], row_of, graded)
        if ALL not in shifted:
            for slot, shift in shifted.items():
                self._learn_anew(slot, shift.tokens_since)
            alarms = [self._alarm(step, *found, SLOT_SIGNAL) for found in shifted.items()]
            return alarms, list(shifted)
        everything = shifted[ALL]
        self.drafter.shake_pools()
        served = np.flatnonzero(self.drift.seen).tolist()
        shares = [self.drift.share(slot) for slot in served]
        for slot, share in zip(served, shares, strict=True):
            self._learn_anew(slot, share * everything.tokens_since)
        return [self._alarm(step, max(served), everything, COMMON_SIGNAL)], served

    def _learn_anew(self, slot: int, families_since: float) -> None:
        since = self.memory.latest(slot, families=families_since)
        # Rows are used again: only a request that still has its own has a history.
        rows = np.where(self.rows.find(since.owner) == since.rows, since.rows, 0)
        self.drafter.learn_anew(slot, rows, since.depth, since.said, since.accepted)
        self.drift.open_slot(slot)
        self.paths.open_slot(slot)

    def _alarm(self, step: int, slot: int, shift: Shift, signal: str) -> Alarm:
        return slot_alarm(self.slots, self.calibration, step, slot, shift, signal)

    def reports(self) -> tuple[SlotReport, ...]:
        """Return an account of every slot that has seen traffic."""
        return slot_reports(self.slots, self.calibration)

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return {name: getattr(self, name).state() for name in _PARTS}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        for name in _PARTS:
            getattr(self, name).load(state[name])
        self.drafter.reserve(self.rows.capacity)
