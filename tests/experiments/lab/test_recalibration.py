"""The command: cells, tables, who is first, going on after a kill, and MLflow."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.console import Console

from acclimate.experiments.lab.intervals import censored_median
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.recalibration import print_findings, run_recalibration

_SCENARIO = """
title = "Drafts go bad"
until_s = 6.0
[engine]
max_depth = 3
[arrivals]
kind = "closed"
concurrency = 4
requests = 300
[lengths]
prompt_tokens = 10
output_tokens = 100
[step_time]
rows = [[1, 0, 6.5], [1, 3, 8.8], [4, 0, 6.6], [4, 3, 9.0]]
[[domains]]
name = "chat"
conditional = [0.8, 0.8, 0.8]
[[shifts]]
at_s = 3.0
conditional = [0.3, 0.3, 0.3]
"""


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "bad.toml"
    path.write_text(_SCENARIO)
    return str(path)


def test_findings(scenario: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (case,) = run_recalibration(
        [scenario],
        ["adaptive", "turbospec", "k0", "k3"],
        seeds=3,
        run=LabRun(jobs=1, out=out, mlflow=False),
    )
    assert case.policies[0].policy == "oracle"
    assert {p.policy for p in case.policies} == {"adaptive", "turbospec", "k0", "k3", "oracle"}
    ours, k0 = case.of("adaptive"), case.of("k0")
    assert (ours.regret_s.value or 9) < (k0.regret_s.value or 0)
    assert ours.regret_s.low is not None
    assert ours.tokens_to_recover.n == 3 and not ours.no_beliefs
    assert k0.no_beliefs and k0.tokens_to_recover.n == 0
    document = msgspec.json.decode((out / "figures.json").read_bytes())
    names = {figure["name"] for figure in document["figures"]}
    where = "recalibration/bad/adaptive"
    assert {
        f"{where}/tokens_to_recover", f"{where}/regret_seconds", f"{where}/steady_efficiency"
    } <= names  # fmt: skip
    assert "recalibration/bad/k0/tokens_to_recover" not in names
    console = Console(width=140, record=True, file=(tmp_path / "text").open("w"))
    print_findings([case], console)
    text = console.export_text()
    assert "Drafts go bad" in text and "no beliefs" in text
    assert (out / "report.html").stat().st_size > 20_000


def test_goes_on_and_refuses_another_scenario(scenario: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arms = ["k0", "k3"]
    run = LabRun(jobs=1, out=out, mlflow=False)
    run_recalibration([scenario], arms, seeds=2, run=run)
    whole = (out / "results.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    (out / "results.jsonl").write_bytes(b"".join(lines[:-3]) + lines[-3][:100])
    again = dataclasses.replace(run, resume=True)
    run_recalibration([scenario], arms, seeds=2, run=dataclasses.replace(again, jobs=2))
    assert sorted((out / "results.jsonl").read_bytes().splitlines()) == sorted(whole.splitlines())
    Path(scenario).write_text(_SCENARIO.replace("0.3, 0.3, 0.3", "0.3, 0.3, 0.2"))
    with pytest.raises(ValueError, match=r"settings must be the same.*scenarios"):
        run_recalibration([scenario], arms, seeds=2, run=again)


def test_a_wrong_policy_is_known_before_anything_runs(scenario: str, tmp_path: Path) -> None:
    run = LabRun(out=tmp_path / "out", mlflow=False)
    with pytest.raises(ValueError, match="got 'addaptive'"):
        run_recalibration([scenario], ["addaptive"], seeds=1, run=run)
    assert not (tmp_path / "out").exists()


def test_nested_runs(scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow_tracking = pytest.importorskip("mlflow.tracking")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "lab")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    for resume in (False, True):
        run = LabRun(jobs=1, out=out, resume=resume)
        run_recalibration([scenario], ["adaptive"], seeds=3, run=run)
    client = mlflow_tracking.MlflowClient(tracking_uri=uri)
    runs = client.search_runs([client.get_experiment_by_name("lab").experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    assert set(by_name) == {"lab recalibration", "bad/adaptive", "bad/oracle"}
    nested, parent = by_name["bad/adaptive"], by_name["lab recalibration"]
    assert nested.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert nested.data.params["policy"] == "adaptive"
    metrics = nested.data.metrics
    assert metrics["regret_seconds_low"] <= metrics["regret_seconds"]
    files = [a.path for a in client.list_artifacts(nested.info.run_id)]
    assert files == ["bad.toml"]
    kept = {a.path for a in client.list_artifacts(parent.info.run_id)}
    assert kept == {"figures.json", "results.jsonl", "report.html"}
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_median_of_what_mostly_never_came() -> None:
    rng = np.random.default_rng(0)
    some = censored_median("a", [100.0, 200.0, 300.0, np.inf, np.inf], rng)
    assert some.value == 300.0 and some.low is not None and some.high is None
