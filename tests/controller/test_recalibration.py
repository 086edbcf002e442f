"""What an alarm leaves behind: evidence since the change, a known mix that returned, and no wipe."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.controller.recalibration import Recalibration
from acclimate.controller.records import DraftOutcomes
from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.drift import Shift

DEPTH = 4


class Slot:
    """One slot's stream: full drafts of which each token is right with one chance."""

    def __init__(self, seed=0):
        self.table = AcceptanceTable(2, DEPTH)
        self.recalibration = Recalibration(2, DEPTH)
        self.rng = np.random.default_rng(seed)

    def serve(self, chance, steps):
        tokens = 0
        for _ in range(steps):
            right = np.cumprod(self.rng.random((8, DEPTH)) < chance, axis=1).sum(axis=1)
            graded = np.minimum(right + 1, DEPTH)
            slots, none = np.ones(8, dtype=np.int64), np.zeros(8, dtype=np.int64)
            for row in range(1, 9):
                self.table.open_request(row)
            self.table.learn(slots, np.arange(1, 9), none, graded, right)
            drafts = DraftOutcomes(
                request=none, drafted_by=none, verified_by=none, proposed=none + DEPTH,
                verified=none + DEPTH, accepted=right, start=none, graded=graded, matched=right,
                fresh=graded,
            )  # fmt: skip
            self.recalibration.learn(slots, drafts)
            tokens += int(graded.sum())
        return tokens

    def restart(self, tokens):
        shift = Shift(before=0.9, after=0.4, tokens_since=tokens, statistic=12.0)
        return self.recalibration.restart(self.table, 1, shift)

    @property
    def conditional(self):
        return self.table.predict_slots()[1]


def test_an_alarm_leaves_the_estimate_of_one_that_was_told():
    slot, told = Slot(1), Slot(1)
    slot.serve(0.9, 120)
    told.rng = np.random.default_rng(2)
    slot.rng = np.random.default_rng(2)
    tokens = slot.serve(0.4, 12)
    told.serve(0.4, 12)
    assert slot.restart(tokens) is False
    assert slot.conditional[:2] == pytest.approx(told.conditional[:2], abs=0.06)


def test_a_false_alarm_moves_little():
    slot = Slot(3)
    slot.serve(0.7, 200)
    before = slot.conditional.copy()
    slot.restart(150.0)
    assert slot.conditional == pytest.approx(before, abs=0.12)


def test_a_mix_that_returns_is_recognised_and_its_evidence_counts_again():
    slot = Slot(4)
    slot.serve(0.9, 150)
    assert slot.restart(slot.serve(0.3, 15)) is False
    slot.serve(0.3, 100)
    tokens = slot.serve(0.9, 6)
    assert slot.restart(tokens) is True
    assert slot.conditional == pytest.approx([0.9] * DEPTH, abs=0.06)


def test_save_and_load_go_on_alike():
    slot, again = Slot(5), Slot(5)
    slot.serve(0.9, 100)
    again.table.load(slot.table.state())
    again.recalibration.load(slot.recalibration.state())
    for each in (slot, again):
        each.rng = np.random.default_rng(6)
        each.restart(each.serve(0.4, 10))
    assert (slot.conditional == again.conditional).all()
