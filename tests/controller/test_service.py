"""What may be claimed is granted, what may not is done without, and nothing of it raises."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acclimate.controller.config import SloConfig
from acclimate.controller.records import Slo
from acclimate.controller.service import Problem, terms_of

CONFIG = SloConfig.model_validate(
    {
        "classes": {
            "gold": {"tpot_ms": 30, "e2e_ms": 9000, "weight": 4, "tenants": ["a"]},
            "standard": {"ttft_ms": 3000},
        },
        "default_class": "batch",
        "trusted_tenants": ["a", "gateway"],
    }
)


def terms(claimed="", *, tenant="a", own=None, priority=0, config=CONFIG):
    problems = Counter()
    granted = terms_of(
        config, tenant=tenant, claimed=claimed, own=own or Slo(), priority=priority,
        problems=problems,
    )  # fmt: skip
    return granted, dict(problems)


def test_a_class_gives_its_targets_and_own_ones_replace_them():
    granted, problems = terms("gold", own=Slo(tpot_s=0.1))
    assert granted.slo == Slo(tpot_s=0.1, e2e_s=9.0)
    assert (granted.slo_class, granted.importance, problems) == ("gold", 4.0, {})


def test_a_built_in_class_keeps_the_keys_that_are_not_replaced():
    granted, _ = terms("standard")
    assert granted.slo == Slo(ttft_s=3.0, tpot_s=0.15)


@pytest.mark.parametrize(
    ("claimed", "problem"),
    [("gold", Problem.CLASS_DENIED), ("royal", Problem.UNKNOWN_CLASS)],
)
def test_a_class_claimed_in_vain_costs_its_privileges_only(claimed, problem):
    granted, problems = terms(claimed, tenant="b")
    assert (granted.slo, granted.slo_class, granted.importance) == (None, "batch", 1.0)
    assert problems == {problem: 1}


def test_who_is_not_trusted_states_no_targets_and_raises_no_priority():
    granted, problems = terms("interactive", tenant="b", own=Slo(tpot_s=0.001), priority=-3)
    assert (granted.slo.tpot_s, granted.importance) == (0.05, 1.0)
    assert problems == {Problem.TARGET_DENIED: 1, Problem.PRIORITY_DENIED: 1}
    lowered, problems = terms(tenant="b", priority=2)
    assert lowered.importance == pytest.approx(1.5**-2) and not problems


def test_priority_counts_lower_first_and_only_so_far():
    importance = [terms(priority=p)[0].importance for p in (-1, 0, 1)]
    assert importance == pytest.approx([1.5, 1.0, 1 / 1.5])
    granted, problems = terms(priority=-(10**30))
    assert granted.importance == pytest.approx(1.5**4)
    assert problems == {Problem.PRIORITY_CUT: 1}


def test_by_default_nothing_is_granted_to_those_who_ask_for_nothing():
    granted, problems = terms(config=SloConfig())
    assert (granted.slo, granted.slo_class, granted.importance, problems) == (None, "", 1.0, {})


@given(st.text(), st.text(), st.integers())
def test_whatever_is_claimed_the_weight_stays_in_its_bounds(tenant, claimed, priority):
    granted, _ = terms(claimed, tenant=tenant, priority=priority)
    assert 1.5**-4 <= granted.importance <= 4 * 1.5**4
    assert granted.slo_class in CONFIG.classes
