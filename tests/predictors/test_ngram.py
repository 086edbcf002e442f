"""The back-off n-gram model: counts, back-off, own text, and probabilities that mean something."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.predictors.ngram import BackoffModel, Levels, learn_weights, train_backoff
from acclimate.predictors.ngram_kernels import N_BUCKETS
from acclimate.predictors.ngram_tables import NgramTables, build_tables


def _random_text(rng: np.random.Generator, length: int) -> np.ndarray:
    """A text in which the token after next depends on the last two, with noise."""
    ids = [1, 2]
    while len(ids) < length:
        likely = (3 * ids[-1] + 5 * ids[-2]) % 17
        ids.append(likely if rng.random() < 0.8 else int(rng.integers(17)))
    return np.array(ids)


@pytest.fixture(scope="module")
def model() -> BackoffModel:
    rng = np.random.default_rng(0)
    return train_backoff([(_random_text(rng, 200), 2) for _ in range(60)], order=3)


def test_it_finds_the_rule_and_knows_how_sure_it_may_be(model: BackoffModel) -> None:
    rng = np.random.default_rng(1)
    right, sure = [], []
    for _ in range(40):
        text = _random_text(rng, 100)
        best, confidence = model.rank(text, 3, 1)
        right += (best[:, 0] == text[3:]).tolist()
        sure += confidence[:, 0].tolist()
    share = float(np.mean(right))
    # The rule holds for 0.8 + 0.2 / 17 of all tokens.
    assert share == pytest.approx(0.81, abs=0.03)
    # A mixture is on the careful side of the truth.
    assert share - 0.15 < float(np.mean(sure)) < share + 0.02


def test_drafts_follow_each_other_and_rows_of_a_table_are_drafted_alike(
    model: BackoffModel,
) -> None:
    text = np.array([4, 7, 1, 2])
    drafts, confidence = model.draft(text, 5)
    so_far = text.tolist()
    for token, sure in zip(drafts.tolist(), confidence.tolist(), strict=True):
        again, alone = model.draft(np.array(so_far), 1)
        assert (again.tolist(), alone.tolist()) == ([token], [pytest.approx(sure)])
        so_far.append(token)
    table = np.zeros((3, 20), dtype=np.int32)
    table[2, :4] = text
    rows, ends = np.array([2]), np.array([4])
    made, said = model.draft_rows(table, rows, ends, np.zeros(30, dtype=np.int64), 5)
    assert made[0].tolist() == drafts.tolist()
    assert said[0].tolist() == confidence.tolist()


def test_the_requests_own_text_is_copied_where_it_repeats() -> None:
    model = train_backoff([(np.array([1, 2, 3] * 20), 1)] * 20, order=2)
    own = np.array([40, 41, 42, 43, 44, 45, 50, 40, 41, 42])
    assert model.draft(own, 3)[0].tolist() == [43, 44, 45]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=2, max_size=40), min_size=2, max_size=12))
def test_candidates_are_no_likelier_than_certain(texts: list[list[int]]) -> None:
    model = train_backoff([(np.array(text), 1) for text in texts], order=3)
    best, confidence = model.rank(np.array(texts[0]), 1, 8)
    assert ((confidence >= 0) & (confidence <= 1 + 1e-9)).all()
    assert (confidence.sum(axis=1) <= 1 + 1e-9).all()
    assert (np.diff(confidence, axis=1) <= 1e-12).all()
    for row in best:
        named = row[row >= 0]
        assert len(set(named.tolist())) == named.shape[0]


def test_a_context_that_could_say_nothing_new_is_left_out() -> None:
    text = np.array([1, 2, 3, 1, 2, 4])
    tables = build_tables([(text, 1)], order=2)
    lengths = np.diff(tables.starts).tolist()
    # After 1 always comes 2: that 3 1 is followed by 2 as well says nothing. After 2 come 3 and 4,
    # and so do they after 1 2.
    assert lengths == [1, 3, 1]
    assert tables.tokens[tables.begins[-2] :].tolist() == [3, 4]


def test_prompts_are_context_and_never_counted_as_successors() -> None:
    tables = build_tables([(np.array([9, 9, 9, 5]), 3)], order=1)
    assert set(tables.tokens.tolist()) == {5}


def test_what_does_not_fit_together_is_refused(model: BackoffModel) -> None:
    tables = model.tables
    with pytest.raises(ValueError, match="order must be >= 1, got 0"):
        build_tables([(np.array([1, 2]), 1)], order=0)
    with pytest.raises(ValueError, match="texts must hold successors"):
        build_tables([(np.array([1]), 1)], order=1)
    with pytest.raises(ValueError, match="weights must have shape"):
        BackoffModel(tables, np.zeros((1, 1)))
    with pytest.raises(ValueError, match=r"weights must be in \[0, 1\]"):
        BackoffModel(tables, np.full((len(Levels.of(3)), N_BUCKETS), 2.0))
    with pytest.raises(ValueError, match="add up to"):
        NgramTables.of(3, tables.starts, tables.keys, tables.sizes + 1, tables.totals,
                       tables.tokens, tables.counts)  # fmt: skip
    with pytest.raises(ValueError, match="tokens to predict"):
        learn_weights(tables, [(np.array([1]), 1)])
