"""Draft lengths: a draft that is as long as asked says nothing of how it would have gone on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.draft_length import DraftLength

ONE = np.array([0])


def learn(lengths, proposed, asked, times=1):
    for _ in range(times):
        lengths.learn(ONE, np.array([proposed]), np.array([asked]))


def test_drafts_of_one_do_not_make_deeper_ones_look_short():
    lengths = DraftLength(1, 5)
    learn(lengths, proposed=1, asked=1, times=2_000)
    assert lengths.reach(ONE)[0] == pytest.approx([1.0] * 5)


def test_a_drafter_that_stops_early_is_known_whatever_was_asked():
    """Half of all drafts end after one token; asking 1 or 4 must tell the same story."""
    lengths, rng = DraftLength(1, 4, window_drafts=50_000.0), np.random.default_rng(0)
    for _ in range(4_000):
        asked = int(rng.choice([1, 4]))
        learn(lengths, min(asked, int(rng.choice([1, 4]))), asked)
    assert lengths.reach(ONE)[0] == pytest.approx([1.0, 0.5, 0.5, 0.5], abs=0.03)


def test_what_was_seen_of_a_position_stays_while_nobody_asks_for_it():
    lengths = DraftLength(1, 3, window_drafts=50.0)
    learn(lengths, proposed=2, asked=3, times=200)
    before = lengths.reach(ONE)[0, 2]
    learn(lengths, proposed=2, asked=2, times=2_000)
    assert lengths.reach(ONE)[0, 2] == pytest.approx(before)
    assert before < 0.15


def test_nothing_asked_is_nothing_learned():
    lengths = DraftLength(1, 3)
    learn(lengths, proposed=0, asked=0, times=100)
    assert lengths.reach(ONE).tolist() == [[1.0, 1.0, 1.0]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=60))
def test_reach_is_a_survival_function(drafts):
    lengths = DraftLength(1, 4, window_drafts=10.0)
    for proposed, asked in drafts:
        learn(lengths, proposed, asked)
    reach = lengths.reach(ONE)[0]
    assert ((reach > 0) & (reach <= 1)).all()
    assert (np.diff(reach) <= 0).all()
