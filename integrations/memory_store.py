"""What was learned, on disk: one plain JSON file per part, safe to read whoever wrote it."""

from __future__ import annotations

import datetime
import hashlib
import math
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import acclimate
from acclimate.integrations.engine_key import EngineKey
from acclimate.integrations.trace_format import pack, unpack

SCHEMA = 1
"""Rises when the meaning of a field changes."""
_KIND = "acclimate-memory"
_MOST_BYTES = 2**26  # of a file, and eight times that of the arrays that it describes


class _Head(msgspec.Struct, frozen=True):
    kind: str
    schema: int
    acclimate_version: str = ""


class MemoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the store: one JSON object, nothing in it that could run.

    ``key`` says what the part belongs to: policy and engine. ``state`` is the JSON text of what
    `pack` made of the state, ``checksum`` its CRC-32, ``saved`` the wall clock, UTC.
    """

    kind: str
    schema: int
    part: str
    key: dict[str, Any]
    saved: str
    acclimate_version: str
    checksum: int
    state: str


class MemoryStore:
    """One engine's files in a folder, each named by a digest of what its part belongs to.

    Parameters
    ----------
    folder
        Made when first written to.
    policy
        Name of the policy that learns.
    key
        The engine.
    rank
        Which of its data-parallel cores.

    Examples
    --------
    >>> import tempfile
    >>> key = EngineKey(
    ...     engine="vllm", engine_version="0.32.0", runner="v1", device="H200", model="m",
    ...     dtype="bfloat16", method="ngram", max_depth=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = MemoryStore(folder, "adaptive", key)
    ...     store.read("acceptance"), store.write("acceptance", {"q": 0.5}).suffix
    ...     store.read("acceptance")
    (None, '.json')
    {'q': 0.5}
    """

    def __init__(
        self, folder: str | os.PathLike[str], policy: str, key: EngineKey, rank: int = 0
    ) -> None:
        self.folder = Path(folder)
        self._policy, self._key, self._rank = policy, key, rank

    def path_of(self, part: str) -> Path:
        """Return where a part is, or will be."""
        identity = msgspec.json.encode(self._key_of(part), order="sorted")
        digest = hashlib.blake2b(identity, digest_size=8).hexdigest()
        return self.folder / f"{part}-{digest}-rank{self._rank}.json"

    def write(self, part: str, state: dict[str, Any]) -> Path:
        """Replace a part's file as a whole: a reader, or a crash, never meets half of it.

        Raises
        ------
        OSError
            The file system refuses.
        TypeError
            The state holds what `pack` cannot write.
        ValueError
            The file would be larger than may be read.
        """
        text = msgspec.json.encode(pack(state))
        content = MemoryFile(
            kind=_KIND,
            schema=SCHEMA,
            part=part,
            key=self._key_of(part),
            saved=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            acclimate_version=acclimate.__version__,
            checksum=zlib.crc32(text),
            state=text.decode(),
        )
        path, data = self.path_of(part), msgspec.json.encode(content)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{path} must have at most {_MOST_BYTES} bytes, got {len(data)}")
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return path

    def read(self, part: str) -> dict[str, Any] | None:
        """Return a part as it was written last, None if there is none.

        Raises
        ------
        ValueError
            The file is too large, damaged, of a later release, or of something else; the message
            says which.
        OSError
            The file system refuses.
        """
        path = self.path_of(part)
        try:
            with path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{path} must have at most {_MOST_BYTES} bytes, got more")
        content = _decode(path, data)
        expected = self._key_of(part)
        if content.part != part:
            raise ValueError(f"{path} must hold {part!r}, got {content.part!r}")
        if content.key != expected:
            raise ValueError(f"{path} must be of this engine, got {_others(expected, content.key)}")
        return _state(path, content)

    def _key_of(self, part: str) -> dict[str, Any]:
        return {"policy": self._policy, **self._key.part(part)}


def _decode(path: Path, data: bytes) -> MemoryFile:
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.kind != _KIND:
            raise ValueError(f"{path} must be of kind {_KIND!r}, got {head.kind!r}")
        if head.schema != SCHEMA:
            raise ValueError(
                f"{path} must have schema {SCHEMA}, got {head.schema}, of acclimate "
                f"{head.acclimate_version}"
            )
        return msgspec.json.decode(data, type=MemoryFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _state(path: Path, content: MemoryFile) -> dict[str, Any]:
    text = content.state.encode()
    if zlib.crc32(text) != content.checksum:
        raise ValueError(f"{path} is damaged: its checksum does not match")
    try:
        packed = msgspec.json.decode(text)
        if _array_bytes(packed) > 8 * _MOST_BYTES:
            raise ValueError("its arrays are larger than any state")
        state = unpack(packed)
    except (
        msgspec.MsgspecError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        zlib.error,
    ) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(state, dict):
        raise ValueError(f"{path} must hold an object, got {type(state).__name__}")
    return state


def _array_bytes(packed: Any) -> int:
    """Return how many bytes the arrays will take that a packed state describes.

    Each array is bounded by `unpack`; many that are well compressed are not.
    """
    if isinstance(packed, list):
        return sum(_array_bytes(item) for item in packed)
    if not isinstance(packed, dict):
        return 0
    if "dtype" in packed and isinstance(packed.get("shape"), list):
        sizes = [abs(int(length)) for length in packed["shape"]]
        return math.prod(sizes) * np.dtype(packed["dtype"]).itemsize
    return sum(_array_bytes(item) for item in packed.values())


def _others(expected: dict[str, Any], found: dict[str, Any]) -> str:
    """Say in words in which fields another key differs."""
    return ", ".join(
        f"{name} {found.get(name)!r} instead of {expected.get(name)!r}"
        for name in {**expected, **found}
        if expected.get(name) != found.get(name)
    )
