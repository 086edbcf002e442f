"""Whatever is in a file: read = kept + dropped, and no NaN comes out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acclimate.experiments.readers.azure import read_azure
from acclimate.experiments.readers.bench_serve import read_bench_serve
from acclimate.experiments.readers.burstgpt import read_burstgpt
from acclimate.experiments.readers.latency_table import read_latency_table
from acclimate.experiments.readers.mooncake import read_mooncake
from acclimate.experiments.readers.prometheus import read_prometheus
from acclimate.experiments.readers.request_metrics import read_request_metrics
from acclimate.experiments.readers.spec_bench import read_spec_bench

SETTINGS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
_TEXT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\n\r\u2028\u2029\x85"),
    max_size=8,
)
_CELLS = st.one_of(
    st.sampled_from(
        ["", "1", "5", "250", "0", "-1", "1.5", "nan", "inf", "1e30", "2023-11-16 18:15:46.68"]
    ),
    _TEXT,
)
_ROWS = st.lists(st.lists(_CELLS, min_size=1, max_size=7).map(",".join), max_size=8)
_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | _TEXT,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def _n_rows(rows: list[str]) -> int:
    return sum(bool(row.strip()) for row in rows)


@pytest.mark.parametrize(
    ("reader", "header"),
    [
        (read_azure, "TIMESTAMP,ContextTokens,GeneratedTokens"),
        (read_burstgpt, "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"),
        (read_latency_table, "batch,K,ms"),
    ],
)
@SETTINGS
@given(rows=_ROWS, finished=st.booleans())
def test_every_csv_row_is_accounted_for(
    tmp_path: Path, reader: Any, header: str, rows: list[str], finished: bool
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(header + "\n" + "\n".join(rows) + ("\n" if finished else ""), encoding="utf-8")
    try:
        read = reader(path)
    except ValueError as error:
        # Another unit is the one thing for which a whole file is refused.
        assert "must be" in str(error)
        return
    assert read.read == _n_rows(rows)
    _check_finite(read.value)


@pytest.mark.parametrize(
    ("reader", "first", "keys"),
    [
        (
            read_mooncake,
            {"timestamp": 0, "input_length": 1, "output_length": 1},
            ("timestamp", "input_length", "output_length"),
        ),
        (
            read_spec_bench,
            {"question_id": 1, "category": "a", "turns": ["b"]},
            ("question_id", "category", "turns"),
        ),
        (
            read_request_metrics,
            {"acceptance_histogram": [1, 1]},
            ("acceptance_histogram", "num_draft_tokens", "per_step_accepted", "metrics"),
        ),
        (
            read_bench_serve,
            {"duration": 1.0, "completed": 1, "total_output_tokens": 1},
            ("duration", "completed", "total_output_tokens", "ttfts", "errors", "mean_ttft_ms"),
        ),
    ],
)
@SETTINGS
@given(data=st.data())
def test_every_json_record_is_accounted_for(
    tmp_path: Path, reader: Any, first: dict[str, Any], keys: tuple[str, ...], data: Any
) -> None:
    record = st.dictionaries(st.sampled_from(keys), _VALUES).map(lambda d: {**first, **d})
    records = data.draw(st.lists(record | _VALUES, max_size=6))
    lines = [json.dumps(first), *(json.dumps(record) for record in records)]
    broken = data.draw(st.lists(st.sampled_from(["{", '{"a": 1', "]["]), max_size=2))
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join([*lines, *broken]), encoding="utf-8")
    try:
        read = reader(path)
    except ValueError as error:
        assert "must be in milliseconds" in str(error)
        return
    assert read.read == len(lines) + len(broken)
    assert read.kept >= 1
    _check_finite(read.value)


@SETTINGS
@given(
    values=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"}',
                    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="x"}',
                    'vllm:spec_decode_num_drafts_total{engine="1"}',
                    "vllm:spec_decode_num_drafts_created",
                    "vllm:prompt_tokens_total",
                    "vllm:{",
                ]
            ),
            st.sampled_from(["1.0", "NaN", "+Inf", "-3", "", "1e300"]),
        ),
        max_size=6,
    )
)
def test_every_sample_is_accounted_for(tmp_path: Path, values: list[tuple[str, str]]) -> None:
    lines = ["# HELP a b", "vllm:spec_decode_num_drafts_total 5.0"]
    lines += [f"{name} {value}" for name, value in values]
    path = tmp_path / "metrics"
    path.write_text("\n".join(lines) + "\n")
    read = read_prometheus(path)
    assert read.read == len(lines) - 1
    assert np.isfinite(read.value.drafts)


def _check_finite(value: Any) -> None:
    for name in getattr(value, "__slots__", ()):
        array = getattr(value, name)
        if isinstance(array, np.ndarray):
            assert np.isfinite(array).all()
