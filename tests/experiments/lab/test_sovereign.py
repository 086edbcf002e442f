"""Speculation by headroom, neighbours that pay for it, and regions that never meet."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.lab.harm import Harm, harm_of
from acclimate.experiments.lab.sovereign import plans_of, sovereign_cells
from acclimate.experiments.lab.sovereign_cell import (
    CURVES,
    RequestFates,
    SovereignCell,
    SovereignRow,
    requests_at,
    run_sovereign_cell,
)
from acclimate.experiments.lab.sovereign_cluster import ENGINES, ClusterCell, run_cluster_cell
from acclimate.experiments.lab.sovereign_findings import find_sovereign

_HEADER = Header(
    command="lab sovereign", settings={"seed": 0}, lab="x", version="0",
    started="2026-01-01T00:00:00+00:00",
)  # fmt: skip


def _speed(curve: str, arm: str, headroom: float, acceptance: float = 0.5) -> float:
    def run(name: str) -> float:
        cell = SovereignCell(
            curve=curve, arm=name, acceptance=acceptance, headroom=headroom, seed=0, length=0.2
        )
        return run_sovereign_cell(cell).tokens_per_s

    return run(arm) / run("k0")


@pytest.mark.parametrize("curve", CURVES)
def test_headroom_runs_from_one_request_to_the_saturating_batch(curve: str) -> None:
    batches = [requests_at(curve, headroom) for headroom in (1.0, 0.5, 0.0)]
    assert batches[0] == 1 and batches == sorted(batches)
    with pytest.raises(ValueError, match=r"headroom must be in \[0, 1\], got 2"):
        requests_at(curve, 2.0)


@pytest.mark.parametrize("curve", CURVES)
def test_always_on_gains_when_idle_and_loses_at_saturation(curve: str) -> None:
    idle, busy = _speed(curve, "always_on", 1.0), _speed(curve, "always_on", 0.0)
    assert idle > 1.1 and busy < 0.6
    assert _speed(curve, "headroom", 0.0) > busy + 0.3


def test_a_saturated_card_pays_for_every_draft_what_the_formula_says() -> None:
    # (1 - q^(k+1)) / ((1 - q)(k + 1)) where every token costs the same, an H100 nearly so.
    q, k = 0.8, 5
    formula = (1 - q ** (k + 1)) / ((1 - q) * (k + 1))
    # The cache is read once per step whatever is verified, and softens it.
    assert _speed("h100", "always_on", 0.0, q) == pytest.approx(formula, rel=0.25)


def _row(curve: str, arm: str, tokens: int, fates: RequestFates) -> SovereignRow:
    cell = SovereignCell(curve=curve, arm=arm, seed=0)
    return SovereignRow(
        key=cell.key, cell=cell, requests=8, tokens=tokens, seconds=10.0, verified_per_request=1.0,
        fates=fates,
    )  # fmt: skip


def test_harm_is_a_lost_target_or_a_slower_pace() -> None:
    base = RequestFates([1, 2, 3, 4], [0, 0, 1, 1], [1, 0, -1, -1], [0.01, 0.02, 0.01, 0.01])
    run = RequestFates([4, 3, 2, 1], [1, 1, 0, 0], [-1, -1, 0, 0], [0.0104, 0.0106, 0.05, 0.02])
    assert harm_of(run, base) == Harm(2, 1, 2, 1)
    assert harm_of(base, base).share == 0.0
    assert harm_of(RequestFates([], [], [], []), base).share is None


def test_the_best_plan_is_the_fastest_of_those_that_harm_nobody() -> None:
    kept = RequestFates([1, 2], [0, 1], [1, -1], [0.01, 0.01])
    lost = RequestFates([1, 2], [0, 1], [0, -1], [0.02, 0.01])
    rows = [
        _row("f2", "k0", 1_000, kept), _row("f2", "plan:0-1-0", 1_200, kept),
        _row("f2", "plan:0-5-5", 2_000, lost), _row("f2", "ours", 1_180, kept),
        _row("f2", "ours_sum", 1_900, lost),
    ]  # fmt: skip
    found = find_sovereign(_HEADER, rows)
    assert found.plans[0].plan == "plan:0-1-0" and found.plans[0].tried == 3
    by = {figure.name: figure.value for figure in found.figures}
    assert by["sovereign/ours/harmed_share"] == 0.0
    assert by["sovereign/ours/efficiency"] == pytest.approx(1_180 / 1_200)
    assert by["sovereign/ours_sum/harmed_share"] == 0.5
    verdicts = {target.name: target.met for target in found.targets}
    assert verdicts["ours: at most 0.5% of requests harmed"] is True
    assert verdicts["ours: at least 0.95 of the best plan that harms as few"] is True
    assert verdicts["ours_sum: the harm that the rule prevents shows on some curve"] is True
    assert verdicts["always_on: slower than k0 at saturation"] is None


def test_plans_are_no_deeper_where_drafts_are_worse() -> None:
    for plan in plans_of("cpu"):
        assistant, code, chat = (int(part) for part in plan.removeprefix("plan:").split("-"))
        assert assistant <= chat <= code > 0
    keys = [cell.key for cell in sovereign_cells(range(2), 1.0)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("router", ["least_loaded", "advised"])
def test_no_request_leaves_its_region_and_no_batch_holds_two(router: str) -> None:
    cell = ClusterCell(router=router, arm="ours", seed=0, length=0.1)
    row = run_cluster_cell(cell)
    assert row.abroad == row.mixed == 0
    assert len(row.sent) == len(ENGINES) and sum(row.sent) > 100
    assert np.isin(row.fates.met, (0, 1)).all()
    assert run_cluster_cell(cell) == row


def test_advice_is_no_worse_than_the_least_loaded_engine() -> None:
    def met(router: str) -> tuple[float, int]:
        row = run_cluster_cell(ClusterCell(router=router, arm="ours", seed=0, length=0.3))
        return float(np.mean(row.fates.met)), row.tokens_met

    plain, advised = met("least_loaded"), met("advised")
    assert advised[0] >= plain[0] and advised[1] >= 0.99 * plain[1]
