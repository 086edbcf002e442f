"""Bootstrap over prompts against scipy, Holm against published answers, and the best static arm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap

from acclimate.experiments.statistics import (
    holm,
    inferiority_p,
    interval,
    median_speeds,
    resample,
    speeds,
)


def _prompts(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Tokens, and seconds of two arms of which the second is faster on average."""
    rng = np.random.default_rng(5)
    tokens = rng.integers(20, 64, size=n).astype(np.float64)
    return tokens, tokens * rng.lognormal(np.log([[0.05], [0.045]]), 0.2, size=(2, n))


def test_intervals_of_a_ratio_are_those_of_scipy() -> None:
    tokens, seconds = _prompts()
    index = resample(tokens.size, np.random.default_rng(0), 20_000)
    slow, fast = speeds(tokens, seconds, index)
    ours = interval("a", 1.0, fast / slow, tokens.size)

    def ratio(slow_s: np.ndarray, fast_s: np.ndarray, axis: int = -1) -> np.ndarray:
        return slow_s.sum(axis=axis) / fast_s.sum(axis=axis)

    theirs = bootstrap(
        tuple(seconds), ratio, paired=True, vectorized=True, method="percentile",
        n_resamples=20_000, rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert ours.low == pytest.approx(theirs.low, abs=0.003)
    assert ours.high == pytest.approx(theirs.high, abs=0.003)


def test_intervals_of_a_median_are_those_of_scipy() -> None:
    _, seconds = _prompts()
    index = resample(seconds.shape[1], np.random.default_rng(0), 20_000)
    ours = interval("a", 1.0, 1 / median_speeds(seconds, index)[0], seconds.shape[1])
    theirs = bootstrap(
        (seconds[0],), np.median, method="percentile", n_resamples=20_000,
        rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    assert ours.low == pytest.approx(theirs.low, rel=0.01)
    assert ours.high == pytest.approx(theirs.high, rel=0.01)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(3)
    covered, trials, truth = 0, 300, 0.05 / 0.045
    for _ in range(trials):
        seconds = rng.lognormal(np.log([[0.05], [0.045]]), 0.2, size=(2, 60))
        slow, fast = speeds(np.ones(60), seconds, resample(60, rng, 1_000))
        figure = interval("a", truth, fast / slow, 60)
        assert figure.low is not None and figure.high is not None
        covered += figure.low <= truth <= figure.high
    assert 0.90 <= covered / trials <= 0.98


def test_a_best_static_arm_chosen_beforehand_flatters_its_rival() -> None:
    """Two depths, each the faster one on half of the prompts, and a rival as fast as their mean.

    In some draws of prompts the one depth is best, in some the other. A depth that was picked on
    the sample stays in draws in which it is the slower one, and the rival seems to win in half of
    them; against the best of each draw it never does.
    """
    rng = np.random.default_rng(2)
    n = 40
    first = np.where(np.arange(n) < n // 2, 0.04, 0.06)
    seconds = np.stack([first, first[::-1], np.full(n, 0.05)]) * rng.lognormal(0, 0.001, size=n)
    drawn = speeds(np.ones(n), seconds, resample(n, rng))
    statics, rival = drawn[:2], drawn[2]
    picked = int(np.argmax(speeds(np.ones(n), seconds)[:2]))
    outside, inside = rival / statics[picked], rival / statics.max(axis=0)
    assert 0.4 < np.mean(outside > 1.0) < 0.6
    assert np.mean(inside > 1.001) == 0.0
    assert interval("a", 1.0, inside, n).high < 1.01 < interval("a", 1.0, outside, n).high  # type: ignore[operator]


def test_non_inferiority_is_a_lower_bound() -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal(1.0, 0.02, size=4_000)
    bound = np.quantile(draws, 0.05)
    assert inferiority_p(draws, bound - 1e-3) < 0.05 < inferiority_p(draws, bound + 1e-3)
    assert inferiority_p(draws, 0.5) == pytest.approx(1 / 4_001)


def test_holm_on_published_examples() -> None:
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.0241, 0.0002, 0.5, 0.9]) == pytest.approx([0.0723, 0.0008, 1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_order_and_lies_between_nothing_and_bonferroni(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(a <= b <= min(1.0, len(p) * a) + 1e-12 for a, b in zip(p, adjusted, strict=True))
    in_order = [adjusted[int(i)] for i in np.argsort(p, kind="stable")]
    assert in_order == sorted(adjusted)


@pytest.mark.parametrize(("n", "resamples"), [(0, 10), (3, 0)])
def test_there_must_be_something_to_draw(n: int, resamples: int) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        resample(n, np.random.default_rng(0), resamples)
