"""Paired runs: who falls behind the engine without speculation, and what it costs that nobody does."""

from __future__ import annotations

import json

import numpy as np
import pytest

from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.twin import run_twin, twin_figures
from acclimate.experiments.lab.twin_cell import ETAS, LAG_TOKENS, TwinCell, run_twin_cell


@pytest.fixture(scope="module")
def row():
    return run_twin_cell(TwinCell(curve="cpu", mix="even", seed=1, rounds=2))


def test_per_request_nobody_falls_behind_and_without_a_guarantee_many_do(row):
    arms = {(arm.guarantee, arm.eta): arm for arm in row.arms}
    assert arms["off", 0.0].worst_lag > 0.2
    assert arms["off", 0.0].behind > 0.2 * arms["off", 0.0].requests
    for eta in ETAS:
        assert arms["per_request", eta].worst_lag <= eta + 0.003
    speeds = [arms["per_request", eta].tokens_per_s for eta in (0.0, 0.05, 0.2)]
    assert row.k0_tokens_per_s < speeds[0] < speeds[1] < speeds[2]
    assert arms["aggregate", 0.05].worst_lag > 0.1


def test_a_cell_repeats(row):
    assert run_twin_cell(row.cell) == row


def test_figures_are_named_by_curve_and_share(row):
    figures = {figure.name: figure for figure in twin_figures([row], np.random.default_rng(0))}
    off, guarded = "twin/sim-cpu/off", "twin/sim-cpu/0.05"
    assert figures[f"{off}/cost"].value == 0.0
    assert figures[f"{guarded}/cost"].value > 0.0
    assert figures[f"{guarded}/even/cost"].value == figures[f"{guarded}/cost"].value
    assert figures[f"{guarded}/worst_lag"].value < figures[f"{off}/worst_lag"].value
    assert figures["twin/sim-cpu/aggregate-0.1/speedup"].value > 1.0
    assert LAG_TOKENS == 8.0


def test_the_command_writes_its_figures(tmp_path, monkeypatch):
    monkeypatch.setattr("acclimate.experiments.lab.twin.CURVES", {"rtx4090": None})
    monkeypatch.setattr("acclimate.experiments.lab.twin.MIXES", {"alike": None})
    run = LabRun(jobs=1, out=tmp_path / "lab", mlflow=False, json=tmp_path / "twin.json")
    run_twin(seeds=1, rounds=1, run=run)
    names = {f["name"] for f in json.loads((tmp_path / "twin.json").read_text())["figures"]}
    assert {"twin/sim-rtx4090/0.05/worst_lag", "twin/sim-rtx4090/0.05/cost"} <= names
    assert (tmp_path / "lab" / "figures.json").is_file()
    with pytest.raises(ValueError, match="seeds must be >= 1, got 0"):
        run_twin(seeds=0)
