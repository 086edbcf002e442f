"""``acclimate lab trees``: figures, going on after a stop, and what its parts find."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from typer.testing import CliRunner

from acclimate.experiments.cli import app
from acclimate.experiments.lab import trees
from acclimate.experiments.lab.tree_cells import SPEED, TreeRow, run_tree_cell
from acclimate.experiments.lab.tree_sampling import sampling_cells, sampling_figures
from acclimate.experiments.lab.tree_speed import Cell, SpeedSession, SpeedTable, speed_cells
from acclimate.experiments.lab.tree_swap import (
    ADAPTIVE,
    CLAIRVOYANT,
    ORACLE,
    Offer,
    recovery,
    run_swap,
)
from acclimate.experiments.trees.tiny_model import TableDrafter, tiny_llama


@pytest.fixture(autouse=True)
def _no_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no recorded answers of this machine take part."""
    monkeypatch.setattr(trees, "trained_folder", lambda: tmp_path / "nothing")


def test_the_law_alone_needs_no_model_and_a_stopped_run_goes_on(tmp_path: Path) -> None:
    path, out = tmp_path / "trees.json", tmp_path / "lab"
    asked = [
        "lab", "trees", "--prompts", "0", "--rounds", "0", "--swaps", "0", "--draws", "300",
        "--no-mlflow", "--out", str(out), "--json", str(path),
    ]  # fmt: skip
    stopped = CliRunner().invoke(app, [*asked, "--minutes", "0"])
    assert isinstance(stopped.exception, RuntimeError)
    assert "1 of 3 cells done" in str(stopped.exception)
    done = CliRunner().invoke(app, [*asked, "--resume"])
    assert done.exit_code == 0, done.output
    figures = {one["name"]: one for one in msgspec.json.decode(path.read_bytes())["figures"]}
    assert list(figures) == ["tree/sampling_p", "tree/sampling_fixed_p", "tree/sampling_planted_p"]
    assert all(one["n"] == 300 and 0.0 <= one["value"] <= 1.0 for one in figures.values())
    assert figures["tree/sampling_p"]["value"] > 0.01
    assert "Draft trees" in (out / "report.html").read_text()


def test_draws_of_different_cells_differ_and_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acclimate.experiments.lab.tree_sampling._DRAWS_PER_CELL", 200)
    cells = [cell for cell in sampling_cells(400, seed=0) if "/sampling_fixed_p/" in cell.key]
    rows = [run_tree_cell(cell) for cell in cells]
    assert rows[0].numbers != rows[1].numbers
    (figure,) = sampling_figures(rows, seed=0)
    assert figure.n == 400 and figure.value is not None and figure.value > 0.001


def test_a_rate_is_right_again_where_the_windows_say_so() -> None:
    ms = np.array([10.0, 11.0, 12.0])
    earned = np.array([1.0, 1.6, 1.7])
    wrong, right = (Offer(earned, ms, float(earned[k]), float(ms[k]), 3) for k in (0, 1))
    tokens, recovered, share = recovery([*[wrong] * 40, *[right] * 200])
    assert recovered and 3 * 30 < tokens <= 3 * 40 and share < 1.0
    tokens, recovered, _ = recovery([wrong] * 100)
    assert tokens == 300 and not recovered
    assert recovery([right] * 100) == (0, True, pytest.approx(1.0))


def test_a_swap_is_noticed_and_the_oracle_needs_no_time() -> None:
    found = {
        policy: run_swap("better", policy, seed=0, steps=150)
        for policy in (ADAPTIVE, CLAIRVOYANT, ORACLE)
    }
    assert found[ORACLE].tokens == 0 and found[ORACLE].share > 0.995
    assert found[ADAPTIVE].noticed is not None
    for own in found.values():
        assert own.share > 0.93
        nodes = own.shape["nodes"]
        assert np.mean(nodes[-20:]) > 1.5 * np.mean(nodes[25:45])


def test_speeds_are_measured_in_alternation_and_rounds_can_be_joined() -> None:
    model = tiny_llama(seed=0)
    cells = [Cell("a", 1, [[3, 5]]), Cell("b", 2, [[4, 6], [7, 8]])]
    session = SpeedSession(
        model, TableDrafter.noisy(model), cells, tokens=6, arms=("adaptive_tree", "0x1x1", "2x1x2")
    )
    rows = [
        msgspec.json.decode(msgspec.json.encode(session.run(cell)), type=TreeRow)
        for cell in speed_cells(2)
    ]
    assert all(row.part == SPEED for row in rows)
    table = SpeedTable.of(rows)
    # First tokens come with the prompt, between steps.
    assert table.tokens[:, 0].tolist() == [[5.0, 5.0]] * 3
    assert table.verified[1].sum() == 0.0 and table.verified[2].sum() > 0.0
    names = [figure.name for figure in table.figures(np.random.default_rng(0))]
    for name in ("tree/a/adaptive_to_best_static", "tree/b/adaptive_to_best_static/c2",
                 "tree/mixed/adaptive_to_best_single_static"):  # fmt: skip
        assert name in names


def test_nothing_to_examine_is_refused() -> None:
    options = trees.TreeOptions(prompts=0, draws=0, swaps=0, rounds=0)
    with pytest.raises(ValueError, match="something must be examined"):
        trees.run_trees(options)


def test_shapes_over_time_go_with_their_part() -> None:
    from tests.experiments.report.tree_results import tree_rows

    rows = tree_rows()
    figures = trees.tree_figures(rows, seed=0)
    groups = {group.name: group for group in trees.tree_groups(figures, rows)}
    assert {"prose", "code", "mixed", "swap", "shift"} <= set(groups)
    assert "shift/depth" in groups["shift"].series
    assert "swap/worse/adaptive_tree/0/width" in groups["swap"].series
    assert not groups["prose"].series
    names = {figure.name for figure in figures}
    for name in ("tree/swap/tokens_to_recover", "tree/mixed/adaptive_to_best_single_static",
                 "tree/code/ece_raw", "tree/prose/adaptive_to_best_static"):  # fmt: skip
        assert name in names
