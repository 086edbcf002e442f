"""The bench of simulation and replay runs, and names what it promises."""

from __future__ import annotations

import json
from pathlib import Path

from acclimate.experiments.bench_replay import run_bench_replay


def test_bench_replay_measures_what_it_names(tmp_path: Path) -> None:
    trace = tmp_path / "small conv.csv"
    rows = "".join(f"2023-11-16 18:00:{second:02d}.0000000,100,40\n" for second in range(30))
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}", encoding="utf-8")
    out = tmp_path / "out.json"
    figures = run_bench_replay(steps=100, arrivals=trace, json=out, seed=1)
    found = {figure.name: figure for figure in figures}
    assert list(found) == [
        "replay/steps_per_s",
        "replay/request_steps_per_s",
        *(f"replay/{what}/{n}x" for n in (4, 16) for what in _SCALING),
        "simulate/small_conv/seconds",
    ]
    assert all((figure.value or 0.0) >= 0.0 for figure in figures)
    assert found["simulate/small_conv/seconds"].n == 30
    assert json.loads(out.read_text())["meta"]["command"] == "bench replay"


_SCALING = ("time_per_request_ratio", "memory_growth_mib")
