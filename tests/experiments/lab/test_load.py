"""The published table has known best depths; the laboratory must read them off its runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acclimate.experiments.cli import app
from acclimate.experiments.lab.cell_store import Header
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.load import load_cells, run_load
from acclimate.experiments.lab.load_cell import (
    BATCHES,
    DEPTHS,
    SURVIVALS,
    LoadCell,
    LoadRow,
    run_load_cell,
    true_speeds,
)
from acclimate.experiments.lab.load_findings import find_load

_BEST = {
    "0.681": (3, 3, 3, 1, 0),
    "0.76": (5, 5, 5, 3, 0),
    "0.17": (3, 3, 3, 0, 0),
}


def _cell(**changes: object) -> LoadCell:
    given: dict[str, object] = {
        "survival": "0.681", "batch": 16, "arm": "k3", "seed": 0, "until_s": 4.0, "warm_up_s": 1.0,
    }  # fmt: skip
    return LoadCell(**(given | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("survival", SURVIVALS)
def test_best_depths_are_the_published_ones(survival: str) -> None:
    best = tuple(DEPTHS[int(true_speeds(survival, batch).argmax())] for batch in BATCHES)
    assert best == _BEST[survival]


def test_published_gains() -> None:
    gains = [true_speeds("0.681", batch) for batch in BATCHES]
    assert [round(float(g.max() / g[0]), 2) for g in gains] == [1.68, 1.67, 1.65, 1.35, 1.0]


def test_a_fixed_depth_runs_at_its_true_speed() -> None:
    row = run_load_cell(_cell())
    assert (row.depth, row.switches) == (3, 0)
    assert row.tokens_per_s == pytest.approx(true_speeds("0.681", 16)[2], rel=0.03)


def test_the_same_cell_gives_the_same_row() -> None:
    cell = _cell(arm="adaptive", noisy=True, batch=4)
    assert run_load_cell(cell) == run_load_cell(cell)


def test_the_load_at_the_boundary_swings() -> None:
    cell = _cell(survival="", batch=0, boundary="decodes", arm="oracle")
    # Who knows the cliff crosses it many times a second, and no fixed depth keeps up.
    oracle = run_load_cell(cell)
    assert oracle.switches > 10
    fixed = [run_load_cell(_cell(survival="", batch=0, boundary="decodes", arm=f"k{k}"))
             for k in range(4)]  # fmt: skip
    assert all(row.switches == 0 for row in fixed)
    assert oracle.tokens_per_s > max(row.tokens_per_s for row in fixed)


def test_fixed_depths_are_judged_by_the_table() -> None:
    cells = load_cells("k3", range(1), 3.0, 1.0)
    rows = [run_load_cell(cell) for cell in cells if cell.batch in (16, 64) and not cell.noisy]
    header = Header(
        command="lab load", settings={"arm": "k3", "seeds": 1, "seed": 0}, lab="x", version="0",
        started="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    found = {(c.survival, c.batch): c for c in find_load(header, rows).cells}
    assert found["0.681", 16].met and found["0.681", 16].worst == 1.0
    missed = found["0.681", 64]
    assert not missed.met and missed.best == 1
    assert missed.worst == pytest.approx(2.276 / 13.5 / (1.681 / 9.66), rel=1e-3)
    # Depth 3 at 64 and hardly any acceptance is far slower than depth 0.
    assert not found["0.17", 64].not_below_base


def test_command_keeps_results_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "lab"
    run = LabRun(jobs=2, out=out, mlflow=False)
    run_load(seeds=1, until_s=1.0, warm_up_s=0.2, run=run)
    lines = (out / "results.jsonl").read_bytes().splitlines(keepends=True)
    (out / "results.jsonl").write_bytes(b"".join(lines[:-20]))
    again = dataclasses.replace(run, resume=True)
    found = run_load(seeds=1, until_s=1.0, warm_up_s=0.2, run=again)
    assert len(found.cells) == 30 and len(found.boundaries) == 4
    whole = (out / "results.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(whole) == sorted(lines)
    assert '"load/0.681/64/efficiency"' in (out / "figures.json").read_text()


def test_command_line_refuses_a_folder_with_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = CliRunner().invoke(app, ["lab", "load", "--out", str(tmp_path)])
    assert isinstance(result.exception, ValueError)
    assert "--resume" in str(result.exception)


def test_row_knows_its_speed() -> None:
    row = LoadRow(key="a", cell=_cell(), depth=1, shares=[], tokens=10, seconds=2.0, switches=0)
    assert row.tokens_per_s == 5.0
