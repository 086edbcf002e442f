"""``acclimate lab trees`` as a command writes its figures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from typer.testing import CliRunner

from acclimate.experiments.cli import app


def test_the_law_alone_needs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "trees.json"
    done = CliRunner().invoke(
        app, ["lab", "trees", "--prompts", "0", "--draws", "300", "--json", str(path)]
    )
    assert done.exit_code == 0, done.output
    figures = {one["name"]: one for one in msgspec.json.decode(path.read_bytes())["figures"]}
    assert list(figures) == ["tree/sampling_p", "tree/sampling_fixed_p", "tree/sampling_planted_p"]
    assert all(one["n"] == 300 and 0.0 <= one["value"] <= 1.0 for one in figures.values())
    assert figures["tree/sampling_p"]["value"] > 0.01
