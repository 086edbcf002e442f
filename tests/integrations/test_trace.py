"""The event log on disk: what is written can be read, whatever happens to the writer."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.integrations.headers import engine_header

from acclimate.controller import events as ev
from acclimate.controller import records as rec
from acclimate.controller import reports as rep
from acclimate.controller.config import ControlConfig, TraceConfig
from acclimate.integrations.trace import TraceSink
from acclimate.integrations.trace_format import (
    Line,
    TokensRecord,
    decode_line,
    encode_line,
    pack,
    unpack,
)
from acclimate.integrations.trace_reader import read_trace

_ENGINE = engine_header(
    rec.Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5)),
    max_model_len=2048,
    max_num_seqs=16,
    lookup_min=2,
    lookup_max=4,
    seed=3,
)


def _sink(
    path: Path, queue: ev.EventQueue | None = None, **config: Any
) -> tuple[TraceSink, ev.EventQueue]:
    queue = queue or ev.EventQueue()
    return TraceSink(TraceConfig(path=str(path), **config), _ENGINE, queue, seed=3), queue


def _same(a: Any, b: Any) -> bool:
    """Equality of records that hold arrays."""
    if isinstance(a, msgspec.Struct):
        return type(a) is type(b) and all(
            _same(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__
        )
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(_same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float):
        return isinstance(b, float) and repr(a) == repr(b)
    return type(a) is type(b) and bool(a == b)


# --- every kind of event, generated ------------------------------------------------------------

_ints = st.integers(-(2**63), 2**63 - 1)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_int_arrays = st.lists(_ints, max_size=4).map(rec.int_array)
_float_arrays = st.lists(_floats, max_size=4).map(lambda v: np.asarray(v, dtype=np.float64))
_arrays_in_state = st.one_of(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=3)),
    hnp.arrays(np.bool_, 3),
    hnp.arrays(np.float32, 2),
    hnp.arrays(np.float64, (20, 10), fill=st.floats()),
)
_state_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), _arrays_in_state),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=8), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=2),
        st.dictionaries(
            st.sampled_from(["float", "pairs", "tuple", "int", "base64"]), inner, max_size=1
        ),
    ),
    max_leaves=6,
)
_json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), _ints, _floats, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)
_by_annotation = {
    "int": _ints,
    "float": _floats,
    "str": st.text(max_size=8),
    "bool": st.booleans(),
    "IntArray": _int_arrays,
    "FloatArray": _float_arrays,
    "tuple[float, ...]": st.lists(_floats, max_size=3).map(tuple),
}


def _records(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Generate a record from the annotations of its fields."""
    return st.builds(
        kind,
        **{
            name: _annotated(kind, annotation)
            for parent in reversed(kind.__mro__)
            for name, annotation in getattr(parent, "__annotations__", {}).items()
            if name in kind.__struct_fields__
        },
    )


def _annotated(kind: type[msgspec.Struct], annotation: str) -> st.SearchStrategy[Any]:
    if annotation.endswith(" | None"):
        return st.none() | _annotated(kind, annotation.removesuffix(" | None"))
    if annotation in _by_annotation:
        return _by_annotation[annotation]
    if annotation == "dict[str, Any]":
        values = _state_values if kind is ev.SnapshotEvent else _json_values
        return st.dictionaries(st.text(max_size=8), values, max_size=4)
    if annotation.startswith("tuple["):
        member = annotation.removeprefix("tuple[").removesuffix(", ...]")
        return st.lists(_annotated(kind, member), max_size=2).map(tuple)
    return _records(getattr(rec if hasattr(rec, annotation) else rep, annotation))


_KINDS = (
    ev.AddEvent,
    ev.PlanEvent,
    ev.ObserveEvent,
    ev.FreeEvent,
    ev.PreemptEvent,
    ev.DeclareEvent,
    ev.ConfigEvent,
    ev.GuardEvent,
    ev.GapEvent,
    ev.SnapshotEvent,
    ev.AlarmEvent,
    ev.ReportEvent,
)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
def test_a_line_read_back_is_the_event_that_was_written(kind: type[msgspec.Struct]) -> None:
    @settings(max_examples=40, deadline=None)
    @given(_records(kind))
    def check(event: Any) -> None:
        line = encode_line(event)
        assert line.count(b"\n") == 1
        assert b"NaN" not in line.replace(b'"NaN', b"")
        assert _same(decode_line(line), event)

    check()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.one_of(*map(_records, _KINDS)), max_size=8))
def test_a_file_read_back_is_what_was_queued(
    tmp_path_factory: pytest.TempPathFactory, events: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    sink, queue = _sink(path)
    for event in events:
        queue.put(event)
    sink.start()
    sink.close()
    assert _same(list(read_trace(path)), events)


def test_every_kind_of_event_is_covered() -> None:
    assert set(_KINDS) == set(ev.Event.__args__)  # type: ignore[attr-defined]


@given(_state_values)
@settings(max_examples=200, deadline=None)
def test_state_is_restored_bit_by_bit(value: Any) -> None:
    packed = pack(value)
    assert _same(unpack(msgspec.json.decode(msgspec.json.encode(packed))), value)


def test_restored_arrays_can_be_written_to() -> None:
    restored = unpack(pack({"counts": np.zeros(3)}))
    restored["counts"][0] = 1.0
    assert restored["counts"][0] == 1.0


@pytest.mark.parametrize(
    "array",
    [
        {"dtype": "no such", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"dtype": "O", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"dtype": "<f8", "shape": [7], "base64": "AAAAAAAAAAA="},
        {"dtype": "<f8", "shape": [1], "zlib": "AAAA"},
        {"dtype": "<f8", "shape": "x", "base64": 3},
    ],
)
def test_a_damaged_array_is_an_error_of_its_line(array: dict[str, Any]) -> None:
    line = msgspec.json.encode({"kind": "snapshot", "seq": 1, "policy": "p", "state": {"a": array}})
    with pytest.raises(ValueError, match="a snapshot's state must be readable"):
        decode_line(line)


# --- numbers that must not be written ------------------------------------------------------------


def _plan_event(seq: int, price: float = 1.0) -> ev.PlanEvent:
    context = rec.StepContext(
        step=seq,
        now_ns=seq,
        waiting_prompts=0,
        prefill_forecast_tokens=0,
        requests=rec.int_array([1]),
        drafts=rec.int_array([3]),
        committed=rec.int_array([0]),
        context_tokens=rec.int_array([10]),
        tokens_left=rec.int_array([20]),
    )
    decision = rec.StepPlan(
        step=seq,
        draft_depth=3,
        verify_lens=rec.int_array([2]),
        depth=2,
        reason="price",
        price_tokens_per_s=price,
    )
    return ev.PlanEvent(seq, context, decision)


@pytest.mark.parametrize(
    "event",
    [
        _plan_event(7, price=float("inf")),
        ev.AlarmEvent(
            7,
            rep.Alarm(
                step=1,
                slot=0,
                label="",
                signal="",
                before=float("nan"),
                after=0.5,
                graded_tokens=3,
            ),
        ),
        ev.SnapshotEvent(7, "mine", {"lock": threading.Lock()}),
    ],
    ids=["infinite price", "NaN in an alarm", "state that is no data"],
)
def test_an_event_that_cannot_be_written_becomes_a_gap(
    tmp_path: Path, event: ev.Event, caplog: pytest.LogCaptureFixture
) -> None:
    sink, queue = _sink(tmp_path / "trace.jsonl")
    for item in (ev.FreeEvent(6, 1), event, event, ev.FreeEvent(8, 2)):
        queue.put(item)
    sink.start()
    sink.close()
    events = list(read_trace(sink.path))
    assert [type(item) for item in events] == [ev.FreeEvent, ev.GapEvent, ev.GapEvent, ev.FreeEvent]
    assert sink.status()["dropped_events"] == 2
    assert len(caplog.records) == 1
    assert queue.snapshot_wanted is not isinstance(event, ev.SnapshotEvent)


# --- segments -----------------------------------------------------------------------------------


def _snapshot(seq: int) -> ev.SnapshotEvent:
    return ev.SnapshotEvent(seq, "static:2", {"depth": 2})


def _config(seq: int) -> ev.ConfigEvent:
    return ev.ConfigEvent(seq, 1, ControlConfig(policy="static:2").model_dump())


def _fill(sink: TraceSink, queue: ev.EventQueue, events: int) -> None:
    """Act as the loop does: answer a wish for a snapshot."""
    queue.put(_config(1))
    queue.put(_snapshot(2))
    sink.start()
    for seq in range(3, events):
        if queue.snapshot_wanted:
            queue.snapshot_wanted = False
            queue.put(_snapshot(seq))
        queue.put(_plan_event(seq))
        if seq % 50 == 0:
            _wait(lambda: not len(queue))
    sink.close()


def _wait(condition: Callable[[], object], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


def test_segments_are_bounded_and_each_can_be_read_alone(tmp_path: Path) -> None:
    sink, queue = _sink(tmp_path / "trace.jsonl", rotate_mib=0.02, keep_segments=3)
    _fill(sink, queue, 600)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    assert sum(file.stat().st_size for file in files) < 3 * 3 * 0.02 * 2**20
    for file in files:
        alone = list(read_trace(file))
        assert isinstance(alone[0], ev.ConfigEvent)
        assert isinstance(alone[1], ev.SnapshotEvent)
    together = read_trace(tmp_path / "trace.jsonl")
    assert together.deleted_segments > 0
    plans = [event.seq for event in together if isinstance(event, ev.PlanEvent)]
    assert plans == list(range(plans[0], 600))


def test_nothing_is_lost_between_segments(tmp_path: Path) -> None:
    sink, queue = _sink(tmp_path / "trace.jsonl", rotate_mib=0.02, keep_segments=1_000)
    _fill(sink, queue, 400)
    assert len(list(tmp_path.iterdir())) > 3
    plans = [e.seq for e in read_trace(tmp_path / "trace.jsonl") if isinstance(e, ev.PlanEvent)]
    assert plans == list(range(3, 400))


def test_a_trace_that_exists_is_never_touched(tmp_path: Path) -> None:
    paths = []
    for _ in range(3):
        sink, queue = _sink(tmp_path / "trace.jsonl")
        queue.put(_config(1))
        sink.start()
        sink.close()
        paths.append(sink.path.name)
    assert paths == ["trace.jsonl", "trace-2.jsonl", "trace-3.jsonl"]


def test_segments_of_two_traces_are_not_mixed(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        sink, queue = _sink(tmp_path / folder / "trace.jsonl", rotate_mib=0.01)
        _fill(sink, queue, 200)
    (tmp_path / "b" / "trace.00001.jsonl").replace(tmp_path / "a" / "trace.00001.jsonl")
    with pytest.raises(ValueError, match="segments must belong to trace"):
        list(read_trace(tmp_path / "a" / "trace.jsonl"))


# --- a disk that refuses --------------------------------------------------------------------------


def test_a_path_that_cannot_be_written_is_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    sink, queue = _sink(tmp_path / "file" / "trace.jsonl")
    sink.start()
    for seq in range(10):
        queue.put(ev.FreeEvent(seq, seq))
    sink.close()
    assert len(caplog.records) == 1
    assert "no longer written" in caplog.text
    assert sink.status()["dropped_events"] == 10


def test_a_full_disk_stops_the_trace_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    sink, queue = _sink(Path("unused.jsonl"))
    sink._file = full.open("wb", buffering=0)
    sink.start()
    queue.put(ev.FreeEvent(1, 1))
    sink.close()
    sink.close()
    assert sink.error is not None and "No space left" in sink.error
    assert len(caplog.records) == 1
    assert sink.status()["dropped_events"] == 1


def test_a_path_is_needed() -> None:
    with pytest.raises(ValueError, match=r"trace\.path must be a file to write, got None"):
        TraceSink(TraceConfig(), _ENGINE, ev.EventQueue())


# --- after a kill ----------------------------------------------------------------------------------

_WRITER = """
import itertools, sys, time
from acclimate.controller.config import TraceConfig
from acclimate.controller.events import EventQueue, FreeEvent
from acclimate.controller.records import Capabilities
from acclimate.integrations.header import EngineHeader
from acclimate.integrations.trace import TraceSink
header = EngineHeader(engine="e", engine_version="1", runner="v1", model="m", dtype="float32",
    method="ngram", device="cpu", capabilities=Capabilities(max_depth=1, depths=(0, 1)),
    max_model_len=1, max_num_seqs=1)
queue = EventQueue()
sink = TraceSink(TraceConfig(path=sys.argv[1]), header, queue)
sink.start()
for number in itertools.count(1):
    queue.put(FreeEvent(number, number))
    if number == 2000:
        time.sleep(1.0)
        sys.stdout.write("ready")
        sys.stdout.flush()
    time.sleep(0.0001)
"""


def test_a_killed_writer_leaves_a_readable_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.read(5) == b"ready"
        os.kill(writer.pid, signal.SIGKILL)
    numbers = [event.request for event in read_trace(path) if isinstance(event, ev.FreeEvent)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 2000


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    sink, queue = _sink(tmp_path / "trace.jsonl")
    queue.put(_config(1))
    queue.put(_snapshot(2))
    queue.put(_plan_event(3))
    sink.start()
    sink.close()
    yield sink.path


def test_an_unfinished_last_line_is_left_out_and_counted(written: Path) -> None:
    whole = written.read_bytes()
    for cut in (1, 5, 60):
        written.write_bytes(whole[: -1 - cut])
        trace = read_trace(written)
        assert len(list(trace)) == 2
        assert trace.truncated_lines == 1
    written.write_bytes(whole[:-1])
    assert len(list(read_trace(written))) == 3


def test_a_last_segment_whose_header_is_unfinished_is_left_out_and_counted(written: Path) -> None:
    header = written.read_bytes().splitlines(keepends=True)[0]
    last = written.with_name("trace.00001.jsonl")
    for begun in (b"", header[:40], header[:-1]):  # killed, or out of disk, between two segments
        last.write_bytes(begun)
        trace = read_trace(written)
        assert len(list(trace)) == 3
        assert trace.truncated_lines == 1
    last.write_bytes(b"something else\n")
    with pytest.raises(ValueError, match=r"trace\.00001\.jsonl must be an acclimate trace"):
        list(read_trace(written))


def test_damage_inside_is_an_error_that_names_the_line(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join([*lines[:2], lines[2][:20] + b"\n", *lines[3:]]))
    with pytest.raises(ValueError, match=r"trace\.jsonl, line 3: must be a record of schema 1"):
        list(read_trace(written))


def test_a_wrong_type_names_the_field(written: Path) -> None:
    text = written.read_text().replace('"draft_depth":3', '"draft_depth":"three"')
    written.write_text(text)
    with pytest.raises(ValueError, match=r"\$\.decision\.draft_depth"):
        list(read_trace(written))


# --- what is no trace, or not ours -----------------------------------------------------------------


def test_a_newer_schema_is_refused_by_number(written: Path) -> None:
    written.write_text(written.read_text().replace('"schema":1', '"schema":2', 1))
    with pytest.raises(ValueError, match=r"must be at most 1.* got 2 \(written by acclimate 0"):
        read_trace(written)


def test_fields_added_later_are_ignored(written: Path) -> None:
    text = written.read_text().replace('"kind":"plan"', '"kind":"plan","added_later":[1]')
    written.write_text(text)
    assert len(list(read_trace(written))) == 3


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "a Git LFS pointer"),
        (b"\x1f\x8b\x08\x00rest", "a gzip file"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"SQLite format 3\x00", "an SQLite database"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n", "what looks like CSV"),
        (b'{"question_id": 1, "category": "writing"}\n', "JSON of another kind with the keys q"),
        (b"[1, 2]\n", "JSON of another kind"),
        (b"\x00\x01\x02\xff\n", "a binary file"),
        (b"hello world\n", "text, beginning 'hello world'"),
        (b'{"kind":"header","schema":1,"tra', "a trace whose header was never finished"),
    ],
)
def test_another_file_is_recognised(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must be an acclimate trace, got") as caught:
        read_trace(path)
    assert what in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jsonl"):
        read_trace(tmp_path / "nowhere.jsonl")


# --- header and tokens -----------------------------------------------------------------------------


def test_the_header_describes_engine_units_and_seed(written: Path) -> None:
    header = read_trace(written).header
    assert header.engine == _ENGINE
    assert header.seed == 3
    assert header.units["_ns"] == "nanoseconds"
    assert header.started.endswith("+00:00")


def _tokens(path: Path, **config: Any) -> tuple[list[TokensRecord], TraceSink]:
    sink, _ = _sink(path, **config)
    sink.start()
    sink.add_tokens(1, [5, 6, 5], [7, 5])
    sink.add_tokens(2, [6], [])
    sink.close()
    found: list[Line] = [line for line in read_trace(sink.path) if isinstance(line, TokensRecord)]
    return found, sink  # type: ignore[return-value]


def test_tokens_are_kept_only_if_asked(tmp_path: Path) -> None:
    assert _tokens(tmp_path / "trace.jsonl")[0] == []


def test_hashes_keep_equality_within_a_trace_and_nothing_else(tmp_path: Path) -> None:
    (first, second), sink = _tokens(tmp_path / "trace.jsonl", token_hashes=True)
    a, b, again = first.prompt
    assert a == again == first.output[1]
    assert second.prompt == (b,)
    assert len({a, b, first.output[0]}) == 3
    assert not {5, 6, 7} & {a, b, first.output[0]}
    (other, _), _ = _tokens(tmp_path / "trace.jsonl", token_hashes=True)
    assert other.prompt != first.prompt
    assert read_trace(sink.path).header.engine.lookup_max == 4


def test_token_lists_that_pile_up_are_dropped_and_counted(tmp_path: Path) -> None:
    sink, _ = _sink(tmp_path / "trace.jsonl", token_hashes=True)
    for request in range(2_000):
        sink.add_tokens(request, [1], [2])
    sink.start()
    sink.close()
    kept = [line for line in read_trace(sink.path) if isinstance(line, TokensRecord)]
    assert len(kept) + sink.dropped_token_lists == 2_000
    assert sink.dropped_token_lists > 0
