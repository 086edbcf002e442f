"""The testbed's model folder and environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from acclimate.experiments import testbed
from acclimate.experiments.testbed import build_folder, environment, model_path, truncated_copy

FILES = ("config.json", "tokenizer.json", "model.safetensors")


def fill(folder: Path, text: str = "{}") -> None:
    for name in FILES:
        (folder / name).write_text(text, encoding="utf-8")


def test_the_environment_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path)
    monkeypatch.setenv("ACCLIMATE_MODEL", str(tmp_path))
    assert model_path() == tmp_path


def test_a_wrong_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCLIMATE_MODEL", str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"ACCLIMATE_MODEL must be a folder .*none"):
        model_path()


def test_a_half_built_folder_is_built_again(tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "config.json").write_text("half", encoding="utf-8")
    build_folder(target, fill)
    assert (target / "config.json").read_text(encoding="utf-8") == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "config.json").write_text("half", encoding="utf-8")
        raise OSError("no such package")

    with pytest.raises(OSError, match="no such package"):
        build_folder(tmp_path / "model", fail)
    assert not list(tmp_path.iterdir())


def test_an_incomplete_build_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"must hold config.json.*got nothing"):
        build_folder(tmp_path / "model", lambda folder: None)


def test_the_quicker_process_wins(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def build(folder: Path) -> None:
        fill(folder, "mine")
        target.mkdir()
        fill(target, "theirs")

    build_folder(target, build)
    assert (target / "config.json").read_text(encoding="utf-8") == "theirs"


def test_a_truncated_copy_has_the_first_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    source = tmp_path / "model"
    source.mkdir()
    fill(source)
    config = {"num_hidden_layers": 3, "layer_types": ["a", "b", "c"], "hidden_size": 4}
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {f"model.layers.{i}.w": torch.full((2,), float(i)) for i in range(3)}
    safetensors.save_file(tensors | {"model.norm.w": torch.ones(1)}, source / "model.safetensors")
    monkeypatch.setattr(testbed, "home", lambda: tmp_path / "home")

    copy = truncated_copy(source, 2)

    kept = safetensors.load_file(copy / "model.safetensors")
    assert sorted(kept) == ["model.layers.0.w", "model.layers.1.w", "model.norm.w"]
    written = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    assert written == {"num_hidden_layers": 2, "layer_types": ["a", "b"], "hidden_size": 4}
    assert truncated_copy(source, 2) == copy
    with pytest.raises(ValueError, match=r"layers must be in \[1, 3\], got 4"):
        truncated_copy(source, 4)


def test_what_is_set_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
    monkeypatch.setenv("LD_PRELOAD", "/somewhere/libiomp5.so")
    assert not {"VLLM_CPU_KVCACHE_SPACE", "LD_PRELOAD"} & environment().keys()


@pytest.mark.parametrize("start", ["-c", "-m", "script"])
def test_a_process_starts_anew_once_with_its_arguments(start: str, tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from acclimate.experiments.testbed import ensure_environment\n"
        "with open(os.environ['LOG'], 'a') as log: log.write('run\\n')\n"
        "ensure_environment()\n"
        "sys.stdout.write(' '.join([os.environ['HF_HUB_OFFLINE'], *sys.argv[1:]]))\n"
    )
    (tmp_path / "start_me.py").write_text(code, encoding="utf-8")
    command = {
        "-c": ["-c", code],
        "-m": ["-m", "start_me"],
        "script": [str(tmp_path / "start_me.py")],
    }[start]
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in {"LD_PRELOAD", "HF_HUB_OFFLINE", "ACCLIMATE_ENVIRONMENT_SET"}
    }
    done = subprocess.run(
        [sys.executable, *command, "a", "b c"],
        env={**clean, "LOG": str(tmp_path / "log")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 a b c"
    assert (tmp_path / "log").read_text(encoding="utf-8").count("run") == 2
