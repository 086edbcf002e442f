"""The published setting in simulation: what arms differ in, what is counted, and the targets."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from acclimate.experiments.lab.adaserve import run_adaserve
from acclimate.experiments.lab.adaserve_cell import (
    SETTINGS,
    AdaServeCell,
    AdaServeRow,
    ClassCount,
    adaserve_scenario,
    run_adaserve_cell,
)
from acclimate.experiments.lab.adaserve_findings import find_adaserve
from acclimate.experiments.lab.adaserve_targets import PUBLISHED
from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.simulation.stage import Stage
from acclimate.experiments.simulation.step_time import StepMakeUp

_HEADER = Header(
    command="lab adaserve", settings={"seed": 0}, lab="x", version="0",
    started="2026-01-01T00:00:00+00:00",
)  # fmt: skip


def _cell(**changes: object) -> AdaServeCell:
    given: dict[str, object] = {
        "setting": "stationary", "arm": "none", "rate_per_s": 3.7, "seed": 0, "duration_s": 70.0,
    }  # fmt: skip
    return AdaServeCell(**(given | changes))  # type: ignore[arg-type]


def _row(arm: str, rate: float, met: int, *, setting: str = "stationary") -> AdaServeRow:
    cell = _cell(setting=setting, arm=arm, rate_per_s=rate)
    return AdaServeRow(
        key=cell.key, cell=cell, classes=[ClassCount("coding", 1_000, met)], tokens=100_000,
        goodput_tokens=100 * met, window_s=100.0, steps=10, step_ms=30.0, verified=0, accepted=0,
    )  # fmt: skip


def test_the_setting_is_the_published_one() -> None:
    for setting in SETTINGS:
        stage = Stage.of(adaserve_scenario(_cell(setting=setting, duration_s=None)))
        alone = stage.truth.step_time.step_ms(StepMakeUp(1, 0, context_tokens=132))
        assert alone == pytest.approx(30.0, abs=0.2)
        work = stage.workload
        assert work.tpot_s is not None
        targets = {name: work.tpot_s[work.domain_of == d][0] for d, name in enumerate(work.domain)}
        assert targets == {"coding": 0.036, "chat": 0.05, "summarisation": 0.15}
        assert len(work) == pytest.approx(3.7 * 160, rel=0.1)
        slo = work.request_info(0, 0).slo
        assert slo is not None and slo.tpot_s == targets[work.domain[int(work.domain_of[0])]]


def test_classes_peak_in_turn() -> None:
    stage = Stage.of(adaserve_scenario(_cell(rate_per_s=40.0, duration_s=None)))
    work = stage.workload
    whole = work.arrival_s < 120.0  # the last period is cut short
    part = (work.arrival_s[whole] % 60.0) // 20.0
    for domain in range(3):
        counts = np.bincount(part[work.domain_of[whole] == domain].astype(int), minlength=3)
        assert counts.argmax() == domain
        assert counts[domain] / counts.sum() == pytest.approx(2 / 3, abs=0.06)


def test_the_shift_is_told_in_confidence_or_is_not() -> None:
    def said(setting: str) -> tuple[float, float]:
        stage = Stage.of(adaserve_scenario(_cell(setting=setting)))
        rows = np.arange(len(stage.workload), dtype=np.int64)
        confidence = stage.drafts.confidence_of(rows, np.zeros_like(rows), 50.0)[2]
        true = stage.truth.acceptance(rows + 1, confidence, 50_000_000_000)
        return float(confidence.mean()), float(true.mean())

    before, covariate, calibration, swap = (said(setting) for setting in SETTINGS)
    assert before[0] == pytest.approx(before[1])
    assert covariate[0] == pytest.approx(covariate[1]) and covariate[0] < before[0] - 0.1
    assert calibration[0] == pytest.approx(before[0]) and calibration[1] < before[1] - 0.15
    assert swap[0] > before[0] and swap[1] < before[1] - 0.15
    assert said("calibration_x0.5")[1] > calibration[1] > said("calibration_x2")[1]


def test_prompts_in_chunks_keep_the_pace_that_prompts_first_lose() -> None:
    plain, chunked = run_adaserve_cell(_cell()), run_adaserve_cell(_cell(arm="chunked"))
    assert chunked.attainment > plain.attainment + 0.1
    assert plain.verified == chunked.verified == 0
    coding = plain.classes[0]
    assert coding.met / coding.requests < 0.5 and plain.classes[2].met == plain.classes[2].requests


def test_ours_takes_up_speculation_though_a_plain_step_leaves_no_room_for_drafts() -> None:
    row = run_adaserve_cell(_cell(arm="adaptive", rate_per_s=4.8))
    assert row.attainment > 0.9 and row.verified > 0


def test_targets_are_judged() -> None:
    order = [
        _row(arm, rate, round(1_000 * share)) for arm, share in PUBLISHED.items() for rate in (3, 4)
    ]
    found = find_adaserve(_HEADER, [*order, _row("adaptive", 3, 900), _row("adaptive", 4, 820)])
    verdicts = {target.name: target for target in found.targets}
    assert next(t for n, t in verdicts.items() if "published order" in n).met is True
    no_worse = next(t for n, t in verdicts.items() if n.startswith("stationary: at least"))
    assert no_worse.met is False and "lowest 0.981, at 4" in no_worse.told
    assert [t.met for n, t in verdicts.items() if n.startswith(("covariate", "swap"))] == [None] * 4
    contest = found.contests[0]
    assert contest.violations_ratio.value == pytest.approx(100 / 164)
    wrong = [msgspec.structs.replace(row, goodput_tokens=0) for row in order]
    assert find_adaserve(_HEADER, wrong).contests == ()


def test_a_shift_asks_for_more_only_where_there_is_something_to_win() -> None:
    rows = [
        _row(arm, rate, met, setting="calibration")
        for rate, peer, ours in ((3, 990, 985), (4, 500, 800))
        for arm, met in (("adaserve", peer), ("adaptive", ours))
    ]
    targets = [t for t in find_adaserve(_HEADER, rows).targets if t.name.startswith("calibration")]
    assert [target.met for target in targets] == [True, True, True]
    assert "4: 0.40" in targets[0].told and "4: 1.60 (all met would be 2.00)" in targets[1].told
    assert "0.995" in targets[2].told


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"setting must be one of stationary.*got 'swap_x2'"):
        adaserve_scenario(_cell(setting="swap_x2"))
    with pytest.raises(ValueError, match="rates must be > 0"):
        run_adaserve(rates_per_s=[0.0])
