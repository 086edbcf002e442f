"""Which files make up one trace: ``name.jsonl``, ``name.00001.jsonl``, ``name.00002.jsonl``, …"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

_NUMBER = re.compile(r"\.(\d{5,})$")


def segment_path(path: Path, segment: int) -> Path:
    """Return the file of one segment; segment 0 is ``path`` itself.

    Examples
    --------
    >>> segment_path(Path("trace.jsonl"), 12).name
    'trace.00012.jsonl'
    """
    return path if segment == 0 else path.with_name(f"{path.stem}.{segment:05d}{path.suffix}")


def segment_files(path: Path) -> list[Path]:
    """Return the existing segments of the trace that was given ``path``, in order.

    Numbers may be missing at the start, where old segments were deleted. The path of a later
    segment gives that one alone.
    """
    if path.is_file() and _NUMBER.search(path.stem):
        return [path]
    numbered = {}
    for other in path.parent.glob(f"*{path.suffix}") if path.parent.is_dir() else ():
        stem, found = _NUMBER.sub("", other.stem), _NUMBER.search(other.stem)
        if stem == path.stem and found and other.suffix == path.suffix:
            numbered[int(found[1])] = other
    later = [numbered[number] for number in sorted(numbered)]
    return [path, *later] if path.is_file() else later


def free_path(path: Path) -> Path:
    """Return ``path``, or ``name-2``, ``name-3``, … if files of another trace have that name."""
    for number in itertools.count(2):
        if not path.exists() and not segment_files(path):
            return path
        stem = re.sub(r"-\d+$", "", path.stem) if number > 2 else path.stem
        path = path.with_name(f"{stem}-{number}{path.suffix}")
    raise AssertionError("unreachable")
