"""Names the kind of a file, so that a reader that gets another one can say what it got."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acclimate.experiments.readers.lines import load_json, split_csv
from acclimate.integrations.file_kind import describe_packed, describe_start

_HEAD_BYTES = 1 << 20
_KEY = re.compile(r'"(\w+)"\s*:')


class Kind(enum.StrEnum):
    """The kinds of files that are read here."""

    TRACE = "trace"
    REQUEST_METRICS = "request-metrics"
    PROMETHEUS = "prometheus"
    BENCH_SERVE = "bench-serve"
    AZURE = "azure"
    MOONCAKE = "mooncake"
    BURSTGPT = "burstgpt"
    SPEC_BENCH = "spec-bench"
    LATENCY = "latency"

    @property
    def described(self) -> str:
        """What a file of this kind is called in a sentence."""
        return _TITLES[self]


_TITLES = {
    Kind.TRACE: "an acclimate trace",
    Kind.REQUEST_METRICS: "vLLM responses with per-request speculative decoding metrics",
    Kind.PROMETHEUS: "a Prometheus text dump",
    Kind.BENCH_SERVE: "a result of 'vllm bench serve'",
    Kind.AZURE: "an Azure LLM inference trace",
    Kind.MOONCAKE: "a Mooncake arrival trace",
    Kind.BURSTGPT: "a BurstGPT trace",
    Kind.SPEC_BENCH: "a file of Spec-Bench prompts",
    Kind.LATENCY: "a latency table",
}
# Column names of which a header has all, in lower case.
_CSV = (
    (Kind.AZURE, {"timestamp", "contexttokens"}),
    (Kind.AZURE, {"timestamp", "generatedtokens"}),
    (Kind.BURSTGPT, {"timestamp", "request tokens"}),
    (Kind.BURSTGPT, {"timestamp", "response tokens"}),
)
_BATCH, _DEPTH = {"batch", "batch_size"}, {"k", "depth", "draft_depth", "num_speculative_tokens"}
# Keys of which a JSON object has all.
_JSON = (
    (Kind.TRACE, {"kind", "schema"}),
    (Kind.BENCH_SERVE, {"completed", "duration"}),
    (Kind.BENCH_SERVE, {"backend", "request_throughput"}),
    (Kind.MOONCAKE, {"timestamp", "input_length"}),
    (Kind.MOONCAKE, {"timestamp", "hash_ids"}),
    (Kind.MOONCAKE, {"timestamp", "output_length"}),
    (Kind.SPEC_BENCH, {"category", "turns"}),
    (Kind.SPEC_BENCH, {"question_id", "turns"}),
    (Kind.SPEC_BENCH, {"question_id", "category"}),
    (Kind.REQUEST_METRICS, {"acceptance_histogram"}),
    (Kind.REQUEST_METRICS, {"per_step_accepted"}),
    (Kind.REQUEST_METRICS, {"speculative_decoding"}),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Sighting:
    """What a file looks like: its kind if it has one, and words for a sentence."""

    kind: Kind | None
    words: str


def detect(path: str | os.PathLike[str]) -> Sighting:
    """Say of which kind a file is, from its first megabyte.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        It is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"a file must be read, got the folder {path}")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    packed = describe_packed(head)
    if packed is not None:
        return Sighting(None, packed)
    first = head.splitlines()[0] if head.strip() else b""
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The megabyte may end inside a character, and dirty rows may hold anything.
        text = head.decode("utf-8-sig", errors="replace")
        if error.start < len(first):
            return Sighting(None, describe_start(first))
    kind = _kind_of(text)
    if kind is not None:
        return Sighting(kind, kind.described)
    return Sighting(None, describe_start(first) if first else "a blank file")


def require(path: str | os.PathLike[str], wanted: Kind) -> Path:
    """Return ``path`` if the file there is of the wanted kind.

    Raises
    ------
    ValueError
        It is something else; the message says what it looks like, and who reads that.
    """
    path = Path(path)
    sighting = detect(path)
    if sighting.kind is wanted:
        return path
    other = "" if sighting.kind is None else f" (of the kind {sighting.kind.value!r})"
    raise ValueError(f"{path.name} must be {wanted.described}, got {sighting.words}{other}")


def _kind_of(text: str) -> Kind | None:
    stripped = text.lstrip()
    if stripped.startswith(("{", "[")):
        records = list(_records(stripped))
        if not records:
            # One long document, of which this is the beginning, or a cut one.
            records = [dict.fromkeys(_KEY.findall(stripped))]
        return next((kind for record in records if (kind := _json_kind(record))), None)
    if stripped.startswith(("# HELP", "# TYPE")) or "\nvllm:" in text or text.startswith("vllm:"):
        return Kind.PROMETHEUS
    columns = {cell.lower() for cell in split_csv(stripped.split("\n", 1)[0].strip())}
    for kind, names in _CSV:
        if names <= columns:
            return kind
    return Kind.LATENCY if columns & _BATCH and columns & _DEPTH else None


def _records(text: str) -> Iterator[Any]:
    """Yield the JSON values at the beginning of a text: one document, or lines of it."""
    try:
        document = load_json(text)
    except ValueError:
        document = None
    if document is not None:
        yield document
        if isinstance(document, list):
            yield from document[:100]
        return
    for line in text.split("\n")[:100]:
        try:
            yield load_json(line)
        except ValueError:
            continue


def _json_kind(record: Any) -> Kind | None:
    if isinstance(record, list) and record and all(isinstance(x, int) for x in record):
        return Kind.REQUEST_METRICS
    if not isinstance(record, dict):
        return None
    for kind, names in _JSON:
        if names <= record.keys():
            return kind
    for key in ("metrics", "data", "response", "body"):
        if isinstance(record.get(key), dict) and (inner := _json_kind(record[key])):
            return inner if inner is Kind.REQUEST_METRICS else None
    if "choices" in record and ("usage" in record or "metrics" in record):
        return Kind.REQUEST_METRICS
    return None
