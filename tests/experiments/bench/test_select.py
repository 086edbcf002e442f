"""What is timed is a policy that keeps promises."""

from __future__ import annotations

import json

from acclimate.experiments.bench.select import plan_times_ms, run_select


def test_every_plan_is_timed():
    times_ms = plan_times_ms(3, steps=40, max_depth=4, promised=True, seed=0)
    assert times_ms.shape == (40,)
    assert (times_ms > 0.0).all()


def test_the_figures_have_their_names(tmp_path):
    run_select([1, 2], steps=40, max_depth=4, json=tmp_path / "select.json")
    names = [f["name"] for f in json.loads((tmp_path / "select.json").read_text())["figures"]]
    assert names == [f"select/{n}/{what}" for n in (1, 2) for what in ("median_ms", "without_ms")]
