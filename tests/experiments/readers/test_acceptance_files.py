"""Acceptance from vLLM's responses, counters and benchmark results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from acclimate.experiments.readers.bench_serve import read_bench_serve
from acclimate.experiments.readers.prometheus import read_prometheus
from acclimate.experiments.readers.request_metrics import read_request_metrics

HISTOGRAM = {
    "mean_acceptance_length": 1.2325581395348837,
    "draft_acceptance_rate": 0.07751937984496124,
    "acceptance_histogram": [39, 1, 0, 3],
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "num_spec_tokens": 3,
}
PER_STEP = [7, 5, 5, 4, 1, 7, 7, 7, 7, 7, 7, 3]


def _lines(folder: Path, *records: object) -> Path:
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def _response(metrics: object, tokens: int = 50) -> dict[str, Any]:
    return {
        "choices": [],
        "usage": {"completion_tokens": tokens},
        "metrics": {"speculative_decoding": metrics},
    }


def test_the_documented_histogram(tmp_path: Path) -> None:
    read = read_request_metrics(_lines(tmp_path, _response(HISTOGRAM)))
    value = read.value
    assert (value.steps[0], value.drafted[0], value.accepted[0]) == (43, 129, 10)
    assert value.acceptance_length == pytest.approx(1.2326, abs=5e-5)
    assert value.acceptance_lengths.tolist() == [value.acceptance_length]
    assert value.survival.tolist() == [4 / 43, 3 / 43, 3 / 43]
    assert not read.dropped and not read.notes


@pytest.mark.parametrize("bare", [False, True])
def test_accepted_per_step(tmp_path: Path, bare: bool) -> None:
    detailed = {"per_step_accepted": PER_STEP, "per_step_drafted": [7] * 12}
    value = read_request_metrics(_lines(tmp_path, PER_STEP if bare else detailed)).value
    assert (value.steps[0], value.accepted[0]) == (12, 67)
    assert value.drafted[0] == (-1 if bare else 84)
    assert value.acceptance_rate == (None if bare else pytest.approx(67 / 84))
    assert value.acceptance_length == pytest.approx(1 + 67 / 12)


def test_requests_are_dropped_by_name(tmp_path: Path) -> None:
    def changed(**values: object) -> dict[str, Any]:
        return _response({**HISTOGRAM, **values})

    records = [
        _response(HISTOGRAM),
        changed(num_spec_steps=44),
        changed(num_accepted_draft_tokens=11),
        changed(num_draft_tokens=9),
        changed(acceptance_histogram=[39, 1, None, 3]),
        changed(acceptance_histogram=[39, 1, float("nan"), 3]),
        changed(acceptance_histogram=[-1, 1]),
        changed(acceptance_histogram=[0, 0], num_spec_steps=0, num_accepted_draft_tokens=0),
        changed(per_step_accepted=[1, 0], per_step_drafted=[1]),
        changed(per_step_accepted=[2, 0], per_step_drafted=[1, 1]),
        changed(per_step_accepted=[1, 0], per_step_drafted=[1, 1]),
        _response(None),
        _response(HISTOGRAM, tokens=0),
        "text",
    ]
    read = read_request_metrics(_lines(tmp_path, *records))
    assert read.kept == 1 and read.read == len(records)
    assert dict(read.dropped) == {
        "histogram sum differs from steps": 1,
        "histogram differs from accepted": 1,
        "accepted more than drafted": 2,
        "histogram missing": 1,
        "histogram is NaN": 1,
        "histogram negative": 1,
        "no speculative steps": 1,
        "per-step lists differ in length": 1,
        "histogram differs from per-step list": 1,
        "no speculative decoding metrics": 1,
        "no output tokens": 1,
        "not an object": 1,
    }


def test_a_rate_in_percent_is_noted(tmp_path: Path) -> None:
    read = read_request_metrics(
        _lines(
            tmp_path,
            {**HISTOGRAM, "draft_acceptance_rate": 7.7519},
            {**HISTOGRAM, "draft_acceptance_rate": 0.5},
        )
    )
    assert read.kept == 2
    assert dict(read.notes) == {"rate is a percentage": 1, "rate differs from the counts": 1}
    assert read.value.acceptance_rate == pytest.approx(20 / 258)


def _dump(
    folder: Path,
    name: str,
    engines: Mapping[str, tuple[int, int, int, tuple[int, ...]]],
    *,
    position: str = "position",
    more: str = "",
) -> Path:
    lines = ["# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts."]
    for engine, (drafts, drafted, accepted, per_position) in engines.items():
        label = f'engine="{engine}",model_name="m"'
        lines += [
            f"vllm:spec_decode_num_drafts_total{{{label}}} {drafts}.0",
            f"vllm:spec_decode_num_drafts_created{{{label}}} 1.7e+09",
            f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {drafted}.0",
            f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {accepted}.0",
        ]
        lines += [
            f"vllm:spec_decode_num_accepted_tokens_per_pos_total"
            f'{{{label},{position}="{i}"}} {count}.0'
            for i, count in enumerate(per_position)
        ]
    path = folder / name
    path.write_text("\n".join(lines) + "\n" + more)
    return path


@pytest.mark.parametrize("position", ["position", "pos"])
def test_engines_are_summed_and_created_series_ignored(tmp_path: Path, position: str) -> None:
    engines = {"0": (100, 300, 120, (70, 40, 10)), "1": (50, 150, 30, (20, 8, 2))}
    more = "vllm:num_requests_running 3.0\nvllm:spec_decode_num_draft"
    read = read_prometheus(_dump(tmp_path, "a", engines, position=position, more=more))
    value = read.value
    assert (value.drafts, value.drafted_tokens, value.accepted_tokens) == (150, 450, 150)
    assert value.acceptance_length == 2.0
    assert value.survival is not None
    assert value.survival.tolist() == [90 / 150, 48 / 150, 12 / 150]
    assert value.engines == ("0", "1")
    assert read.kept == 12
    assert dict(read.dropped) == {
        "when a counter was created": 2,
        "another metric": 1,
        "last line truncated": 1,
    }


def test_two_dumps_make_a_window(tmp_path: Path) -> None:
    before = read_prometheus(_dump(tmp_path, "a", {"0": (100, 300, 250, (100, 90, 60))})).value
    after = read_prometheus(_dump(tmp_path, "b", {"0": (150, 450, 275, (120, 95, 60))})).value
    window = after.since(before)
    assert (window.drafts, window.acceptance_length, window.resets) == (50, 1.5, 0)
    assert window.survival is not None and window.survival.tolist() == [0.4, 0.1, 0.0]


def test_a_counter_that_went_down_was_reset(tmp_path: Path) -> None:
    before = read_prometheus(
        _dump(tmp_path, "a", {"0": (100, 300, 250, ()), "1": (10, 30, 20, ())})
    ).value
    after = read_prometheus(
        _dump(tmp_path, "b", {"0": (20, 60, 30, ()), "1": (20, 60, 40, ())})
    ).value
    window = after.since(before)
    assert (window.drafts, window.accepted_tokens, window.resets) == (30, 50, 3)


def test_no_drafts_is_no_data(tmp_path: Path) -> None:
    dump = read_prometheus(_dump(tmp_path, "a", {"0": (7, 21, 3, (3, 0, 0))})).value
    window = dump.since(dump)
    assert window.acceptance_length is None
    assert window.acceptance_rate is None
    assert window.survival is None


def test_dumps_that_cannot_be_believed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must not exceed the 3 drafted, got 9"):
        read_prometheus(_dump(tmp_path, "a", {"0": (1, 3, 9, ())}))
    other = tmp_path / "other"
    other.write_text("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n")
    with pytest.raises(ValueError, match="started with a speculative configuration"):
        read_prometheus(other)
    nan = _dump(tmp_path, "n", {"0": (1, 3, 2, ())}, more="vllm:spec_decode_num_drafts_total NaN\n")
    assert read_prometheus(nan).dropped["value is NaN or infinite"] == 1


RUN: dict[str, Any] = {
    "date": "20260101-000000",
    "backend": "vllm",
    "model_id": "m",
    "request_rate": "inf",
    "duration": 10.0,
    "completed": 2,
    "failed": 1,
    "total_input_tokens": 30,
    "total_output_tokens": 200,
    "output_throughput": 20.0,
    "mean_ttft_ms": 150.0,
    "p99_tpot_ms": 30.0,
    "spec_decode_acceptance_rate": 40.0,
    "spec_decode_acceptance_length": 2.2,
    "spec_decode_num_drafts": 100,
    "spec_decode_draft_tokens": 300,
    "spec_decode_accepted_tokens": 120,
    "spec_decode_per_position_acceptance_rates": [0.7, 0.4, 0.1],
}
DETAIL: dict[str, Any] = {
    "input_lens": [10, 20, 30, 5],
    "output_lens": [3, 1, 0, 2],
    "ttfts": [0.1, 0.2, 0.0, float("nan")],
    "itls": [[0.02, 0.03], [], [], [0.1]],
    "errors": ["", "", "connection closed", ""],
}


def test_bench_serve_speaks_percent(tmp_path: Path) -> None:
    read = read_bench_serve(_lines(tmp_path, RUN))
    (run,) = read.value
    assert run.acceptance_rate == pytest.approx(0.4)
    assert run.acceptance_length == pytest.approx(2.2)
    assert (run.output_tokens_per_s, run.failed, run.survival) == (20.0, 1, (0.7, 0.4, 0.1))
    assert run.latency_ms == {"mean_ttft_ms": 150.0, "p99_tpot_ms": 30.0}
    assert not read.notes
    fraction = read_bench_serve(_lines(tmp_path, {**RUN, "spec_decode_acceptance_rate": 0.4}))
    assert fraction.value[0].acceptance_rate == pytest.approx(0.4)
    assert dict(fraction.notes) == {"rate is a fraction, not a percentage": 1}


def test_bench_serve_requests_in_detail(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**RUN, **DETAIL}, indent=2))
    requests = read_bench_serve(path).value[0].requests
    assert requests is not None
    assert dict(requests.dropped) == {"cancelled or failed": 1, "ttft is NaN": 1}
    assert requests.value.output_tokens.tolist() == [3, 1]
    assert requests.value.decode_s.tolist() == pytest.approx([0.05, 0.0])


def test_bench_serve_runs_are_dropped_by_name(tmp_path: Path) -> None:
    runs = [
        RUN,
        {**RUN, "completed": 0},
        {**RUN, "duration": 0},
        {**RUN, "total_output_tokens": 0},
        {**RUN, "total_output_tokens": None},
        {**RUN, "mean_ttft_ms": float("nan")},
        {**RUN, "mean_ttft_ms": 150e6},
        {**RUN, **DETAIL, "mean_ttft_ms": 0.15},
        {**RUN, "spec_decode_accepted_tokens": 301},
    ]
    read = read_bench_serve(_lines(tmp_path, *runs))
    assert read.kept == 1 and read.read == len(runs)
    assert dict(read.dropped) == {
        "no completed request": 1,
        "duration not above 0": 1,
        "no output tokens": 1,
        "output tokens missing": 1,
        "mean_ttft_ms is NaN": 1,
        "latency longer than the run, not in milliseconds": 1,
        "latency differs from the requests', not in milliseconds": 1,
        "accepted more than drafted": 1,
    }


def test_bench_serve_without_drafts_is_no_data(tmp_path: Path) -> None:
    none = {
        **RUN,
        "spec_decode_num_drafts": 0,
        "spec_decode_draft_tokens": 0,
        "spec_decode_accepted_tokens": 0,
    }
    plain = {key: value for key, value in RUN.items() if not key.startswith("spec_decode")}
    read = read_bench_serve(_lines(tmp_path, none, plain))
    assert [run.acceptance_length for run in read.value] == [None, None]
    assert [run.acceptance_rate for run in read.value] == [None, None]
