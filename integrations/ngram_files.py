"""Keeps back-off models in compressed NumPy files, without pickles."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec
import numpy as np

from acclimate.predictors.ngram import BackoffModel
from acclimate.predictors.ngram_tables import NgramTables

FORMAT = 1
_ARRAYS = ("starts", "keys", "sizes", "totals", "tokens", "counts", "weights")


class NgramHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of itself.

    Parameters
    ----------
    model
        Name of the target whose text was counted: drafts are ids of its tokenizer.
    variant
        ``general``, or the one domain that was trained on.
    order
        Longest context, in tokens.
    texts, tokens
        What was counted.
    seed
        Of the prompts.
    """

    format: int = FORMAT
    model: str
    variant: str
    order: int
    texts: int
    tokens: int
    seed: int


def save_backoff(path: str | os.PathLike[str], model: BackoffModel, header: NgramHeader) -> None:
    """Write a model; a file of that name appears only when it is complete."""
    tables = model.tables
    arrays: dict[str, np.ndarray] = {
        "header": np.frombuffer(msgspec.json.encode(header), dtype=np.uint8),
        "starts": tables.starts.astype(np.int64),
        # Differences of sorted hashes are small, and so compress.
        "keys": _differences(tables.keys, tables.starts),
        "sizes": tables.sizes.astype(np.uint8),
        "totals": tables.totals,
        "tokens": tables.tokens,
        "counts": tables.counts,
        "weights": model.weights.astype(np.float32),
    }
    target = Path(path)
    partial = target.with_name(f".{target.name}.partial")
    with partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    partial.replace(target)


def load_backoff(path: str | os.PathLike[str]) -> tuple[BackoffModel, NgramHeader]:
    """Read a model.

    Raises
    ------
    ValueError
        The file holds something else, or is damaged.
    FileNotFoundError
        There is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = msgspec.json.decode(file["header"].tobytes(), type=NgramHeader)
            arrays = {name: file[name] for name in _ARRAYS}
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} must hold a back-off model, got: {error}") from error
    if header.format != FORMAT:
        raise ValueError(f"{path} must be of format {FORMAT}, got {header.format}")
    starts = arrays["starts"].astype(np.int64)
    tables = NgramTables.of(
        header.order,
        starts,
        _sums(arrays["keys"], starts),
        arrays["sizes"].astype(np.int64),
        arrays["totals"].astype(np.uint16),
        arrays["tokens"].astype(np.uint16),
        arrays["counts"].astype(np.uint16),
    )
    return BackoffModel(tables, arrays["weights"].astype(np.float64)), header


def _differences(keys: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the first key of each length, and differences of the others.

    >>> _differences(np.array([7, 9, 12, 3, 4], dtype=np.uint32), np.array([0, 3, 5])).tolist()
    [7, 2, 3, 3, 1]
    """
    steps = keys.copy()
    steps[1:] -= keys[:-1]
    heads = starts[:-1][np.diff(starts) > 0]
    steps[heads] = keys[heads]
    return steps


def _sums(steps: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Undo `_differences`.

    >>> _sums(np.array([7, 2, 3, 3, 1], dtype=np.uint32), np.array([0, 3, 5])).tolist()
    [7, 9, 12, 3, 4]
    """
    keys = np.empty_like(steps, dtype=np.uint32)
    for begin, end in itertools.pairwise(starts):
        keys[begin:end] = np.cumsum(steps[begin:end], dtype=np.uint32)
    return keys
