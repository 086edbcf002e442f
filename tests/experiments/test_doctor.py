"""The diagnosis says what works here, and works where nothing does."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from acclimate.experiments import doctor as module
from acclimate.experiments.doctor import State, diagnose, doctor


def test_without_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda name: None if name == "vllm" else real(name)
    )
    monkeypatch.setenv("ACCLIMATE", "0")
    monkeypatch.setenv("VLLM_PLUGINS", "others")
    findings = {f.part: f for f in diagnose()}
    assert findings["vllm"].state is State.OFF and "not installed" in findings["vllm"].why
    assert findings["opt-in"].state is State.OFF
    assert findings["plugin"].state is State.OFF
    assert doctor(json=tmp_path / "doctor.json") == 1
    figures = json.loads((tmp_path / "doctor.json").read_text())["figures"]
    assert {"doctor/vllm", "doctor/openmp", "doctor/mlflow"} <= {f["name"] for f in figures}


def test_a_broken_configuration_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_engine", list)
    (tmp_path / "bad.json").write_text('{"polcy": 1}')
    monkeypatch.setenv("ACCLIMATE_CONFIG", str(tmp_path / "bad.json"))
    finding = {f.part: f for f in diagnose()}["opt-in"]
    assert finding.state is State.OFF and "'polcy' is unknown" in finding.why


def test_with_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm", reason="vllm is not installed")
    findings = {f.part: f for f in diagnose()}
    assert findings["vllm"].state is findings["hooks"].state is State.ON
    assert findings["method custom_class"].state is State.LIMITED
