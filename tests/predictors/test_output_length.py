"""How long answers get is known by class, and an answer that goes on is compared with long ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.output_length import OutputLength


def test_nothing_is_claimed_of_a_class_that_was_hardly_seen():
    lengths = OutputLength(2)
    for _ in range(4):
        lengths.learn(1, 100)
    assert lengths.expected(1, 1) == math.inf
    for _ in range(4):
        lengths.learn(1, 100)
    assert 100 <= lengths.expected(1, 1) <= 120  # the longest of its bucket
    assert lengths.expected(0, 1) == math.inf


def test_an_answer_that_outlived_the_short_ones_is_expected_to_be_long():
    lengths = OutputLength(1, quantile=0.5)
    for _ in range(60):
        lengths.learn(0, 1000)
        for _ in range(4):
            lengths.learn(0, 10)
    assert lengths.expected(0, 1) == 10
    assert 1000 <= lengths.expected(0, 11) <= 1200


def test_a_class_follows_its_traffic():
    lengths = OutputLength(1, window_answers=50)
    for tokens in [2000] * 300 + [20] * 300:
        lengths.learn(0, tokens)
    assert lengths.expected(0, 1) <= 22


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-5, 100_000), max_size=80), st.integers(-5, 100_000))
def test_the_expected_end_is_never_behind_what_is_written(answers, written):
    lengths = OutputLength(1, max_tokens=4096)
    for tokens in answers:
        lengths.learn(0, tokens)
    assert lengths.expected(0, written) > min(max(written, 0), 4096) - 1
    assert not np.isnan(lengths.table).any()
    other = OutputLength(1, max_tokens=4096)
    other.load(lengths.state())
    assert other.expected(0, written) == lengths.expected(0, written)


def test_a_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="counts must have shape"):
        OutputLength(2).load(OutputLength(3).state())
    with pytest.raises(ValueError, match=r"quantile must be in \(0, 1\), got 1.0"):
        OutputLength(1, quantile=1.0)
