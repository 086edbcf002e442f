"""The acceptance table lands on the truth, shrinks where it knows little, and forgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.acceptance import AcceptanceTable


def grade(table, rng, q, *, slot=0, row=1, drafts=200):
    """Grade whole drafts whose tokens are accepted with probability q[i]."""
    q = np.asarray(q)
    for _ in range(drafts):
        fate = rng.random(q.shape[0]) < q
        run = q.shape[0] if fate.all() else int(np.argmin(fate))
        table.learn(
            np.array([slot]),
            np.array([row]),
            start=np.array([0]),
            graded=np.array([min(run + 1, q.shape[0])]),
            matched=np.array([run]),
            fresh=np.array([0]),
        )


def cold(table, slot):
    return table.predict_slots()[slot]


def test_it_learns_conditional_acceptance_not_survival():
    survival = np.array([0.681, 0.391, 0.204])
    q = survival / np.array([1.0, 0.681, 0.391])
    table = AcceptanceTable(2, 3, window_tokens=20_000.0)
    grade(table, np.random.default_rng(0), q, drafts=6000)
    assert cold(table, 0) == pytest.approx(q, abs=0.03)
    learned = table.survival(np.array([0]), np.array([0]))[0]
    assert 1 + learned.sum() == pytest.approx(2.276, abs=0.06)  # multiplied twice: 2.002


def test_a_request_is_predicted_by_its_own_history():
    table = AcceptanceTable(1, 4)
    rng = np.random.default_rng(1)
    for _ in range(40):
        grade(table, rng, [0.9] * 4, row=1, drafts=2)
        grade(table, rng, [0.3] * 4, row=2, drafts=4)
    good, bad, unknown = table.survival(np.zeros(3, dtype=int), np.array([1, 2, 0]))[:, 0]
    assert good > 0.75
    assert bad < 0.45
    assert bad < unknown < good


def test_a_new_slot_starts_at_its_pool_and_never_at_another_pools():
    table = AcceptanceTable(8, 2)
    table.open_slot(1, pool=0)
    table.open_slot(4, pool=4)
    rng = np.random.default_rng(2)
    grade(table, rng, [0.95, 0.95], slot=1, drafts=400)
    grade(table, rng, [0.1, 0.1], slot=4, drafts=400)
    table.open_slot(2, pool=0)
    table.open_slot(5, pool=4)
    assert cold(table, 2)[0] > 0.85
    assert cold(table, 5)[0] < 0.25


def test_one_slots_odd_traffic_leaves_a_warm_neighbour_alone():
    table = AcceptanceTable(4, 2)
    table.open_slot(1, pool=0)
    table.open_slot(2, pool=0)
    rng = np.random.default_rng(3)
    grade(table, rng, [0.8, 0.8], slot=1, drafts=400)
    before = cold(table, 1).copy()
    grade(table, rng, [0.0, 0.0], slot=2, drafts=400)
    grade(table, rng, [0.8, 0.8], slot=1, drafts=1)
    assert cold(table, 1) == pytest.approx(before, abs=0.05)


def test_after_a_shift_it_is_right_again_within_some_windows():
    table = AcceptanceTable(1, 3, window_tokens=200.0)
    rng = np.random.default_rng(4)
    grade(table, rng, [0.8] * 3, drafts=500)
    grade(table, rng, [0.5] * 3, drafts=600)
    assert cold(table, 0)[:2] == pytest.approx([0.5] * 2, abs=0.1)


def test_save_and_load_mid_stream_gives_the_same_bits():
    table = AcceptanceTable(2, 3)
    grade(table, np.random.default_rng(5), [0.7, 0.5, 0.5], drafts=37)
    copy = AcceptanceTable(2, 3)
    copy.load(table.state())
    for each in (table, copy):
        grade(each, np.random.default_rng(6), [0.4, 0.5, 0.5], drafts=11)
    assert (cold(table, 0) == cold(copy, 0)).all()
    with pytest.raises(ValueError, match=r"must be \(2, 3\), got \(2, 4\)"):
        table.load(AcceptanceTable(2, 4).state())


def test_positions_beyond_the_table_are_refused():
    table = AcceptanceTable(1, 3)
    one = np.array([0])
    with pytest.raises(ValueError, match=r"must be in \[1, 3\]"):
        table.learn(one, one, start=one + 2, graded=one + 2, matched=one, fresh=one)


@settings(max_examples=50, deadline=None)
@given(
    runs=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 4), st.booleans()),
        max_size=60,
    )
)
def test_predictions_stay_probabilities_and_survival_never_rises(runs):
    table = AcceptanceTable(4, 4)
    for slot, row, count, hit in runs:
        table.learn(
            np.array([slot]),
            np.array([row]),
            start=np.array([0]),
            graded=np.array([count]),
            matched=np.array([count if hit else max(count - 1, 0)]),
            fresh=np.array([count]),
        )
    survival = table.survival(np.repeat(np.arange(4), 8), np.tile(np.arange(8), 4))
    assert np.isfinite(survival).all()
    assert ((survival > 0) & (survival <= 1)).all()
    assert (np.diff(survival, axis=1) <= 0).all()
