"""The bench of recalibration: streams that can be told apart, and figures by name."""

from __future__ import annotations

import json

import numpy as np

from acclimate.experiments.bench.recalibration import run_bench_recalibration
from acclimate.experiments.bench.recalibration_streams import arms, draw_change, recover

_SHORT = """
title = "short"
until_s = 2.0
[engine]
max_depth = 3
[arrivals]
kind = "closed"
concurrency = 4
requests = 100
[step_time]
rows = [[1, 0, 8.0], [1, 3, 10.0], [4, 0, 9.0], [4, 3, 14.0]]
[[domains]]
name = "a"
conditional = [0.9, 0.9, 0.9]
[[shifts]]
at_s = 1.0
conditional = [0.3, 0.3, 0.3]
"""


def test_who_is_told_is_right_sooner_than_who_never_notices():
    build = arms()
    told = [recover(build["clairvoyant"], 0.9, 0.4, seed).tokens for seed in range(3)]
    deaf = [recover(build["do_nothing"], 0.9, 0.4, seed).tokens for seed in range(3)]
    assert np.median(told) < np.median(deaf)
    assert recover(build["adaptive"], 0.9, 0.4, 0) == recover(build["adaptive"], 0.9, 0.4, 0)


def test_drawn_changes_are_as_wide_as_they_must_be():
    pairs = [draw_change(np.random.default_rng(seed)) for seed in range(50)]
    assert all(0.2 <= q <= 0.95 for pair in pairs for q in pair)
    assert min(abs(before - after) for before, after in pairs) >= 0.1


def test_figures_have_their_names_and_are_finite(tmp_path):
    out, short = tmp_path / "out.json", tmp_path / "abrupt_drop.toml"
    short.write_text(_SHORT)
    run_bench_recalibration(seeds=1, scenarios=[str(short)], scenario_seeds=1, json=out, seed=1)
    figures = {f["name"]: f["value"] for f in json.loads(out.read_text())["figures"]}
    assert None not in figures.values()
    for policy in ("adaptive", "clairvoyant", "turbospec"):
        for what in ("tokens_to_recover", "regret_seconds", "area"):
            assert f"recalibration/abrupt_drop/{policy}/{what}" in figures
    assert "recalibration/drawn/adaptive/over_allowed" in figures
