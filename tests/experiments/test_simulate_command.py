"""acclimate simulate: strangers' tables give known answers, wrong input a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from acclimate.experiments.cli import app
from acclimate.experiments.own_tables import OwnTables
from acclimate.experiments.simulate_command import run_simulate
from acclimate.experiments.simulation.scenario import FOLDER

F2 = FOLDER / "f2.csv"
CHAT = (".681,.391,.204,.101,.051",)


def values(figures: Any) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in figures}


def test_the_published_table_gives_the_published_gains() -> None:
    own = OwnTables(latency=F2, survival=CHAT, batches=(1, 64))
    found = values(run_simulate(None, own, policies=["k1", "k3"], seeds=3))
    assert found["ratio/k3/k0/c1"] == pytest.approx(1.68, rel=0.02)
    assert found["ratio/k1/k0/c64"] == pytest.approx(1.35, rel=0.02)
    assert found["ratio/k0/k0/c1"] == 1.0
    assert found["simulate/k0/tpot_p50_ms/c1"] == pytest.approx(6.52, rel=1e-3)


def test_a_cliff_stays_a_cliff(tmp_path: Path) -> None:
    """48 verified tokens cost four times what 64 cost: depth 3 is a trap at 16 requests."""
    table = tmp_path / "cliff.csv"
    table.write_text("batch,K,ms\n16,0,10\n16,2,11\n16,3,44\n16,4,12\n", encoding="utf-8")
    own = OwnTables(latency=table, conditional=(".9,.9,.9,.9",), batches=(16,), uniform_only=True)
    found = values(run_simulate(None, own, policies=["k3", "k4", "adaptive"], seeds=1))
    assert (found["ratio/k3/k0/c16"] or 0) < 1 < (found["ratio/k4/k0/c16"] or 0)
    assert (found["ratio/adaptive/k0/c16"] or 0) > 0.9 * (found["ratio/k4/k0/c16"] or 0)


def test_figures_are_written_and_the_seed_repeats_them(tmp_path: Path) -> None:
    arguments = ["simulate", "bursts", "--policy", "k1,adaptive", "--seeds", "1", "--json"]
    written = []
    for name in ("a.json", "b.json"):
        result = CliRunner().invoke(app, [*arguments, str(tmp_path / name)])
        assert result.exit_code == 0, result.output
        written.append(json.loads((tmp_path / name).read_text())["figures"])
    assert written[0] == written[1]
    assert {"ratio/adaptive/k0/open", "simulate/k1/ttft_p99_ms/open"} <= {
        figure["name"] for figure in written[0]
    }
    assert "intervals need at least three seeds" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "acceptance must come as --survival .* or as --conditional .*, got neither"),
        ({"survival": CHAT, "conditional": CHAT}, "got both"),
        ({"survival": ("68,39",)}, r"must be probabilities in \[0, 1\], not percent"),
        ({"survival": (".5;.4",)}, "must be numbers by comma such as .68,.39,.20, got"),
        ({"survival": ("a=.5", "b=.5,.4")}, "as many positions for each domain, got"),
        ({"survival": ("a=.5", "a=.4")}, "must name each domain once, got 'a' twice"),
        ({"survival": (".5,.6",)}, "survival must never rise"),
    ],
)
def test_wrong_acceptance_is_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_simulate(None, OwnTables(latency=F2, batches=(1,), **options), seeds=1)


def test_wrong_use_is_explained() -> None:
    with pytest.raises(ValueError, match=r"give a scenario, or --latency FILE .* abrupt_drop"):
        run_simulate(None, None)
    with pytest.raises(ValueError, match="--batch must come with a closed loop"):
        run_simulate("bursts", None, concurrency=[4])
    with pytest.raises(ValueError, match=r"arm must be kN, .*, got 'adaptiv'"):
        run_simulate("stable", None, policies=["adaptiv"], seeds=1)
    result = CliRunner().invoke(app, ["simulate", "--survival", ".5"])
    assert result.exit_code == 2 and "must come with --latency FILE" in result.output
    listed = CliRunner().invoke(app, ["simulate", "--list"])
    assert listed.exit_code == 0 and "calibration_shift" in listed.output


def test_a_file_of_another_kind_says_what_it_looks_like() -> None:
    with pytest.raises(ValueError, match=r"f2\.toml"):
        run_simulate(None, OwnTables(latency=FOLDER / "f2.toml", survival=CHAT), seeds=1)
