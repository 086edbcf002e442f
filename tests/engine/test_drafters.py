"""The back-off drafter on a real engine: tokens stay the target's, and a variant can be swapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def test_tokens_are_the_targets_whatever_drafts(drive: Callable[[str], Any]) -> None:
    run = drive("backoff")
    assert run["names"] == ["general", "code"]
    for variant in ("general", "code", "general_again"):
        assert run[variant]["tokens"] == run["truth"], variant
        assert run[variant]["verified"] > 0
    assert run["status"]["faults"] == run["status"]["violations"] == 0
    assert run["status"]["bridge_faults"] == 0


def test_a_swapped_drafter_is_another_one_and_a_declared_swap_is_logged(
    drive: Callable[[str], Any],
) -> None:
    run = drive("backoff")
    share = {
        variant: run[variant]["accepted"] / run[variant]["verified"]
        for variant in ("general", "code", "general_again")
    }
    assert share["code"] != share["general"]
    assert share["general_again"] == pytest.approx(share["general"], abs=0.05)
    assert run["declared"] == ["draft general"]
    assert "general, code" in run["unknown"]


def test_the_controller_is_told_how_sure_the_drafter_is(drive: Callable[[str], Any]) -> None:
    sure = drive("backoff")["sure"]
    assert sum(sure["count"]) > 300
    # Tokens of which the drafter is surer are right more often.
    low, high = (sure["right"][i] / sure["count"][i] for i in (0, 2))
    assert low < high
