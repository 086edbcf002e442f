"""Results that survive a kill, and an experiment that goes on only where it is asked to."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from acclimate.experiments.lab.cell_grid import CellFailure, run_cells
from acclimate.experiments.lab.cell_store import RESULTS_FILE, CellStore, read_cells
from acclimate.experiments.lab.load_cell import LoadRow


class Row(msgspec.Struct, frozen=True):
    key: str
    value: float


def _fill(folder: Path, *keys: str, resume: bool = False) -> list[str]:
    with CellStore(folder, "lab test", {"seeds": 2}, Row, resume=resume) as store:
        for key in keys:
            store.add(Row(key, 0.1))
        return [row.key for row in store.rows]


def test_goes_on_with_what_is_there(tmp_path: Path) -> None:
    _fill(tmp_path / "run", "a", "b")
    assert _fill(tmp_path / "run", "c", resume=True) == ["a", "b", "c"]
    header, rows = read_cells(tmp_path / "run", Row)
    assert header.settings == {"seeds": 2}
    assert rows[2] == Row("c", 0.1)


def test_half_a_line_of_a_kill_is_cut_off(tmp_path: Path) -> None:
    _fill(tmp_path, "a")
    path = tmp_path / RESULTS_FILE
    path.write_bytes(path.read_bytes() + b'{"key":"b","val')
    assert [row.key for row in read_cells(tmp_path, Row)[1]] == ["a"]
    assert _fill(tmp_path, "b", resume=True) == ["a", "b"]
    assert [row.key for row in read_cells(tmp_path, Row)[1]] == ["a", "b"]


def test_never_goes_on_silently(tmp_path: Path) -> None:
    _fill(tmp_path, "a")
    with pytest.raises(ValueError, match=r"must be empty.*--resume"):
        _fill(tmp_path, "b")
    with pytest.raises(ValueError, match=r"settings must be the same.*seeds 2 there and 3 here"):
        CellStore(tmp_path, "lab test", {"seeds": 3}, Row, resume=True)
    with pytest.raises(ValueError, match="got 'lab test'"):
        CellStore(tmp_path, "lab other", {"seeds": 2}, Row, resume=True)


def test_nothing_to_go_on_with(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold results\.jsonl to go on with"):
        _fill(tmp_path, resume=True)


def test_two_writers_are_refused(tmp_path: Path) -> None:
    with (
        CellStore(tmp_path, "lab test", {}, Row),
        pytest.raises(ValueError, match="being written"),
    ):
        CellStore(tmp_path, "lab test", {}, Row, resume=True)


def test_a_damaged_line_is_an_error(tmp_path: Path) -> None:
    _fill(tmp_path, "a")
    path = tmp_path / RESULTS_FILE
    path.write_bytes(path.read_bytes() + b'{"key":1}\n')
    with pytest.raises(ValueError, match="must hold cells of 'lab test'"):
        read_cells(tmp_path, Row)


def _half(cell: int) -> Row:
    if cell == 3:
        raise ValueError("three is bad")
    return Row(str(cell), cell / 2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_cell_costs_no_other(jobs: int) -> None:
    rows: list[Row] = []
    with pytest.raises(CellFailure, match=r"1 of 6 cells failed.*cell 3: ValueError: three is bad"):
        run_cells(_half, range(6), jobs=jobs, on_result=rows.append, name_of=lambda c: f"cell {c}")
    assert sorted(row.key for row in rows) == ["0", "1", "2", "4", "5"]


_KILLED = """
import sys
from pathlib import Path
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.load import run_load

if __name__ == "__main__":
    run = LabRun(jobs=2, out=Path(sys.argv[1]), mlflow=False)
    run_load(seeds=40, until_s=2.0, warm_up_s=0.5, run=run)
"""


def test_a_kill_loses_only_what_was_running(tmp_path: Path) -> None:
    out = tmp_path / "run"
    script = tmp_path / "killed.py"
    script.write_text(_KILLED)
    process = subprocess.Popen([sys.executable, str(script), str(out)], stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 60
    path = out / RESULTS_FILE
    while time.monotonic() < deadline_s:
        if path.exists() and path.read_bytes().count(b"\n") > 5:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    time.sleep(0.5)  # its helpers end when they notice
    header, rows = read_cells(out, LoadRow)
    assert len(rows) >= 5
    with CellStore(out, header.command, header.settings, LoadRow, resume=True) as store:
        assert store.header.lab == header.lab
        assert [row.key for row in store.rows] == [row.key for row in rows]
