"""Controlled engines write the same greedy tokens as one that does not speculate (float32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine

# Log-odds between two tokens that rounding can turn: a logit between 16 and 32 has steps of 0.125.
NEAR_TIE = 0.5


@pytest.mark.parametrize("what", ["ngram", "draft_self", "draft_cut"])
def test_scripted_play_changes_no_token(drive: Callable[[str], Any], what: str) -> None:
    played = drive(what)
    for tokens in played["tokens"]:
        assert tokens == drive("reference")["tokens"]
    status, seen = played["status"], played["seen"]
    assert status["depth_switches"] >= 20
    assert status["faults"] == status["violations"] == status["bridge_faults"] == 0
    assert status["stock_steps"] == status["late_calls"] == 0
    assert status["unmatched_outputs"] == 0 and status["live_requests"] == 0
    # A tenant of 99 characters each.
    assert status["rejected_metadata"] == status["requests"] >= 12
    assert played["log"].count("acclimate active: policy shuffled") == 1
    assert seen["verified"] >= 1_000
    if what == "draft_self":
        assert seen["accepted"] == seen["verified"] and seen["matched"] == seen["graded"]
    else:
        assert 0 < seen["accepted"] < seen["verified"] and seen["matched"] < seen["graded"]


@pytest.mark.parametrize(
    ("fault", "counter", "said"),
    [
        ("raises", "faults", "error: plan raised RuntimeError"),
        ("late", "late_calls", "late: plan took"),
        ("nonsense", "faults", "invalid: draft_depth must be in [0, 4], got -7"),
    ],
)
def test_a_faulty_policy_costs_no_token(
    drive: Callable[[str], Any], fault: str, counter: str, said: str
) -> None:
    run = drive("ngram")["faults"][fault]
    assert run["tokens"] == [tokens[:48] for tokens in drive("reference")["tokens"][:4]]
    assert run["raised"][counter] == 1
    assert [line for line in run["lines"] if line.startswith(said)] == run["lines"]
    assert len(run["lines"]) == 1
    # Late: the next step is stock. A fault: stock until the back-off of ten seconds has passed.
    stock, steps = run["raised"]["stock_steps"], run["raised"]["steps"]
    assert stock == 1 if fault == "late" else 1 <= stock < steps


def test_in_bfloat16_texts_part_at_near_ties_alone(drive: Callable[[str], Any]) -> None:
    """Verifying several tokens rounds differently from verifying one, controlled or not."""
    run = drive("bfloat16")
    assert run["status"]["faults"] == run["status"]["violations"] == 0
    assert run["seen"]["verified"] >= 500
    assert len(run["gaps"]) < run["prompts"]
    assert all(gap < NEAR_TIE for gap in run["gaps"]), run["gaps"]
