"""Promises in a comparison: who is promised what, what is sent, and what became of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.experiments.compare.scripted_engine import ScriptedEngine

from acclimate.controller.config import SloConfig
from acclimate.experiments.compare.arms import AGAIN, parse_arms
from acclimate.experiments.compare.cells import promised_cells
from acclimate.experiments.compare.findings import find
from acclimate.experiments.compare.options import CompareOptions, read_task
from acclimate.experiments.compare.plan import Pace, make_plan
from acclimate.experiments.compare.promised import (
    BATCH,
    CLASSES,
    STANDARD,
    TIGHT,
    PlainTimes,
    answer_tokens,
    classes_of,
)
from acclimate.experiments.compare.promises_kept import attained
from acclimate.experiments.compare.rounds import Traffic, run_rounds
from acclimate.experiments.compare.rows import CellRow
from acclimate.experiments.compare.warm_up import k0_times, teach
from acclimate.experiments.figures import Figure
from acclimate.integrations.vllm.closed_loop import Job, sampling_parameters
from acclimate.integrations.vllm.metadata import MetadataReader

JOBS = tuple(
    Job(f"{domain}{i}", (1,), 8 + i, label=domain, truth=domain)
    for domain in ("code", "prose", "qa")
    for i in range(6)
)
NAMES = "k0,k1,k3,adaptive,adaptive-plain,adaserve"
ARMS = parse_arms(NAMES, max_depth=4)
STEP_S = {"k1": 0.044, "k3": 0.12, "adaptive": 0.035, "adaptive-plain": 0.048}
SCALES = (0.75, 0.9, 1.1)


def _rows(seed: int = 0) -> tuple[list[CellRow], ScriptedEngine]:
    rows: list[CellRow] = []
    engine = ScriptedEngine({arm.name: STEP_S.get(arm.name, 0.05) for arm in ARMS})
    plan = make_plan(
        promised_cells(8, SCALES), prompts=Counter(job.truth for job in JOBS),
        paces={8: Pace(60.0, 10.0, 0.7)}, capacity_per_s=6.0, arms=len(ARMS), rounds=2,
        budget_s=1e9, told=sum(arm.told for arm in ARMS),
    )  # fmt: skip
    traffic = Traffic(JOBS, 6.0, "poisson", np.zeros(0), PlainTimes(0.05, 1.0))
    run_rounds({"controlled": engine}, ARMS, plan, traffic, seed=seed, go_on=lambda n: True,
               on_row=rows.append)  # fmt: skip
    return rows, engine


def _figures() -> dict[str, Figure]:
    return {figure.name: figure for figure in find(_rows()[0], ARMS, max_depth=4).figures()}


def test_classes_are_even_and_no_domains() -> None:
    granted = classes_of(JOBS)
    assert Counter(granted.values()) == dict.fromkeys(CLASSES, 6)
    for domain in ("code", "prose", "qa"):
        assert {granted[job.key] for job in JOBS if job.truth == domain} == set(CLASSES)


def test_every_arm_is_sent_the_same_promises_and_the_engine_reads_them() -> None:
    _, engine = _rows()
    sent: dict[tuple[int, str, int], set[tuple[Job, ...]]] = {}
    for order in engine.orders:
        sent.setdefault((order.round, order.cell, order.block), set()).add(order.jobs)
    assert all(len(jobs) == 1 for jobs in sent.values())
    pytest.importorskip("vllm", reason="vllm is not installed")
    order = next(order for order in engine.orders if order.cell == "c8x0.75")
    tight = {}
    for job in order.jobs:
        request = type("Request", (), {
            "num_prompt_tokens": 1, "max_tokens": 8, "sampling_params": sampling_parameters(job)})  # fmt: skip
        reader = MetadataReader()
        info = reader.read(request, number=1, arrival_ns=0, service=SloConfig())
        assert not reader.problems and info.domain == job.label
        tight[info.slo_class] = info.slo.tpot_s if info.slo else None
    assert tight == {TIGHT: 0.0375, STANDARD: 0.1, BATCH: None}


def test_arms_that_promises_do_not_move_run_once_for_all_targets() -> None:
    rows, engine = _rows()
    ran = Counter((order.arm, order.cell) for order in engine.orders)
    for arm in ARMS:
        cells = {cell for name, cell in ran if name == arm.name}
        assert cells == ({f"c8x{x:g}" for x in SCALES} if arm.told else {"c8x0.75"})
    assert {arm.name for arm in ARMS if arm.told} == {"adaptive", "adaserve"}
    # Every cell has all rows nevertheless, with its own targets.
    assert len(rows) == len(SCALES) * len(ARMS) * len({(row.round, row.block) for row in rows})
    asked = {
        (row.cell, request.slo_class, round(request.tpot_target_s or 0.0, 6))
        for row in rows if row.round == 0 for request in row.requests
    }  # fmt: skip
    assert asked == {
        (f"c8x{x:g}", kind, target)
        for x in SCALES
        for kind, target in ((TIGHT, round(x * 0.05, 6)), (STANDARD, 0.1), (BATCH, 0.0))
    }


def test_answers_differ_in_length_and_keep_the_mean() -> None:
    lengths = [answer_tokens(number, 64) for number in range(40)]
    assert np.mean(lengths) == 64 and len(set(lengths)) == 5 and answer_tokens(0, 2) == 2
    # No class has the long answers: classes go by threes.
    assert all(len(set(lengths[kind::3])) == 5 for kind in range(3))


def test_attainment_and_goodput_are_what_the_speeds_say() -> None:
    found = _figures()
    shares = {
        (arm, x): found[f"slo/{arm}/{TIGHT}/x{x:g}/attainment"].value
        for arm in STEP_S for x in SCALES
    }  # fmt: skip
    assert shares == {(arm, x): float(STEP_S[arm] <= x * 0.05) for arm in STEP_S for x in SCALES}
    assert found[f"slo/k0/{TIGHT}/x1.1/attainment"].value == 1.0
    assert found[f"slo/k3/{STANDARD}/x0.9/attainment"].value == 0.0
    assert found[f"slo/k3/{BATCH}/x0.9/attainment"].value == 1.0
    # Seconds in a seat are 0.2 and the steps; 8 seats.
    seconds = sum(0.2 + 0.035 * (job.max_tokens - 1) for job in JOBS)
    tokens = sum(job.max_tokens for job in JOBS)
    goodput = found["slo/adaptive/x0.75/goodput_tokens_per_s"]
    assert goodput.value == pytest.approx(8 * tokens / seconds, rel=1e-3) and goodput.n == 18
    assert found[f"slo/lead/adaptive/best_static/{TIGHT}/x0.75/attainment"].value == 1.0
    assert found[f"slo/lead/adaptive/adaptive-plain/{TIGHT}/x1.1/attainment"].value == 0.0
    assert found["slo/ratio/adaptive/best_static/x1.1/goodput"].value > 1.0  # type: ignore[operator]
    assert found["slo/telling/x0.75"].value == 0.0  # all or nothing everywhere
    assert found["ratio/adaptive/k0/c8x0.9"].value == pytest.approx(0.05 / 0.035, rel=1e-3)


def test_a_part_of_the_requests_tells_arms_apart() -> None:
    rows, _ = _rows()
    slow = [
        msgspec.structs.replace(row, requests=[
            msgspec.structs.replace(r, chunk_s=[2 * s for s in r.chunk_s])
            if r.prompt.startswith("qa") else r for r in row.requests])
        if row.arm == "adaptive" else row for row in rows
    ]  # fmt: skip
    found = {f.name: f for f in find(slow, ARMS, max_depth=4).figures()}
    share = found[f"slo/adaptive/{TIGHT}/x0.75/attainment"]
    assert share.value == pytest.approx(2 / 3)
    assert share.low < share.value < share.high  # type: ignore[operator]
    assert found["slo/telling/x0.75"].value == 1.0


def test_requests_behind_their_twins_are_counted_beyond_what_k0_is_behind_itself() -> None:
    found = _figures()
    prefix, load = "twin/engine/0.05", "c8x0.9"
    assert found[f"{prefix}/harmed_share/adaptive/{load}"].value == 0.0
    assert found[f"{prefix}/worst_lag/{AGAIN}/{load}"].value == pytest.approx(0.0, abs=1e-3)
    assert found[f"{prefix}/worst_lag/adaptive/{load}"].value == pytest.approx(-0.3, abs=1e-3)
    assert f"{prefix}/harmed_share/k3/{load}" not in found
    rows, _ = _rows()
    late = [
        msgspec.structs.replace(row, requests=[
            msgspec.structs.replace(r, decode_s=2 * r.decode_s) if r.prompt == "qa0" else r
            for r in row.requests]) if row.arm == "adaptive" else row for row in rows
    ]  # fmt: skip
    found = {f.name: f for f in find(late, ARMS, max_depth=4).figures()}
    assert found[f"{prefix}/harmed_share/adaptive/{load}"].value == pytest.approx(1 / 18)
    assert found[f"{prefix}/worst_lag/adaptive/{load}"].value == pytest.approx(0.4, abs=1e-3)


def test_one_that_did_not_end_or_never_began_got_nothing() -> None:
    row = _rows()[0][0].requests[0]
    assert not attained(msgspec.structs.replace(row, finish=""))
    assert not attained(msgspec.structs.replace(row, chunk_s=[], chunk_tokens=[]))
    assert not attained(msgspec.structs.replace(row, ttft_target_s=0.1, tpot_target_s=None))
    one = msgspec.structs.replace(row, chunk_s=[0.3], chunk_tokens=[1], tpot_target_s=1e-9)
    assert attained(msgspec.structs.replace(one, due_s=0.0))


def test_targets_follow_a_machine_that_slows_down() -> None:
    slow = {number: 2.0 for number in range(3 * len(ARMS), 10_000)}  # from the second round on
    asked_ms = []
    for machine in ({}, slow):
        engine = ScriptedEngine({arm.name: 0.05 for arm in ARMS}, machine)
        plan = make_plan(
            promised_cells(8, (0.8,)), prompts=Counter(job.truth for job in JOBS),
            paces={8: Pace(60.0, 10.0, 0.7)}, capacity_per_s=6.0, arms=len(ARMS), rounds=12,
            budget_s=1e9,
        )  # fmt: skip
        run_rounds({"controlled": engine}, ARMS, plan, Traffic(JOBS, 6.0, "poisson", np.zeros(0),
                   PlainTimes(0.05, 1.0)), seed=0, go_on=lambda n: True, on_row=lambda row: None)  # fmt: skip
        last = [job for job in engine.orders[-1].jobs if ("acclimate_slo_class", TIGHT)
                in job.extra_args]  # fmt: skip
        asked_ms.append({dict(job.extra_args)["acclimate_slo_tpot_ms"] for job in last})
    assert asked_ms == [{40.0}, {80.0}]


def test_the_targets_follow_from_k0_and_a_drafter_is_taught_by_it() -> None:
    engine = ScriptedEngine({arm.name: 0.05 for arm in ARMS})
    teach(engine, ARMS, JOBS, 8)
    plain = k0_times(engine, ARMS, JOBS, 8)
    assert (plain.tpot_s, plain.ttft_s) == (pytest.approx(0.05), pytest.approx(0.2))
    assert {order.arm for order in engine.orders} == {"k0"}
    assert len(engine.orders[0].jobs) == len(JOBS) and all(o.fresh for o in engine.orders)


def test_options_that_do_not_fit_together(tmp_path: Path) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"question_id": 1, "category": "qa", "turns": ["a"]}\n')
    common = {"arms": NAMES, "prompts": prompts, "limit": 1, "rounds": 1, "tokens": 8, "slo": True}
    task = read_task(CompareOptions(**common, concurrency="8", rate="none"))  # type: ignore[arg-type]
    assert task.scales == SCALES
    for wrong in ({"concurrency": "4,8", "rate": "none"}, {"concurrency": "8", "rate": "0.5"},
                  {"concurrency": "8", "rate": "none", "by_domain": True}):  # fmt: skip
        with pytest.raises(ValueError, match="with slo there must be one concurrency"):
            read_task(CompareOptions(**common, **wrong))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="slo-scale must be numbers"):
        read_task(CompareOptions(**common, concurrency="8", rate="none", slo_scale="x"))  # type: ignore[arg-type]
