"""A file of the wrong kind says what it looks like, and what kind that is."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acclimate.experiments.readers.azure import read_azure
from acclimate.experiments.readers.bench_serve import read_bench_serve
from acclimate.experiments.readers.burstgpt import read_burstgpt
from acclimate.experiments.readers.detect import Kind, detect
from acclimate.experiments.readers.latency_table import read_latency_table
from acclimate.experiments.readers.mooncake import read_mooncake
from acclimate.experiments.readers.prometheus import read_prometheus
from acclimate.experiments.readers.request_metrics import read_request_metrics
from acclimate.experiments.readers.spec_bench import read_spec_bench
from acclimate.experiments.readers.trace_summary import read_trace_summary

READERS: dict[Kind, Callable[[Path], Any]] = {
    Kind.TRACE: read_trace_summary,
    Kind.REQUEST_METRICS: read_request_metrics,
    Kind.PROMETHEUS: read_prometheus,
    Kind.BENCH_SERVE: read_bench_serve,
    Kind.AZURE: read_azure,
    Kind.MOONCAKE: read_mooncake,
    Kind.BURSTGPT: read_burstgpt,
    Kind.SPEC_BENCH: read_spec_bench,
    Kind.LATENCY: read_latency_table,
}
SAMPLES = {
    Kind.TRACE: '{"kind":"header","schema":1}\n',
    Kind.REQUEST_METRICS: '{"metrics":{"speculative_decoding":{"acceptance_histogram":[1,1]}}}\n',
    Kind.PROMETHEUS: "# HELP x y\nvllm:spec_decode_num_drafts_total 1.0\n",
    Kind.BENCH_SERVE: '{"duration":1.0,"completed":1,"total_output_tokens":5}',
    Kind.AZURE: "TIMESTAMP,ContextTokens,GeneratedTokens\n",
    Kind.MOONCAKE: '{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[0]}\n',
    Kind.BURSTGPT: "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
    Kind.SPEC_BENCH: '{"question_id":81,"category":"writing","turns":["a"]}\n',
    Kind.LATENCY: "batch,K,ms\n",
}


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_known(tmp_path: Path, kind: Kind) -> None:
    path = tmp_path / "file"
    path.write_text(SAMPLES[kind])
    assert detect(path).kind is kind
    # A damaged record in front does not hide it.
    if SAMPLES[kind].startswith("{") and kind not in (Kind.TRACE, Kind.BENCH_SERVE):
        path.write_text('{"cut": \n' + SAMPLES[kind])
        assert detect(path).kind is kind


@pytest.mark.parametrize("wanted", READERS)
@pytest.mark.parametrize("given", SAMPLES)
def test_a_reader_names_another_readers_file(tmp_path: Path, wanted: Kind, given: Kind) -> None:
    if wanted is given:
        return
    path = tmp_path / "file"
    path.write_text(SAMPLES[given])
    with pytest.raises(ValueError) as error:
        READERS[wanted](path)
    assert wanted.described in str(error.value)
    assert f"got {given.described} (of the kind '{given.value}')" in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b" \n\n", "a blank file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "Git LFS pointer"),
        (gzip.compress(b"TIMESTAMP,ContextTokens,GeneratedTokens\n"), "gzip file"),
        (b"PAR1\x00\x01", "Parquet"),
        (b"\xff\xfe\x00\x01\x80", "binary"),
        (b"a,b,c\n1,2,3\n", "looks like CSV, beginning 'a,b,c'"),
        (b"<html><body>404</body></html>", "text, beginning '<html>"),
    ],
)
def test_what_no_reader_takes_is_described(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    for reader in READERS.values():
        with pytest.raises(ValueError, match=words):
            reader(path)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got the folder"):
        read_azure(tmp_path)
    for reader in READERS.values():
        with pytest.raises(FileNotFoundError):
            reader(tmp_path / "none")


def test_a_document_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    lists = ",".join(f'"{name}":{[1] * 300_000}' for name in ("input_lens", "output_lens"))
    path.write_text(f'{{"duration":9.0,"completed":5,"total_output_tokens":7,{lists}}}')
    assert read_bench_serve(path).kept == 1
    path.write_text('{"duration":9.0,"completed":5,"total_outp')
    assert dict(read_bench_serve(path).dropped) == {"last line truncated": 1}
