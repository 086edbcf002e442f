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


def test_a_steady_stream_is_known_far_better_than_one_window_could():
    """A window of 400 tokens alone scatters by .025 and more; the long memory takes over."""
    rng, errors = np.random.default_rng(7), []
    for seed in range(5):
        table = AcceptanceTable(1, 2)
        grade(table, np.random.default_rng(seed), [0.7, 0.6], drafts=6_000)
        for _ in range(20):
            grade(table, rng, [0.7, 0.6], drafts=20)
            errors.append(cold(table, 0) - [0.7, 0.6])
    assert np.sqrt(np.mean(np.square(errors), axis=0)) == pytest.approx([0.0, 0.0], abs=0.02)


def test_after_a_shift_the_short_memory_is_believed_at_once():
    table, rng = AcceptanceTable(1, 2), np.random.default_rng(8)
    grade(table, rng, [0.9, 0.9], drafts=4_000)
    grade(table, rng, [0.3, 0.3], drafts=150)
    assert cold(table, 0)[0] == pytest.approx(0.3, abs=0.12)


def test_a_position_that_is_not_verified_keeps_what_was_learned_of_it():
    table, rng = AcceptanceTable(1, 3), np.random.default_rng(9)
    grade(table, rng, [0.8, 0.8, 0.3], drafts=2_000)
    grade(table, rng, [0.8], drafts=20_000)
    assert cold(table, 0) == pytest.approx([0.8, 0.8, 0.3], abs=0.08)
    assert table.evidence(np.array([0]))[0, 2] > 500


def test_how_far_a_request_is_believed_follows_from_how_requests_differ():
    """Alike requests must not be told apart by luck; unlike ones must be."""

    def offsets(spread):
        table, rng = AcceptanceTable(1, 1), np.random.default_rng(10)
        for row in range(1, 61):
            table.open_request(row)
            q = float(np.clip(0.6 + spread * rng.choice([-1, 1]), 0.05, 0.95))
            grade(table, rng, [q], row=row, drafts=60)
        return np.abs(table.offset[31:61]).mean()

    assert offsets(0.0) < 0.08
    assert offsets(0.3) > 0.7


def test_an_alarm_leaves_the_short_memorys_evidence_and_a_declared_change_hardly_any():
    table, rng = AcceptanceTable(1, 2), np.random.default_rng(11)
    grade(table, rng, [0.8, 0.8], drafts=3_000)
    believed = cold(table, 0).copy()
    table.catch_up(0)
    assert cold(table, 0) == pytest.approx(believed, abs=0.1)
    assert table.graded[:, 0].sum() == pytest.approx(3 * table.graded[0, 0].sum())
    table.shake()
    assert cold(table, 0) == pytest.approx(believed, abs=0.2)  # the best guess is kept
    assert (table.graded.sum(axis=-1) <= 20.0 + 1e-9).all()
    grade(table, rng, [0.3, 0.3], drafts=60)
    assert cold(table, 0)[0] == pytest.approx(0.3, abs=0.15)


def test_save_and_load_mid_stream_gives_the_same_bits():
    table = AcceptanceTable(2, 3)
    grade(table, np.random.default_rng(5), [0.7, 0.5, 0.5], drafts=37)
    copy = AcceptanceTable(2, 3)
    copy.load(table.state())
    for each in (table, copy):
        grade(each, np.random.default_rng(6), [0.4, 0.5, 0.5], drafts=11)
    assert (cold(table, 0) == cold(copy, 0)).all()
    with pytest.raises(ValueError, match=r"must have shape \(3, 2, 3\), got \(3, 2, 4\)"):
        table.load(AcceptanceTable(2, 4).state())


def test_positions_beyond_the_table_are_refused():
    table = AcceptanceTable(1, 3)
    one = np.array([0])
    with pytest.raises(ValueError, match=r"must be in \[1, 3\]"):
        table.learn(one, one, start=one + 2, graded=one + 2, matched=one)


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
        )
    survival = table.survival(np.repeat(np.arange(4), 8), np.tile(np.arange(8), 4))
    assert np.isfinite(survival).all()
    assert ((survival > 0) & (survival <= 1)).all()
    assert (np.diff(survival, axis=1) <= 0).all()
