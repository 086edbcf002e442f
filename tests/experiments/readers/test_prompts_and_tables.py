"""Spec-Bench prompts, latency tables, and traces of every schema version."""

import json
import shutil
from pathlib import Path

import pytest

from acclimate.controller.events import GapEvent
from acclimate.experiments.readers.latency_table import read_latency_table
from acclimate.experiments.readers.spec_bench import BEYOND_LIMIT, read_spec_bench
from acclimate.experiments.readers.trace_summary import Gap, read_trace_summary
from acclimate.experiments.simulation.curve_time import CurveTime
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.integrations.trace_format import encode_line
from acclimate.integrations.trace_reader import read_trace

ROOT = Path(__file__).parents[3]
SPEC_BENCH = ROOT.parent / "shared" / "data" / "specbench.jsonl"
TRACES = sorted((ROOT / "tests" / "data").glob("trace-schema-*.jsonl"))


def _prompts(folder: Path, *records: object, end: str = "") -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + end)
    return path


def test_prompts_are_limited_by_category_and_dropped_by_name(tmp_path: Path) -> None:
    path = _prompts(
        tmp_path,
        {"question_id": 1, "category": "code", "turns": ["a", "b"]},
        {"question_id": 1, "category": "qa", "turns": ["c"]},
        {"question_id": 3, "category": "code", "turns": ["d"]},
        {"question_id": 4, "turns": ["e"]},
        {"question_id": 5, "category": "qa"},
        {"question_id": 6, "category": "qa", "turns": [" "]},
        {"question_id": 7, "category": "qa", "turns": [7]},
        end='{"question_id": 8, "cat',
    )
    read = read_spec_bench(path, limit=1)
    assert [(p.domain, p.turns) for p in read.value] == [("code", ("a",)), ("qa", ("c",))]
    assert read.read == 8
    assert dict(read.dropped) == {
        BEYOND_LIMIT: 1,
        "category missing": 1,
        "turns missing": 1,
        "first turn empty": 1,
        "a turn is no text": 1,
        "last line truncated": 1,
    }
    assert dict(read.notes) == {"same question_id as another": 1}
    assert read_spec_bench(path, turns="all").value[0].turns == ("a", "b")
    with pytest.raises(ValueError, match="limit must be >= 1"):
        read_spec_bench(path, limit=0)


def test_the_public_prompts() -> None:
    if not SPEC_BENCH.exists():
        pytest.skip("Spec-Bench's prompts are not beside this checkout")
    assert read_spec_bench(SPEC_BENCH).kept == 480
    limited = read_spec_bench(SPEC_BENCH, limit=3)
    assert (limited.kept, limited.dropped[BEYOND_LIMIT]) == (39, 441)


def _table(folder: Path, text: str) -> Path:
    path = folder / "latency.csv"
    path.write_text(text)
    return path


def test_latency_rows_are_dropped_by_name(tmp_path: Path) -> None:
    read = read_latency_table(
        _table(
            tmp_path,
            "gpu,K,batch,ms\nx,0,1,6.5\nx,1,1,7.4\nx,1,1,7.5\nx,1,0,7\nx,-1,1,7\nx,1,1,nan\n"
            "x,1,1,0\nx,1.5,1,7\nx,2,1",
        )
    )
    assert read.value.ms.tolist() == [6.5, 7.4, 7.5]
    assert dict(read.notes) == {"same cell as another": 1}
    assert dict(read.dropped) == {
        "batch is 0": 1,
        "K negative": 1,
        "ms is NaN": 1,
        "ms not above 0": 1,
        "K is not whole": 1,
        "last line truncated": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch,K,latency_s\n1,0,0.0065\n", "got seconds in 'latency_s'"),
        ("batch,K,ns\n1,0,6500000\n", "got nanoseconds in 'ns'"),
        ("batch,K,ms\n1,0,0.0065\n1,1,0.0074\n", "looks like seconds"),
        ("batch,K,ms\n1,0,6500000000\n", "looks like nanoseconds"),
        ("batch,K,time\n1,0,6.5\n", "must have the columns 'batch', 'K', 'ms'"),
    ],
)
def test_tables_in_another_unit_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_latency_table(_table(tmp_path, text))


def test_a_table_becomes_step_times(tmp_path: Path) -> None:
    path = _table(tmp_path, "batch,K,ms,context\n1,0,6.5,0\n1,1,7.5,0\n1,0,8.5,1000\n")
    times = TableTime.read(path)
    assert times.step_ms(StepMakeUp(1, 0, context_tokens=500)) == 7.5
    with pytest.raises(ValueError, match=r"must have a usable row, got K negative: 1"):
        TableTime.read(_table(tmp_path, "batch,K,ms\n1,-1,6.5\n"))


@pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.stem)
def test_every_schema_version_is_read(trace: Path) -> None:
    read = read_trace_summary(trace)
    lines = len(trace.read_bytes().splitlines()) - 1
    assert (read.kept, read.dropped.total()) == (lines, 0)
    value = read.value
    assert value.kinds["plan"] == value.kinds["observe"] == value.depths.total()
    assert value.acceptance_length is not None and value.acceptance_length > 1.0


def test_gaps_are_named_and_an_unfinished_line_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    shutil.copyfile(TRACES[0], path)
    whole = read_trace_summary(path).kept
    with path.open("ab") as file:
        file.write(encode_line(GapEvent(seq=9_999, lost=12)) + b'{"kind":"fre')
    read = read_trace_summary(path)
    assert read.value.gaps == (Gap(9_999, 12),)
    assert (read.kept, dict(read.dropped)) == (whole + 1, {"last line truncated": 1})
    assert read.notes["events lost in gaps"] == 12


def test_a_traces_last_snapshot_gives_a_curve(tmp_path: Path) -> None:
    times = CurveTime.from_trace(read_trace(TRACES[0]))
    assert times.curve(StepMakeUp(2, 6)).shape == (7,)
    assert times.step_ms(StepMakeUp(2, 6)) > 0
    path = tmp_path / "trace.jsonl"
    path.write_bytes(TRACES[0].read_bytes().replace(b'"policy":"adaptive"', b'"policy":"x"'))
    with pytest.raises(ValueError, match="needs a snapshot of the adaptive policy"):
        CurveTime.from_trace(read_trace(path))
