"""Figures of rounds whose speeds are known; rows on disk; arms and options."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.experiments.compare.scripted_engine import ScriptedEngine

from acclimate.experiments.compare.arms import AGAIN, NONE_AGAIN, parse_arms
from acclimate.experiments.compare.cells import build_cells
from acclimate.experiments.compare.drafting import drafter_figures
from acclimate.experiments.compare.findings import find
from acclimate.experiments.compare.options import CompareOptions, read_task
from acclimate.experiments.compare.plan import Pace, make_plan
from acclimate.experiments.compare.report import print_report, process_noise
from acclimate.experiments.compare.rounds import Traffic, run_rounds
from acclimate.experiments.compare.rows import CellRow, RowsWriter, read_rows
from acclimate.experiments.compare.warm_up import engine_names
from acclimate.experiments.figures import Figure
from acclimate.integrations.vllm.closed_loop import Job

JOBS = tuple(
    Job(f"{domain}{i}", (1,), 8 + i, label=domain, truth=domain)
    for domain in ("code", "prose")
    for i in range(4)
)
ARMS = parse_arms("none,k0,k1,k3,adaptive", max_depth=4)
STEP_S = {
    "none": 0.049, NONE_AGAIN: 0.048, "k0": 0.05, AGAIN: 0.05, "k1": 0.04, "k3": 0.06,
    "adaptive": 0.045,
}  # fmt: skip


def _rows(
    machine: dict[int, float] | None = None, *, domains: tuple[str, ...] = ()
) -> list[CellRow]:
    plan = make_plan(
        build_cells([1], [0.6], domains), prompts=Counter(job.truth for job in JOBS),
        paces={1: Pace(20.0, 10.0, 0.5)}, capacity_per_s=2.0, arms=len(ARMS), rounds=3,
        budget_s=1e9,
    )  # fmt: skip
    rows: list[CellRow] = []
    engine = ScriptedEngine(STEP_S, machine)
    run_rounds(
        dict.fromkeys(engine_names(ARMS), engine), ARMS, plan,
        Traffic(JOBS, 2.0, "poisson", np.zeros(0)), seed=0, go_on=lambda number: True,
        on_row=rows.append,
    )  # fmt: skip
    return rows


def _figures(rows: list[CellRow]) -> dict[str, Figure]:
    return {figure.name: figure for figure in find(rows, ARMS, max_depth=4).figures()}


def test_ratios_are_speeds_and_the_best_static_is_that_of_the_cell() -> None:
    found = _figures(_rows())
    for load in ("c1", "rate0.6"):
        assert found[f"ratio/adaptive/k0/{load}"].value == pytest.approx(0.05 / 0.045, rel=1e-4)
        assert found[f"ratio/adaptive/none/{load}"].value == pytest.approx(0.049 / 0.045, rel=1e-4)
        best = found[f"ratio/adaptive/best_static/{load}"]
        assert best.value == pytest.approx(0.04 / 0.045, rel=1e-4)
        assert found[f"best_static/depth/{load}"].value == 1
        assert found[f"aa/ratio/{load}"].value == pytest.approx(1.0)
        assert found[f"ratio/k0/none/{load}"].value == pytest.approx(0.98, rel=1e-4)
        assert found[f"harmed/k3/{load}"].value == 1.0
        assert found[f"harmed/{AGAIN}/{load}"].value == 0.0
        # Above the margin against k0 and none for certain, below it against the best static arm.
        assert found[f"inferiority_p/adaptive/k0/{load}"].value < 0.01  # type: ignore[operator]
        assert found[f"inferiority_p/adaptive/best_static/{load}"].value == 1.0
    assert found["identical_tokens"].value == 1.0
    assert found["worst_domain/adaptive/k0/c1"].value == pytest.approx(0.05 / 0.045, rel=1e-4)
    assert found["domain/code/ratio/adaptive/k0/c1"].n == 4
    assert found["measures/k0/c1/tpot_p50_ms"].value == pytest.approx(50.0, rel=1e-3)


def test_a_machine_that_slows_down_and_stalls_changes_no_ratio() -> None:
    """One round at half the speed for all arms, and one order of one arm ten times as slow."""
    calm = _rows()
    per_round = len(calm) // 3
    machine = {number: 2.0 for number in range(per_round, 2 * per_round)} | {3: 10.0}
    found, truth = _figures(_rows(machine)), _figures(calm)
    for name in ("ratio/adaptive/k0/c1", "ratio/k3/k0/c1", "aa/ratio/c1", "ratio/k1/none/c1"):
        assert found[name].value == pytest.approx(truth[name].value, rel=0.005)


def test_ratios_to_none_are_held_against_a_second_process_of_the_same() -> None:
    """The two differ by 2.1 %, which k0 at 0.98 does not exceed and all other arms do."""
    found = find(_rows(domains=("code",)), ARMS, max_depth=4)
    figures = {figure.name: figure for figure in found.figures()}
    for name in ("aa/processes/ratio/c1", "domain/code/aa/processes/ratio/c1"):
        assert figures[name].value == pytest.approx(0.049 / 0.048, rel=1e-4)
    assert not any(f"ratio/{NONE_AGAIN}" in name or f"/{NONE_AGAIN}/c" in name
                   for name in figures if "ratio" in name)  # fmt: skip
    told = process_noise(found.cells[0])
    assert "differ by up to 2.1%; to none no more than that: k0; more: k1, k3" in told
    alone = parse_arms("k1,adaptive", max_depth=4)
    assert process_noise(find(_rows(), alone, max_depth=4).cells[0]) == ""


def test_single_domain_cells_give_the_domains_figures() -> None:
    found = _figures(_rows(domains=("code", "prose")))
    assert found["domain/prose/ratio/adaptive/best_static/c1"].value == pytest.approx(
        0.889, abs=1e-3
    )
    assert found["domain/prose/aa/ratio/c1"].value == pytest.approx(1.0)
    assert "worst_domain/adaptive/k0/c1" not in found


def test_other_texts_are_counted() -> None:
    rows = _rows()
    for at, row in enumerate(rows):
        if row.arm == "k3":
            changed = [msgspec.structs.replace(r, text="other") for r in row.requests[:1]]
            rows[at] = msgspec.structs.replace(row, requests=changed + row.requests[1:])
    found = _figures(rows)
    assert found["identical_tokens/adaptive"].value == 1.0
    assert 0.5 < found["identical_tokens/k3"].value < 1.0  # type: ignore[operator]


def test_a_killed_run_is_read_as_far_as_it_came(tmp_path: Path) -> None:
    rows = _rows()
    writer = RowsWriter(tmp_path, {"rounds": 3})
    for row in rows[:-2]:
        writer.add(row)
    with writer.path.open("ab") as file:
        file.write(b'{"arm":"k0","cell":"c1","rou')
    header, read = read_rows(tmp_path)
    assert header == {"rounds": 3} and read == rows[:-2]
    assert find(read, ARMS, max_depth=4).rounds == 3
    with pytest.raises(ValueError, match="without another run"):
        RowsWriter(tmp_path, {})
    with pytest.raises(ValueError, match="every arm ran"):
        find(rows[:2], ARMS, max_depth=4)


def test_the_report_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    for domains in ((), ("code",)):
        print_report(find(_rows(domains=domains), ARMS, max_depth=4), Console(width=140))
    told = capsys.readouterr().out
    for words in (
        "1.111",
        "k0 (A/A)",
        "none (A/A, processes)",
        "best static",
        "yes (",
        "worst",
        "tokens identical",
    ):
        assert words in told


@pytest.mark.parametrize(
    ("arms", "says"),
    [
        ("k9", "arm 'k9' must be at most the engine's depth 4, got 9"),
        ("stock-k5", "at most the engine's depth 4, got 5"),
        ("stock-k0", "arm must be none, stock-kN, kN"),
        ("k1,k1", "arms must be named once, got k1 twice"),
        ("oracle", "must be run in a simulation"),
        ("", "arms must be names by comma"),
        ("nonsense", "got 'nonsense'"),
    ],
)
def test_a_wrong_arm_is_refused(arms: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_arms(arms, max_depth=4)


def test_k0_always_runs_twice_and_half_a_list_apart() -> None:
    for text in ("adaptive", "none,k0,k1,k2,k3,adaptive", "k3,stock-k3,turbospec,k0"):
        names = [arm.name for arm in parse_arms(text, max_depth=4)]
        apart = abs(names.index("k0") - names.index(AGAIN))
        assert min(apart, len(names) - apart) >= len(names) // 2 - 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"concurrency": "0"}, "concurrency must be numbers above 0"),
        ({"concurrency": "1,1"}, "concurrency must be named once"),
        ({"concurrency": "2.5"}, "concurrency must be whole numbers"),
        ({"rate": "fast"}, "rate must be numbers above 0"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
        ({"dtype": "int4"}, "dtype must be one of float32"),
        ({"max_minutes": 0.0}, "max-minutes must be > 0"),
    ],
)
def test_wrong_options_are_refused_before_an_engine_starts(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"question_id": 1, "category": "qa", "turns": ["Who?"]}\n')
    wanted = {"arms": "k1", "prompts": prompts, "limit": 1, "rounds": 1, "tokens": 8} | changes
    with pytest.raises(ValueError, match=says):
        read_task(CompareOptions(**wanted))  # type: ignore[arg-type]


def test_missing_prompts_are_an_error_before_an_engine_starts(tmp_path: Path) -> None:
    options = CompareOptions(arms="k1", prompts=tmp_path / "no", limit=1, rounds=1, tokens=8)
    with pytest.raises(FileNotFoundError):
        read_task(options)


def test_a_drafter_has_its_price_and_ratios_per_load_and_over_the_mix() -> None:
    rows = [
        msgspec.structs.replace(row, status={"draft_calls": 4, "draft_ns": 2_000_000})
        for row in _rows()
    ]
    figures = drafter_figures("backoff", find(rows, ARMS, max_depth=4), rows)
    found = {figure.name: figure.value for figure in figures}
    assert found["drafter/backoff/ms_per_step"] == pytest.approx(0.5)
    assert found["drafter/backoff/ratio/adaptive/k0/c1"] == pytest.approx(0.05 / 0.045, rel=1e-4)
    # One load: the best depth over the mix is that of the load.
    for name in ("ratio/adaptive/best_static/c1", "ratio/adaptive/best_static"):
        assert found[f"drafter/backoff/{name}"] == pytest.approx(0.04 / 0.045, rel=1e-4)


def test_an_unknown_drafter_is_known_before_an_engine_starts(tmp_path: Path) -> None:
    options = CompareOptions(
        arms="k1", prompts=tmp_path / "none", limit=1, rounds=1, tokens=8, drafter="oracle"
    )
    with pytest.raises(ValueError, match="drafter must be one of ngram"):
        read_task(options)
