"""Keeps learned step times on disk, one plain JSON file per engine, so that a second start is warm.

What a step takes belongs to one GPU, model, engine version and so on: the file's name is a digest of
that key, and the key itself stands in the file. Arrays are written as shape, places and values of
what is not zero; nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from acclimate.predictors.latency import StepLatency

FORMAT, VERSION = "acclimate latency curve", 1
_LARGEST_FILE = 256 * 2**20


class CurveKey(msgspec.Struct, frozen=True, kw_only=True):
    """What step times belong to: with any of these different they are others.

    Parameters
    ----------
    device
        Name of the GPU, or of the processor.
    model, quantization, dtype
        Of the target; quantization is empty for none.
    engine_version, runner
        Of the engine.
    graph_mode, capture_sizes
        Which CUDA graphs it captured; empty for none.
    method, draft_model, max_depth
        How it drafts, and how far at most.
    tensor_parallel, pipeline_parallel, data_parallel
        Sizes.
    asynchronous
        Whether it schedules one step ahead.
    """

    device: str
    model: str
    quantization: str
    dtype: str
    engine_version: str
    runner: str
    graph_mode: str
    capture_sizes: tuple[int, ...]
    method: str
    draft_model: str
    max_depth: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    asynchronous: bool

    @property
    def digest(self) -> str:
        """Short name of the key."""
        return hashlib.blake2b(msgspec.json.encode(self), digest_size=8).hexdigest()

    def named(self, model: str) -> str:
        """Return the key in words for people, ``model`` being what the model is called."""
        mode = "async" if self.asynchronous else "sync"
        what = (
            self.device,
            model,
            self.dtype,
            f"vllm {self.engine_version}",
            self.runner,
            mode,
            f"{self.method}:{self.max_depth}",
            f"tp{self.tensor_parallel}",
        )
        return " | ".join(what)

    def differences(self, other: CurveKey) -> str:
        """Say in words in which fields ``other`` is another key."""
        pairs = [
            (name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__
        ]
        return ", ".join(f"{name} {b!r} instead of {a!r}" for name, a, b in pairs if a != b)


class _Head(msgspec.Struct):
    format: str
    version: int


class _File(msgspec.Struct, kw_only=True):
    format: str = FORMAT
    version: int = VERSION
    key: CurveKey
    curve: dict[str, Any]


class CurveStore:
    """A folder of latency curves.

    Parameters
    ----------
    folder
        Made when the first curve is saved.

    Examples
    --------
    >>> import tempfile
    >>> key = CurveKey(
    ...     device="H200", model="m", quantization="", dtype="float16", engine_version="0.32",
    ...     runner="v1", graph_mode="", capture_sizes=(), method="ngram", draft_model="",
    ...     max_depth=4, tensor_parallel=1, pipeline_parallel=1, data_parallel=1,
    ...     asynchronous=False)
    >>> model, again = StepLatency(8, 32), StepLatency(8, 32)
    >>> for _ in range(50):
    ...     _ = model.learn(4, 8, latency_ms=20.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = CurveStore(folder)
    ...     store.load(key, again), store.save(key, model).suffix, store.load(key, again)
    (False, '.json', True)
    >>> bool((again.curve(4, 8) == model.curve(4, 8)).all())
    True
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path_of(self, key: CurveKey) -> Path:
        """Return where a key's curve is, or will be."""
        return self.folder / f"latency-{key.digest}.json"

    def save(self, key: CurveKey, model: StepLatency) -> Path:
        """Write a curve; whoever reads meanwhile gets the old file or the new one, whole.

        Raises
        ------
        OSError
            The folder cannot be written.
        """
        path = self.path_of(key)
        self.folder.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.encode(_File(key=key, curve=_plain(model.state())))
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return path

    def load(self, key: CurveKey, model: StepLatency) -> bool:
        """Put a key's curve into a model of the same size, and return True; False if there is none.

        The model is as it was where an error is raised.

        Raises
        ------
        ValueError
            The file is damaged, of a newer version, of another key, or of another table.
        """
        path = self.path_of(key)
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ValueError(f"{path} must be at most {_LARGEST_FILE} bytes")
            text = path.read_bytes()
        except FileNotFoundError:
            return False
        curve = _read(path, text, key)
        try:
            state = _arrays(curve, model.state(), "curve")
            _check_sense(state)
            model.load(state)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} must hold a latency curve, got: {error!r}") from error
        except ValueError as error:
            raise ValueError(f"{path} must hold a latency curve, got: {error}") from error
        return True


def _read(path: Path, text: bytes, key: CurveKey) -> dict[str, Any]:
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format != FORMAT:
            raise ValueError(f"{path} must hold a latency curve, got format {head.format!r}")
        if head.version != VERSION:
            raise ValueError(f"{path} must be of version {VERSION}, got {head.version}")
        file = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} must hold a latency curve, got: {error}") from error
    if file.key != key:
        raise ValueError(f"{path} must be of this engine, got {key.differences(file.key)}")
    return file.curve


def _plain(value: Any) -> Any:
    """Return a state without arrays."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        at = np.flatnonzero(flat)
        return {"shape": list(value.shape), "at": at.tolist(), "values": flat[at].tolist()}
    return value


def _arrays(value: Any, like: Any, name: str) -> Any:
    """Undo `_plain`, where the outcome must be as ``like`` is: keys, shapes, finite numbers."""
    if isinstance(like, dict):
        if not isinstance(value, dict) or value.keys() != like.keys():
            raise ValueError(f"{name} must hold {', '.join(like)}")
        return {key: _arrays(value[key], part, f"{name}.{key}") for key, part in like.items()}
    if isinstance(like, np.ndarray):
        return _array(value, like, name)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return value


def _check_sense(state: dict[str, Any]) -> None:
    """Refuse numbers that no learner can have arrived at, and that would spoil what follows."""
    counts = ("visits", "weights", "scatter_ms", "far_share")
    if any((state[name] < 0).any() for name in counts) or (state["load_sums"][:, 0] < 0).any():
        raise ValueError("curve must have counts >= 0")
    if not 1e-6 < state["pace"] < 1e6:
        raise ValueError(f"curve.pace must be near 1, got {state['pace']}")
    if np.linalg.eigvalsh(0.5 * (state["gram"] + state["gram"].T)).min() <= 0.0:
        raise ValueError("curve.gram must be positive definite")


def _array(value: Any, like: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    if list(value["shape"]) != list(like.shape):
        raise ValueError(f"{name} must be of shape {like.shape}, got {value['shape']}")
    at = np.asarray(value["at"], dtype=np.int64)
    values = np.asarray(value["values"], dtype=np.float64)
    if at.shape != values.shape or at.ndim != 1:
        raise ValueError(f"{name} must have as many places as values")
    if at.size and not (at.min() >= 0 and at.max() < like.size):
        raise ValueError(f"{name} must have places below {like.size}, got {at.max()}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    array = np.zeros(like.size, dtype=like.dtype)
    array[at] = values
    return array.reshape(like.shape)
