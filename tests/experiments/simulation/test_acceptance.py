"""Laws of acceptance, their shifts, and what an oracle may know of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.experiments.simulation.acceptance import (
    ConfidentDrafts,
    DrawnDrafts,
    Shift,
)
from acclimate.experiments.simulation.recorded_drafts import RecordedDrafts
from acclimate.experiments.simulation.regimes import Regime, to_survival
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.simulation.truth import DrawnTruth

N = 40_000
ROWS = np.arange(N)
HIGH, LOW = Regime.of_survival([0.8, 0.6]), Regime.of_survival([0.4, 0.1])


def survivals(drafts: DrawnDrafts, now_s: float, offset: int = 3) -> list[float]:
    _, run = drafts.draw(ROWS, np.full(N, offset), now_s)
    return [float((run >= i).mean()) for i in range(1, drafts.max_depth + 1)]


@settings(max_examples=20, deadline=None)
@given(
    conditional=st.lists(st.floats(0.02, 0.98), min_size=1, max_size=6),
    spread=st.floats(0, 1.5),
    scatter=st.floats(0, 1.5),
    b=st.sampled_from([-0.5, 0.7, 1.0]),
)
def test_a_law_keeps_the_survival_it_was_given(
    conditional: list[float], spread: float, scatter: float, b: float
) -> None:
    """However requests and tokens differ, their mean is the table."""
    law = Regime.of_survival(to_survival(conditional), spread=spread, scatter=scatter, a=0.3, b=b)
    assert law.survival() == pytest.approx(np.cumprod(conditional), abs=1e-9)


def test_survival_is_never_multiplied_twice() -> None:
    """[0.681, 0.391, 0.204] is an acceptance length of 2.276; multiplied again it reads 2.002."""
    table = [0.681, 0.391, 0.204]
    assert 1 + Regime.of_survival(table).survival().sum() == pytest.approx(2.276)
    assert 1 + Regime.of_survival(to_survival(table)).survival().sum() == pytest.approx(
        2.002, abs=5e-4
    )
    with pytest.raises(ValueError, match="survival must never rise"):
        Regime.of_survival([0.5, 0.6])


def test_drafts_of_one_request_share_their_luck_at_large() -> None:
    """With a spread, some requests are good throughout; without, all are alike."""
    law = Regime.of_survival([0.7], spread=1.0)
    drafts = DrawnDrafts([law], (0,), np.zeros(400, dtype=np.int64))
    rows = np.repeat(np.arange(400), 200)
    _, run = drafts.draw(rows, np.tile(np.arange(200), 400), 0.0)
    shares = run.reshape(400, 200).mean(axis=1)
    assert shares.mean() == pytest.approx(0.7, abs=0.03)
    assert shares.std() > 4 * np.sqrt(0.7 * 0.3 / 200)
    truth = DrawnTruth(drafts, TableTime([1, 1], [0, 1], [6.0, 7.0]))
    known = truth.survival(np.arange(1, 401), 0)[:, 0]
    assert np.abs(shares - known).mean() < 0.03


@pytest.mark.parametrize(
    ("shift", "shares"),
    [
        (Shift(at_s=10.0, regime_of=(1,)), {9.9: 0.0, 10.1: 1.0, 99.0: 1.0}),
        (Shift(at_s=10.0, regime_of=(1,), over_s=10.0), {9.9: 0.0, 15.0: 0.5, 21.0: 1.0}),
        (Shift(at_s=10.0, regime_of=(1,), for_s=5.0), {12.0: 1.0, 16.0: 0.0}),
        (
            Shift(at_s=10.0, regime_of=(1,), for_s=5.0, every_s=20.0),
            {12.0: 1.0, 16.0: 0.0, 32.0: 1.0, 36.0: 0.0},
        ),
    ],
    ids=["abrupt", "gradual", "passing", "recurring"],
)
def test_what_is_drawn_follows_the_schedule(shift: Shift, shares: dict[float, float]) -> None:
    drafts = DrawnDrafts([HIGH, LOW], (0,), np.zeros(N, dtype=np.int64), shifts=[shift])
    for now_s, share in shares.items():
        expected = (1 - share) * HIGH.survival() + share * LOW.survival()
        assert survivals(drafts, now_s) == pytest.approx(expected, abs=0.012), now_s
        assert drafts.weights(now_s)[0] == pytest.approx([1 - share, share])


def test_one_domain_of_many_and_all_at_once() -> None:
    domain_of = ROWS % 2
    one = Shift(at_s=1.0, regime_of=(1, -1))
    drafts = DrawnDrafts([HIGH, LOW], (0, 0), domain_of, shifts=[one])
    _, run = drafts.draw(ROWS, np.zeros(N, dtype=np.int64), 2.0)
    assert (run[domain_of == 0] >= 1).mean() == pytest.approx(0.4, abs=0.02)
    assert (run[domain_of == 1] >= 1).mean() == pytest.approx(0.8, abs=0.02)
    truth = DrawnTruth(drafts, TableTime([1, 1], [0, 1], [6.0, 7.0]))
    assert truth.change_points_ns == (1_000_000_000,)
    assert truth.survival(np.array([1, 2]), 2 * 10**9)[:, 0] == pytest.approx([0.4, 0.8])


def test_covariate_and_calibration_shift_differ_in_confidence_alone() -> None:
    base = Regime.of_survival([0.75, 0.55], scatter=1.0)
    moved, recalibrated = base.moved(-1.2), base.recalibrated(-1.2, 1.0)
    assert moved.survival() == pytest.approx(recalibrated.survival(), abs=1e-9)
    domain_of = np.zeros(N, dtype=np.int64)
    means, errors = [], []
    for law in (base, moved, recalibrated):
        drafts = ConfidentDrafts([law], (0,), domain_of)
        _, run, confidence = drafts.draw_confident(ROWS, np.zeros(N, dtype=np.int64), 0.0)
        means.append(float(confidence[:, 0].mean()))
        errors.append(means[-1] - float((run >= 1).mean()))
    assert means[1] < means[0] - 0.15  # the drafter knows that its tokens are harder
    assert means[2] == pytest.approx(means[0])  # it is as sure as before
    assert errors[:2] == pytest.approx([0.0, 0.0], abs=0.01)
    assert errors[2] > 0.15


def test_reach_cuts_drafts_and_never_their_luck() -> None:
    short = Regime.of_survival([0.8, 0.6], reach=[0.7, 0.3])
    domain_of = np.zeros(N, dtype=np.int64)
    offsets = np.zeros(N, dtype=np.int64)
    length, run = DrawnDrafts([short], (0,), domain_of).draw(ROWS, offsets, 0.0)
    _, whole = DrawnDrafts([HIGH], (0,), domain_of).draw(ROWS, offsets, 0.0)
    assert [(length >= i).mean() for i in (1, 2)] == pytest.approx([0.7, 0.3], abs=0.01)
    assert (run == np.minimum(whole, length)).all()


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"run must be in \[0, length\]"):
        RecordedDrafts(np.array([0]), np.array([1]), np.array([2]), 2)
    with pytest.raises(ValueError, match="all regimes must have one depth, got"):
        DrawnDrafts([HIGH, Regime.of_survival([0.5])], (0,), np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match=r"for_s must be in \(0, every_s - over_s 5.0\]"):
        Shift(at_s=0.0, regime_of=(1,), every_s=5.0)
