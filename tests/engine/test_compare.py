"""``acclimate compare`` on real engines: a process for each, all arms, one small round."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

PROMPTS = {
    "code": "Write a Python loop that prints the numbers from one to ten.",
    "qa": "What is the capital of France? Answer with one word, then explain.",
    "prose": "Tell me a short story about a river and a mill.",
}


def test_a_small_comparison(model: str, environ: dict[str, str], tmp_path: Path) -> None:
    prompts, out, figures_file = tmp_path / "prompts.jsonl", tmp_path / "out", tmp_path / "f.json"
    lines = [
        json.dumps({"question_id": number, "category": domain, "turns": [text]})
        for number, (domain, text) in enumerate(PROMPTS.items())
    ]
    prompts.write_text("\n".join(lines) + "\n")
    code = "from acclimate.experiments.cli import main; main()"
    done = subprocess.run(
        [
            sys.executable, "-c", code, "compare", "--arms", "none,k0,k1,adaptive",
            "--prompts", str(prompts), "--limit", "1", "--rounds", "1", "--tokens", "8",
            "--concurrency", "1,2", "--rate", "0.6", "--depth", "4", "--out", str(out),
            "--json", str(figures_file),
        ],
        env=environ | {"ACCLIMATE_MODEL": model}, cwd=tmp_path, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(figures_file.read_text())
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["identical_tokens"]["value"] == 1.0
    assert figures["identical_tokens/none"]["n"] == 3 * 3
    for load in ("c1", "c2", "rate0.6"):
        assert figures[f"aa/ratio/{load}"]["value"] > 0
        assert figures[f"aa/processes/ratio/{load}"]["value"] > 0
        for base in ("none", "k0", "best_static"):
            assert figures[f"ratio/adaptive/{base}/{load}"]["n"] == 3
        assert figures[f"ratio/k1/none/{load}"]["value"] > 0
        assert figures[f"harmed/k0-again/{load}"]["value"] is not None
        assert figures[f"measures/none/{load}/wasted_verify_share"]["value"] is None
        assert figures[f"measures/k0/{load}/depth_share/k0"]["value"] == 1.0
        assert figures[f"measures/k0/{load}/acceptance_length"]["value"] == 1.0
        assert figures[f"measures/k1/{load}/acceptance_length"]["value"] >= 1.0
    assert "worst_domain/adaptive/k0/c1" in figures and "domain/qa/ratio/adaptive/k0/c2" in figures
    assert figures["capacity/k0"]["value"] > 0
    for engine in ("controlled", "none", "none-again"):
        assert figures[f"shared_weights/{engine}"]["value"] > 0.9
    assert "tokens identical to k0" in done.stdout and "1 of 1 rounds" in done.stderr
    # Header, and a row per arm and cell: blocks hold three jobs per place.
    assert len((out / "rows.jsonl").read_text().splitlines()) == 1 + 6 * 3
