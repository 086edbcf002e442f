"""Hints of drafts are found again by the step that drafted and the request's row."""

from __future__ import annotations

import numpy as np

from acclimate.controller.hints import DraftHints
from acclimate.controller.records import Candidates
from acclimate.controller.select import chain_candidates


def candidates(confidence, drafts):
    chain = chain_candidates(np.asarray(confidence, dtype=float), np.asarray(drafts))
    return Candidates(chain.request, chain.parent, chain.depth, chain.survival, chain.survival)


def test_hints_are_kept_until_the_draft_is_graded():
    hints = DraftHints(2)
    rows = np.array([3, 1])
    now = hints.note(7, rows, candidates([[0.9, 0.1], [0.5, 0.0]], [2, 1]))
    assert now is not None
    assert (now[:, 0] > 0).all()
    assert now[1, 1] == 0  # no such draft
    again = hints.of(np.array([1, 3, 3, 9]), np.array([6, 6, 5, 6]))
    assert again is not None
    assert again[:2].tolist() == now[[1, 0]].tolist()
    assert (again[2:] == 0).all()


def test_a_drafter_that_says_nothing_costs_nothing():
    hints = DraftHints(2)
    assert hints.note(1, np.array([1]), None) is None
    assert hints.of(np.array([1]), np.array([0])) is None


def test_what_is_overwritten_is_unknown():
    hints = DraftHints(1)
    for step in range(40):
        hints.note(step, np.array([1]), candidates([[0.9]], [1]))
    found = hints.of(np.array([1, 1]), np.array([38, 10]))
    assert found is not None
    assert found[0, 0] > 0
    assert found[1, 0] == 0


def test_a_state_continues():
    hints, copy = DraftHints(1), DraftHints(1)
    hints.note(3, np.array([2]), candidates([[0.9]], [1]))
    copy.load(hints.state())
    assert (
        copy.of(np.array([2]), np.array([2])).tolist()
        == hints.of(np.array([2]), np.array([2])).tolist()
    )
