"""An engine whose acceptance is known: what is learned must be the truth, and a shift be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def test_learned_acceptance_is_the_truth_and_the_shift_is_seen(drive: Callable[[str], Any]) -> None:
    run = drive("known")
    before, after = run["phases"]
    assert before["same"] and after["same"]
    for phase in (before, after):
        slots = {label.rsplit("/", 1)[-1]: slot for label, slot in phase["slots"].items()}
        for domain, chance in phase["chances"].items():
            assert slots[domain]["seen"] == pytest.approx(chance, abs=0.05)
            assert slots[domain]["conditional"][0] == pytest.approx(chance, abs=0.05)
    assert any(label.endswith("high") for label in after["alarms"])
    assert run["status"]["faults"] == run["status"]["violations"] == 0
