"""Targets that need drafts: the kernel against its definition, and what a step gives up for one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acclimate.controller.bounds import StepBounds
from acclimate.controller.reasons import Reason
from acclimate.controller.records import Candidates, int_array
from acclimate.controller.rescue import rescued_tokens
from acclimate.controller.select import Selection, chain_candidates, first_best


@given(st.integers(0, 2**32 - 1))
def test_it_is_what_its_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 6)), int(rng.integers(0, 20))
    request = rng.integers(0, n, m)
    order, survival = rng.permutation(m), rng.random(m)
    times = np.sort(rng.uniform(5.0, 30.0, m + 1))
    pace = np.where(rng.random(n) < 0.3, math.inf, rng.uniform(2.0, 20.0, n))
    stake = 1.0 + rng.random(n)
    found = rescued_tokens(order, request, survival, times, pace, stake)
    for count in range(m + 1):
        written = np.ones(n)
        np.add.at(written, request[order[:count]], survival[order[:count]])
        kept = written * pace >= times[count]
        use = float((written * stake)[kept & np.isfinite(pace)].sum())
        assert found[count] == pytest.approx(use, abs=1e-9)


def _choice(worth: np.ndarray, times: np.ndarray, price: float) -> tuple[Candidates, Selection]:
    candidates = chain_candidates(worth, int_array([worth.shape[1]] * worth.shape[0]))
    order = np.argsort(-candidates.survival, kind="stable")
    earned = np.concatenate(([0.0], candidates.survival[order].cumsum()))
    gains = earned - price * (times - times[0])
    return candidates, Selection(order, earned, gains, first_best(gains))


def _bounds(times: np.ndarray, need_ms: list[float], stake: list[float]) -> StepBounds:
    free = np.full(len(need_ms), math.inf)
    bounds = StepBounds(times, math.inf, math.inf, free, np.zeros(len(need_ms)))
    return bounds._replace(need_ms=np.array(need_ms), stake=np.array(stake), curve_ms=times)


def test_neighbours_verify_less_while_a_target_can_still_be_met_and_no_longer() -> None:
    # The first request needs a token every 9 ms and has drafts; the second has better ones.
    worth, times = np.array([[0.7, 0.1], [0.6, 0.5]]), np.array([10.0, 12.0, 16.0, 20.0, 24.0])
    candidates, selection = _choice(worth, times, 0.1)
    assert selection.count == 3
    kept = _bounds(times, [9.0, math.inf], [2.0, 1.0]).limit(
        selection, candidates, candidates.survival
    )
    assert (kept.selection.count, kept.reason) == (1, Reason.RESCUE)
    # 1.7 tokens in 12 ms would be 7 ms each: for less than that nothing can be done.
    given_up = _bounds(times, [6.9, math.inf], [2.0, 1.0]).limit(
        selection, candidates, candidates.survival
    )
    assert (given_up.selection.count, given_up.reason) == (3, None)


def test_a_request_verifies_more_than_pays_if_that_keeps_its_target() -> None:
    worth, times = np.array([[0.5, 0.4]]), np.array([10.0, 12.0, 13.0])
    candidates, selection = _choice(worth, times, 0.5)
    assert selection.count == 0
    kept = _bounds(times, [7.0], [1.5]).limit(selection, candidates, candidates.survival)
    assert (kept.selection.count, kept.reason) == (2, Reason.RESCUE)
