"""The trace on disk: one strict JSON object a line, and how records become lines and back."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from acclimate.controller.events import (
    AddEvent,
    AlarmEvent,
    ConfigEvent,
    DeclareEvent,
    FreeEvent,
    GapEvent,
    GuardEvent,
    ObserveEvent,
    PlanEvent,
    PreemptEvent,
    ReportEvent,
    SnapshotEvent,
)
from acclimate.controller.records import FloatArray
from acclimate.integrations.header import EngineHeader

SCHEMA = 1
"""Rises when the meaning of a field changes; a new field with a default does not raise it."""

CLOCK_NOTE = (
    "_ns instants are monotonic nanoseconds since an arbitrary start, comparable within one trace; "
    "'started' is the wall clock, UTC"
)
UNITS = {
    "_ns": "nanoseconds",
    "_s": "seconds",
    "_ms": "milliseconds",
    "_tokens": "tokens",
    "_tokens_per_s": "tokens per second",
    "_ratio": "fraction of one",
}
_ARRAY = frozenset({"dtype", "shape", "base64"})
_BIG_ARRAY = frozenset({"dtype", "shape", "zlib"})
_BIG_BYTES = 1_024
_MOST_BYTES = 2**28
_KINDS = "biufcSU"
_TAGS = (
    _ARRAY,
    _BIG_ARRAY,
    frozenset({"float"}),
    frozenset({"int"}),
    frozenset({"tuple"}),
    frozenset({"pairs"}),
)
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


class TraceHeader(msgspec.Struct, frozen=True, kw_only=True, tag="header", tag_field="kind"):
    """First line of every segment.

    ``trace`` is a random name that all segments of one trace share, ``segment`` counts from 0, and
    ``started`` is the UTC wall clock at which the trace, not the segment, began.
    """

    schema: int
    trace: str
    segment: int
    acclimate_version: str
    started: str
    engine: EngineHeader
    seed: int = 0
    token_hashes: bool = False
    clock: str = CLOCK_NOTE
    units: dict[str, str] = msgspec.field(default_factory=lambda: dict(UNITS))


class TokensRecord(msgspec.Struct, frozen=True, kw_only=True, tag="tokens", tag_field="kind"):
    """Salted hashes of one request's tokens, written when it ends.

    Equal tokens have equal hashes within one trace and in no other: enough to look n-grams up
    again, not to read the text. Whoever holds the file still sees which tokens repeat.
    """

    request: int
    prompt: tuple[int, ...]
    output: tuple[int, ...]


Line = (
    TraceHeader
    | TokensRecord
    | AddEvent
    | PlanEvent
    | ObserveEvent
    | FreeEvent
    | PreemptEvent
    | DeclareEvent
    | ConfigEvent
    | GuardEvent
    | GapEvent
    | SnapshotEvent
    | AlarmEvent
    | ReportEvent
)


def encode_line(line: Line) -> bytes:
    r"""Return ``line`` as strict JSON, newline included.

    Raises
    ------
    ValueError
        A number that must be finite is not, or a policy's state holds what cannot be written.

    Examples
    --------
    >>> encode_line(FreeEvent(seq=1, request=7))
    b'{"kind":"free","seq":1,"request":7}\n'
    """
    try:
        if isinstance(line, SnapshotEvent):
            line = msgspec.structs.replace(line, state=pack(line.state))
        encoded = _ENCODER.encode(line)
        if isinstance(line, PlanEvent):
            _check_finite(line)
        elif not isinstance(line, (ObserveEvent, TokensRecord)):
            # Rare kinds: reading the line back is the full check, and costs little.
            _DECODER.decode(encoded)
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"a {type(line).__name__} must be writable, got {error}") from error
    return encoded + b"\n"


def decode_line(data: bytes | str) -> Line:
    """Return the typed record of one line; arrays are bit-identical to those written.

    Unknown fields are ignored: a later release of the same schema may have added some.

    Raises
    ------
    ValueError
        The line is no JSON or no record of a trace; the message names the field.

    Examples
    --------
    >>> decode_line('{"kind":"free","seq":1,"request":7,"added_later":true}')
    FreeEvent(seq=1, request=7)
    """
    try:
        line: Line = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    if not isinstance(line, SnapshotEvent):
        return line
    try:
        return msgspec.structs.replace(line, state=unpack(line.state))
    except (TypeError, ValueError, OverflowError, zlib.error) as error:
        raise ValueError(f"a snapshot's state must be readable, got {error}") from error


def pack(value: Any) -> Any:
    """Return plain JSON data from which `unpack` restores ``value`` exactly.

    Arrays keep dtype, shape and every bit, large ones compressed; tuples, numbers that JSON lacks and dictionaries with
    other keys than strings are tagged.

    Raises
    ------
    TypeError
        A type that a policy's state may not hold.

    Examples
    --------
    >>> pack({"q": np.zeros(1), "depth": np.int64(3)})
    {'q': {'dtype': '<f8', 'shape': [1], 'base64': 'AAAAAAAAAAA='}, 'depth': 3}
    >>> unpack(pack({3: (1.5, float("inf"))}))
    {3: (1.5, inf)}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
        return pack(value.item())
    if isinstance(value, int):
        return value if _INT_MIN <= value <= _INT_MAX else {"int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(item) for item in value]}
    if isinstance(value, np.ndarray) and value.dtype.kind in _KINDS:
        raw = value.tobytes()
        big = len(raw) > _BIG_BYTES
        return {
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "zlib" if big else "base64": base64.b64encode(
                zlib.compress(raw, 1) if big else raw
            ).decode("ascii"),
        }
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value) and frozenset(value) not in _TAGS:
            return {key: pack(item) for key, item in value.items()}
        return {"pairs": [[pack(key), pack(item)] for key, item in value.items()]}
    raise TypeError(f"a policy's state of plain data, not of {type(value).__name__}")


def unpack(value: Any) -> Any:
    """Return what `pack` was given; arrays are fresh and writable."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    keys = frozenset(value)
    if keys not in _TAGS:
        return {key: unpack(item) for key, item in value.items()}
    if keys in (_ARRAY, _BIG_ARRAY):
        return _array(value)
    ((tag, inner),) = value.items()
    if tag == "pairs":
        return {unpack(key): unpack(item) for key, item in inner}
    if tag == "tuple":
        return tuple(unpack(item) for item in inner)
    return float(inner) if tag == "float" else int(inner)


def _array(tagged: dict[str, Any]) -> npt.NDArray[Any]:
    dtype, shape = np.dtype(tagged["dtype"]), tuple(int(length) for length in tagged["shape"])
    if dtype.kind not in _KINDS or any(length < 0 for length in shape):
        raise ValueError(f"an array must be of numbers or text, got {dtype} of shape {shape}")
    if math.prod(shape) * dtype.itemsize > _MOST_BYTES:
        raise ValueError(f"an array must have at most {_MOST_BYTES} bytes, got shape {shape}")
    if "zlib" in tagged:
        # What is unpacked is bounded by what the shape says.
        size = math.prod(shape) * dtype.itemsize
        raw = zlib.decompressobj().decompress(base64.b64decode(tagged["zlib"]), max(size, 1))
    else:
        raw = base64.b64decode(tagged["base64"])
    return np.frombuffer(raw, dtype=dtype).reshape(shape).copy()


def _check_finite(event: PlanEvent) -> None:
    plan = event.decision
    for name in ("price_tokens_per_s", "propensity", "predicted_tokens"):
        number = getattr(plan, name)
        if number is not None and not math.isfinite(number):
            raise ValueError(f"{name} must be finite, got {number}")


def _to_json(value: Any) -> Any:
    """Encode what msgspec does not know: the records' arrays, as plain lists, and numpy scalars."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise ValueError("arrays of records must be finite, got NaN or infinity")
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__}, which JSON cannot hold")


def _from_json(kind: Any, value: Any) -> Any:
    """Decode the records' arrays."""
    return np.asarray(value, dtype=np.float64 if kind == FloatArray else np.int64)


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json)
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Line, dec_hook=_from_json)
