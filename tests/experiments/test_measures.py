"""Metrics of runs: published figures, undefined ones, and paired runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from acclimate.experiments.measures import (
    domain_ratios,
    harmed_share,
    measure,
    met_targets,
    worst_domain,
)
from acclimate.experiments.run_record import STEP_COUNTS, Gaps, Run, Steps, StepTotals


def run_of(first_s: list[float], last_s: list[float], tokens: list[int], **changes: Any) -> Run:
    n = len(tokens)
    fields: dict[str, Any] = {
        "policy": "k0",
        "max_depth": 3,
        "begun_s": 0.0,
        "ended_s": max([*last_s, 0.0]),
        "request": np.arange(1, n + 1),
        "arrival_s": np.zeros(n),
        "first_token_s": np.array(first_s),
        "last_token_s": np.array(last_s),
        "tokens": np.array(tokens),
        "finished": np.ones(n, dtype=bool),
        "domain": ("code", "chat"),
        "domain_of": np.arange(n) % 2,
        "gaps": Gaps(),
        "totals": StepTotals(),
        **changes,
    }
    return Run(**fields)


def test_mean_gap_is_not_the_time_per_token() -> None:
    """512 tokens in about 96 chunks: the mean gap is 11.18 ms, the true TPOT 2.08 ms."""
    gaps_s = np.full(95, 11.18e-3)
    span_s = float(gaps_s.sum())
    run = run_of([0.5], [0.5 + span_s], [512], gaps=Gaps.of(gaps_s))
    found = measure(run)
    assert found.tpot_p50_ms == pytest.approx(2.08, abs=0.005)
    assert found.itl_p50_ms == pytest.approx(11.18, rel=0.01)
    assert 1e3 * (run.gaps.mean_s or 0.0) == pytest.approx(11.18)


def test_nothing_measured_is_none_and_never_nan() -> None:
    found = measure(run_of([], [], []))
    for field in dataclasses.fields(found):
        assert getattr(found, field.name) in (None, 0, ()), field.name
    lonely = measure(run_of([1.0], [1.0], [1]))
    assert lonely.tpot_p50_ms is None and lonely.ttft_p50_ms == 1000.0
    waiting = run_of([np.nan], [np.nan], [0], finished=np.zeros(1, dtype=bool), ended_s=1.0)
    assert measure(waiting).ttft_p99_ms is None
    assert harmed_share(waiting, waiting) is None
    assert worst_domain(waiting, waiting) is None


def test_per_step_counts_of_a_published_report() -> None:
    """Accepted [7,5,5,4,1,7,7,7,7,7,7,3] of 7 drafted each: 67 of 84."""
    accepted = np.array([7, 5, 5, 4, 1, 7, 7, 7, 7, 7, 7, 3], dtype=np.int32)
    steps = accepted.size
    counts = {name: np.zeros(steps, dtype=np.int32) for name in STEP_COUNTS}
    counts |= {
        "decode_requests": np.ones(steps, dtype=np.int32),
        "verified": np.full(steps, 7, dtype=np.int32),
        "accepted": accepted,
        "committed": accepted + 1,
        "depth": np.array([7] * 6 + [3] * 6, dtype=np.int32),
    }
    log = Steps(begun_s=np.arange(steps) * 0.01, duration_ms=np.full(steps, 10.0), **counts)
    totals = StepTotals.of(log, max_depth=7)
    lens = np.array([0] * 7 + [steps])
    found = measure(run_of([0.0], [0.11], [80], totals=totals, verify_lens=lens))
    assert found.wasted_verify_share == pytest.approx(1 - 67 / 84)
    assert found.acceptance_length == pytest.approx(67 / 12 + 1)
    assert found.switches == 1
    assert found.depth_shares[3] == found.depth_shares[7] == 0.5
    assert found.decode_tokens_per_s == pytest.approx(79 / 0.12)


def test_harm_is_judged_by_targets_where_there_are_any() -> None:
    base = run_of([0.1, 0.1, 0.1], [1.1, 1.1, 1.1], [11, 11, 11])
    slower = run_of([0.1, 0.1, 0.1], [1.2, 1.1, 1.14], [11, 11, 11])
    assert harmed_share(slower, base) == pytest.approx(1 / 3)
    targets = {"tpot_target_s": np.array([0.2, 0.09, np.nan])}
    base, slower = dataclasses.replace(base, **targets), dataclasses.replace(slower, **targets)
    # The first is slower within its target, the second misses it in both, the third has none.
    assert met_targets(slower).tolist()[:2] == [1.0, 0.0]
    assert harmed_share(slower, base) == 0.0
    assert measure(slower).slo_attainment == 0.5
    assert measure(slower).goodput_tokens_per_s == pytest.approx(11 / 1.2)


def test_domains_are_compared_over_requests_that_finished_in_both_runs() -> None:
    base = run_of([0.0] * 4, [1.0, 1.0, 1.0, 1.0], [11, 11, 11, 11])
    arm = run_of(
        [0.0] * 4, [0.5, 2.0, 0.5, 9.0], [11, 11, 11, 11], finished=np.array([1, 1, 1, 0], bool)
    )
    assert domain_ratios(arm, base) == {"code": 2.0, "chat": 0.5}
    assert worst_domain(arm, base) == ("chat", 0.5)
