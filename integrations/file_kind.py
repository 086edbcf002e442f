"""Says what a file looks like from its first bytes, for errors that name what was found."""

from __future__ import annotations

_SHOWN = 60
_LFS = b"version https://git-lfs"
_MAGIC = (
    (b"\x1f\x8b", "a gzip file: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
    (b"PK\x03\x04", "a zip file"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3", "an SQLite database"),
)


def describe_packed(first: bytes) -> str | None:
    """Say what a file is that holds no text of its own; None if it may be text.

    >>> describe_packed(b"PAR1...")
    'a Parquet file'
    >>> describe_packed(b"a,b") is None
    True
    """
    if not first:
        return "an empty file"
    if first.startswith(_LFS):
        return "a Git LFS pointer: fetch the file itself with 'git lfs pull'"
    return next((name for magic, name in _MAGIC if first.startswith(magic)), None)


def describe_start(first: bytes) -> str:
    """Say what a file looks like from its first line.

    >>> describe_start(b"TIMESTAMP,ContextTokens,GeneratedTokens")
    "what looks like CSV, beginning 'TIMESTAMP,ContextTokens,GeneratedTokens'"
    """
    packed = describe_packed(first)
    if packed is not None:
        return packed
    if first.startswith(b'{"kind":"header"'):
        return "a trace whose header was never finished"
    try:
        text = first.decode("utf-8").strip()
    except UnicodeDecodeError:
        return "a binary file"
    if not text.isprintable():
        return "a binary file"
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    if text.count(",") >= 2 and ", " not in text and not text.startswith(("{", "[")):
        return f"what looks like CSV, beginning {shown!r}"
    return f"text, beginning {shown!r}"
