"""Rows from outside: each is a run that can be learned, or dropped under one name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.acceptance_mix import AcceptanceMix
from acclimate.predictors.graded_runs import GradedRuns

ANY = st.one_of(
    st.integers(-2, 6).map(float), st.floats(allow_nan=True, allow_infinity=True), st.just(1e300)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[ANY] * 5), min_size=1, max_size=20))
def test_every_row_is_taken_or_counted_and_what_is_taken_can_be_learned(rows):
    runs = GradedRuns(n_slots=2, n_rows=4, max_depth=3)
    kept = runs.take(np.array(rows))
    assert runs.taken + runs.dropped.total() == len(rows)
    mix = AcceptanceMix(2, 3)
    mix.learn(*kept)
    assert not mix.model.dropped
    q = mix.predict_slots()
    assert ((q >= 0.0) & (q <= 1.0)).all()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ((0, 1, 0, np.nan, np.inf), "not a number"),
        ((0, -np.inf, 0, 1, 1), "infinite"),
        ((0, 1, -0.5, 1, 1), "negative"),
        ((0, 1, 2, 2, 1), "too large"),
        ((2, 1, 0, 1, 1), "too large"),
        ((0, 1, 0, 1, 2), "more accepted than drafted"),
    ],
)
def test_reasons(row, reason):
    runs = GradedRuns(n_slots=2, n_rows=4, max_depth=3)
    runs.take(np.array([row]))
    assert dict(runs.dropped) == {reason: 1}


def test_a_table_of_other_columns_is_refused():
    with pytest.raises(ValueError, match="table must have 5 columns"):
        GradedRuns(1, 1, 1).take(np.zeros((2, 4)))
