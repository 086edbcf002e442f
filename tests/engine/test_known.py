"""An engine whose acceptance is known: what is learned must be the truth, and a shift be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def test_learned_acceptance_is_the_truth_before_and_after_a_shift(
    drive: Callable[[str], Any],
) -> None:
    run = drive("known")
    assert [phase["chances"]["high"] for phase in run["phases"]] == [0.9, 0.5]
    for phase in run["phases"]:
        assert phase["same"], "tokens must be those of the first pass"
        slots = {label.rsplit("/", 1)[-1]: slot for label, slot in phase["slots"].items()}
        for domain, chance in phase["chances"].items():
            assert slots[domain]["graded_tokens"] > 500
            assert slots[domain]["seen"] == pytest.approx(chance, abs=0.03)
            # Positions that are reached often enough.
            assert slots[domain]["conditional"][0] == pytest.approx(chance, abs=0.03)
    noticed = [{label.rsplit("/", 1)[-1] for label in phase["alarms"]} for phase in run["phases"]]
    assert noticed == [set(), {"high"}]
    assert run["status"]["faults"] == run["status"]["violations"] == 0
    assert run["status"]["stock_steps"] == 0
