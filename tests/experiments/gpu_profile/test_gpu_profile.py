"""The GPU profile, as far as it can be tested without one: grid, tables, and a tiny model."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from acclimate.experiments.cli import app
from acclimate.experiments.gpu_profile import command
from acclimate.experiments.gpu_profile.plan import DRAFT, TARGET, PassCell, ProfileGrid
from acclimate.experiments.gpu_profile.tables import ProfileTables
from acclimate.experiments.readers.latency_table import read_latency_table
from acclimate.experiments.simulate_command import OwnTables, run_simulate
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime

GRID = ProfileGrid(
    batches=(1, 4), contexts=(64, 256), drafts=(0, 1, 3), tree_drafts=(3,), draft_tokens=(1, 2)
)


def _model_ms(cell: PassCell) -> float:
    """A step time that the tables must give back."""
    share = 1.0 if cell.role == TARGET else 0.1
    return share * (10.0 + 0.2 * cell.batch * cell.tokens + 1e-3 * cell.batch * cell.context)


def test_a_grid_has_whole_rows_and_refuses_what_makes_no_table() -> None:
    cells = GRID.cells()
    assert len(cells) == len(set(cells)) == 2 * 2 * (2 + 3 + 1)
    first = cells[: len(cells) // 4]
    assert {(cell.batch, cell.context) for cell in first} == {(1, 64)}
    assert {cell.role for cell in first} == {TARGET, DRAFT}
    with pytest.raises(ValueError, match="drafts must hold 0"):
        ProfileGrid(drafts=(1, 2))
    with pytest.raises(ValueError, match="batches must be numbers >= 1"):
        ProfileGrid(batches=(0,))


def test_simulate_reads_what_was_written(tmp_path: Path) -> None:
    measured, left_out = command.measure_cells(GRID.cells(), _model_ms, ends_s=np.inf)
    assert not any(left_out.values())
    tables = ProfileTables.of(measured)
    tables.write(tmp_path)
    for name in ("latency.csv", "verify.csv", "draft.csv", "trees.csv"):
        read = read_latency_table(tmp_path / name)
        assert read.kept and not read.dropped
    verify = TableTime.read(tmp_path / "verify.csv")
    assert verify.step_ms(StepMakeUp(4, 12, context_tokens=4 * 64)) == pytest.approx(
        _model_ms(PassCell(TARGET, 4, 64, 4)), abs=1e-3
    )
    step = TableTime.read(tmp_path / "latency.csv", draft_share=tables.draft_share)
    drafting = 3 * _model_ms(PassCell(DRAFT, 4, 64, 1))
    whole = step.step_ms(StepMakeUp(4, 12, context_tokens=4 * 64, draft_depth=3))
    assert whole == pytest.approx(_model_ms(PassCell(TARGET, 4, 64, 4)) + drafting, abs=0.02)
    own = OwnTables(
        latency=tmp_path / "latency.csv", survival=(".7,.5,.3",), batches=(4,), requests=8,
        output_tokens=20, draft_share=tables.draft_share,
    )  # fmt: skip
    figures = run_simulate(None, own, policies=["k1"], seeds=1)
    assert any(figure.name == "ratio/k1/k0/c4" and figure.value for figure in figures)


def test_cells_without_time_or_memory_are_counted() -> None:
    def measure(cell: PassCell) -> float:
        if cell.batch == 4:
            raise MemoryError
        return 1.0

    measured, left_out = command.measure_cells(GRID.cells(), measure, ends_s=np.inf)
    assert left_out == {"no time": 0, "no memory": len(GRID.cells()) // 2}
    assert all(cell.batch == 1 for cell in measured)
    assert command.measure_cells(GRID.cells(), measure, ends_s=0.0)[0] == {}


def test_a_tiny_model_is_measured_on_the_processor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    grid = ProfileGrid(
        batches=(1, 2), contexts=(16,), drafts=(0, 3), tree_drafts=(3,), draft_tokens=(1,)
    )
    tables = command.run_profile(
        out=tmp_path, target="tiny", draft="tiny", minutes=1.0, grid=grid, device="cpu"
    )
    assert len(tables.verify) == len(tables.step) == 4 and len(tables.trees) == 2
    assert all(ms > 0.0 for *_, ms in tables.step)
    provenance = msgspec.json.decode((tmp_path / command.PROVENANCE_FILE).read_bytes())
    assert provenance["measured"] == len(grid.cells()) and provenance["left_out"]["no time"] == 0


def test_without_a_gpu_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "gpu_missing", lambda: True)
    done = CliRunner().invoke(app, ["testbed", "profile-gpu", "--out", str(tmp_path / "gpu")])
    assert done.exit_code == 1
    assert done.output.strip() == command.NO_GPU
    assert not (tmp_path / "gpu").exists()
