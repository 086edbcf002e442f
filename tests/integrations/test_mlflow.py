"""The MLflow sink against a real store, a real server, and servers that misbehave."""

from __future__ import annotations

import itertools
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integrations.headers import engine_header

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import (
    AlarmEvent,
    Event,
    EventQueue,
    GuardEvent,
    ObserveEvent,
    PlanEvent,
    ReportEvent,
)
from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.controller.reports import Alarm, Report, SlotReport
from acclimate.integrations import afterlife
from acclimate.integrations.metric_names import metric_segment
from acclimate.integrations.metrics import Aggregator, MetricRow
from acclimate.integrations.mlflow import MlflowSink
from acclimate.integrations.mlflow_upload import upload
from acclimate.integrations.spool import Spool

pytest.importorskip("mlflow")

HEADER = engine_header(
    Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4)),
    engine="vllm",
    engine_version="0.32.0",
    model="SmolLM2",
    max_model_len=2048,
)
PATIENCE_S = 120.0


def step_events(step: int, depth: int = 2, labels: tuple[str, ...] = ("code",)) -> list[Event]:
    """Return what one step of two requests logs: each verifies ``depth`` and accepts one."""
    two = int_array([1, 2])
    zeros, full = int_array([0, 0]), int_array([depth, depth])
    right = int_array([min(1, depth)] * 2)
    context = StepContext(
        step=step,
        now_ns=step * 10_000_000,
        waiting_prompts=0,
        prefill_forecast_tokens=0,
        requests=two,
        drafts=full,
        committed=zeros,
        context_tokens=int_array([50, 60]),
        tokens_left=int_array([40, 40]),
    )
    plan = StepPlan(step=step, draft_depth=4, verify_lens=full, depth=depth, reason="fixed")
    outcome = StepOutcome(
        step=step,
        now_ns=step * 10_000_000,
        latency_ns=10_000_000,
        decode_requests=2,
        verified_tokens=2 * depth,
        prefill_tokens=0,
        context_tokens=110,
        sampled_rows=0,
        draft_depth=4,
        requests=two,
        committed=right + 1,
        drafts=DraftOutcomes(
            request=two,
            drafted_by=int_array([step - 1] * 2),
            verified_by=int_array([step] * 2),
            proposed=full,
            verified=full,
            accepted=right,
            start=zeros,
            graded=full,
            matched=right,
            fresh=full,
        ),
    )
    slots = tuple(
        SlotReport(
            label=label,
            graded_tokens=100,
            accepted_tokens=60,
            predicted=0.625,
            seen=0.5,
            brier=0.25,
            conditional=(0.6, 0.5),
        )
        for label in labels
    )
    report = Report(slots=slots, latency_error_ratio=0.125)
    return [
        PlanEvent(3 * step, context, plan),
        ObserveEvent(3 * step + 1, outcome),
        ReportEvent(3 * step + 2, step * 10_000_000, report),
    ]


def config_for(uri: str, **mlflow: Any) -> ControlConfig:
    section = {"enabled": True, "tracking_uri": uri, "interval_s": 0.05, "spool_dir": "spool"}
    return ControlConfig.read({"policy": "static:2", "seed": 7, "mlflow": {**section, **mlflow}})


def start_sink(config: ControlConfig, directory: Path, capacity: int = 20_000) -> MlflowSink:
    sink = MlflowSink(config, HEADER, EventQueue(capacity, snapshots=False), directory)
    sink.start()
    return sink


def put(sink: MlflowSink, steps: range, **kind: Any) -> None:
    for step in steps:
        for event in step_events(step, **kind):
            sink.queue.put(event)


def wait_for(what: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def put_until(sink: MlflowSink, first: int, what: Callable[[], Any]) -> int:
    """Let steps happen until ``what`` holds, and return the next step."""
    step = first

    def more() -> Any:
        nonlocal step
        put(sink, range(step, step + 1))
        step += 1
        return what()

    wait_for(more)
    return step


def close(sink: MlflowSink) -> None:
    sink.close()
    assert sink.wait_uploaded(PATIENCE_S)


def stored_points(uri: str, run_id: str | None) -> dict[str, list[tuple[int, float]]]:
    """Return the (step, value) points of every metric, in order."""
    from mlflow.tracking import MlflowClient

    assert run_id is not None
    client = MlflowClient(tracking_uri=uri)
    names = client.get_run(run_id).data.metrics
    return {
        name: [(p.step, p.value) for p in client.get_metric_history(run_id, name)] for name in names
    }


def count(points: dict[str, list[tuple[int, float]]]) -> int:
    return sum(len(history) for history in points.values())


def assert_sound(points: dict[str, list[tuple[int, float]]]) -> None:
    """No NaN, no two points of one name at one step, and steps rise."""
    for name, history in points.items():
        steps = [step for step, _ in sorted(history)]
        assert all(a < b for a, b in itertools.pairwise(steps)), name
        assert all(math.isfinite(value) for _, value in history), name


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One local store for the module: to make one takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture
def dead_uri() -> str:
    """The address of a port at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Artifacts of a local store go to the working directory.
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


# --- metrics --------------------------------------------------------------------------------------


def test_an_interval_becomes_shares_means_and_rates() -> None:
    aggregator = Aggregator()
    for step, depth in enumerate([2, 2, 4, 0]):
        for event in step_events(step, depth):
            aggregator.add(event)
    row = aggregator.flush(5, [("sink/dropped_events", 3)])
    assert row is not None and (row.timestamp_ms, row.step) == (5, 3)
    expected = {
        "controller/draft_depth": 4.0,
        "controller/depth": 2.0,
        "controller/verify_depth_mean": 2.0,
        "depth/0/share": 0.25,
        "depth/2/share": 0.5,
        "depth/4/share": 0.25,
        "controller/switches": 2.0,
        "controller/probes": 0.0,
        "controller/stock_steps": 0.0,
        "controller/tokens_per_s": 14 / 0.04,
        "acceptance/length": 14 / 8,
        "acceptance/wasted_share": 1 - 6 / 16,
        "acceptance/code/predicted": 0.625,
        "acceptance/code/seen": 0.5,
        "acceptance/code/brier": 0.25,
        "latency/step_ms": 10.0,
        "latency/error_ratio": 0.125,
        "drift/alarms": 0.0,
        "drift/step_time_alarms": 0.0,
        "sink/dropped_events": 3.0,
    }
    assert {name: row.values[name] for name in expected} == pytest.approx(expected)


def test_a_depth_that_is_no_longer_chosen_gets_a_share_of_zero() -> None:
    aggregator = Aggregator()
    for step, depth in ((1, 3), (2, 1)):
        for event in step_events(step, depth):
            aggregator.add(event)
        row = aggregator.flush(0)
    assert row is not None
    assert (row.values["depth/3/share"], row.values["depth/1/share"]) == (0.0, 1.0)


def test_nothing_is_flushed_twice_at_one_step() -> None:
    aggregator = Aggregator()
    assert aggregator.flush(0) is None
    for event in step_events(4):
        aggregator.add(event)
    assert aggregator.flush(0) is not None
    for event in step_events(4):
        aggregator.add(event)
    assert aggregator.flush(0) is None


def test_stock_steps_are_counted_and_shown_while_they_last() -> None:
    aggregator = Aggregator()
    for event in step_events(10):
        aggregator.add(event)
    aggregator.flush(0)
    aggregator.add(GuardEvent(40, 0, "error", "boom"))
    row = aggregator.flush(0)
    assert row is not None and (row.step, row.values["controller/stock"]) == (11, 1.0)
    aggregator.add(GuardEvent(41, 0, None))
    for event in step_events(31):
        aggregator.add(event)
    row = aggregator.flush(0)
    assert row is not None
    assert (row.values["controller/stock"], row.values["controller/stock_steps"]) == (0.0, 20.0)


def test_a_value_that_is_not_finite_is_left_out() -> None:
    aggregator = Aggregator()
    for event in step_events(1)[:2]:
        aggregator.add(event)
    broken = SlotReport(
        label="code",
        graded_tokens=5,
        accepted_tokens=1,
        predicted=math.nan,
        seen=math.inf,
        brier=None,
        conditional=(),
    )
    aggregator.add(ReportEvent(9, 0, Report(slots=(broken,), latency_error_ratio=-math.inf)))
    row = aggregator.flush(0)
    assert row is not None
    assert all(math.isfinite(value) for value in row.values.values())
    assert "acceptance/code/predicted" not in row.values


def test_hostile_labels_make_names_that_mlflow_takes() -> None:
    from mlflow.utils.validation import _validate_metric_name

    hostile = [
        "", "..", "a/b", "a_b", "/etc/passwd", "x\ny\x00", "é" * 3000, "\ud800", "{{}}", "nan", " ",
        metric_segment("a/b"), "unlabelled", "a" * 500, "a" * 501,
    ]  # fmt: skip
    names = [metric_segment(label) for label in hostile]
    assert len(set(names)) == len(hostile)
    for name in names:
        _validate_metric_name(f"acceptance/{name}/predicted")
        assert "/" not in name and len(name) <= 64


def test_the_number_of_names_is_bounded_and_what_is_left_out_is_counted() -> None:
    aggregator = Aggregator(max_domains=5)
    for step in range(20):
        labels = tuple(f"domain {step}.{i}" for i in range(10))
        for event in step_events(step, labels=labels):
            aggregator.add(event)
        aggregator.add(
            AlarmEvent(
                step,
                Alarm(
                    step=step,
                    slot=0,
                    label=f"{step}",
                    signal="adwin",
                    before=0.5,
                    after=0.1,
                    graded_tokens=9,
                ),
            )
        )
        row = aggregator.flush(0)
    assert row is not None and len(row) < 100
    assert row.values["sink/domains_left_out"] == 20 * 10 - 5 + 20
    assert row.values["drift/alarms"] == 20.0


def test_values_beyond_what_a_row_may_hold_are_counted() -> None:
    aggregator = Aggregator()
    for step in (1, 2):
        for event in step_events(step):
            aggregator.add(event)
        row = aggregator.flush(0, [(f"own/{n}", 1.0) for n in range(1_200)])
        assert row is not None and len(row) == 1_000
    assert row is not None
    first = row.values["sink/values_left_out"] / 2
    # All of 1,200, what the interval itself says, and the count's own place.
    assert first > 201 and sum(name.startswith("own/") for name in row.values) > 900


# --- spool ----------------------------------------------------------------------------------------


def test_a_full_spool_drops_and_counts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "life", max_bytes=200)
    row = MetricRow(0, 1, {"controller/depth": 1.0, "controller/probes": 0.0})
    kept = [spool.append(row) for _ in range(5)]
    assert kept == [True, True, False, False, False]
    assert (spool.points, spool.dropped_points) == (4, 6)
    assert [r for r, _ in spool.rows()] == [row, row]


def test_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "life")
    row = MetricRow(0, 1, {"controller/depth": 1.0})
    spool.append(row)
    with spool.points_path.open("ab") as file:
        file.write(b'{"timestamp_ms":0,"st\n')
    spool.append(row)
    assert [r for r, _ in spool.rows()] == [row, None, row]


# --- a server that works --------------------------------------------------------------------------


def test_a_life_becomes_one_finished_run(database: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=database)
    parent = client.create_run("0").info.run_id
    config = config_for(database, experiment="serving", run_name="a", parent_run_id=parent)
    sink = start_sink(config, tmp_path)
    put_until(sink, 1, lambda: sink.sender.sent_points > 40)
    close(sink)

    run = client.get_run(sink.run_id)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "a")
    assert client.get_experiment(run.info.experiment_id).name == "serving"
    assert run.data.params["policy"] == "static:2"
    assert run.data.params["guard.late_ms"] == "50.0"
    tags = run.data.tags
    assert (tags["vllm.version"], tags["engine.model"]) == ("0.32.0", "SmolLM2")
    assert tags["engine.capabilities.depths"] == "0,1,2,3,4"
    assert tags["mlflow.parentRunId"] == parent
    assert "acclimate.version" in tags and "python.version" in tags
    assert "controller_config.json" in [a.path for a in client.list_artifacts(sink.run_id)]

    points = stored_points(database, sink.run_id)
    assert_sound(points)
    assert count(points) == sink.produced_points
    assert {"controller/tokens_per_s", "depth/2/share", "acceptance/code/seen"} <= points.keys()
    assert not list(sink.spool_dir.glob("points.jsonl")) or sink.spool.points


def test_the_users_own_mlflow_state_is_left_alone(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    with mlflow.start_run() as theirs:
        environment = dict(os.environ)
        sink = start_sink(ControlConfig.read({"mlflow": {"spool_dir": "spool"}}), tmp_path)
        put(sink, range(5))
        close(sink)
        active = mlflow.active_run()
        assert active is not None and active.info.run_id == theirs.info.run_id
        assert dict(os.environ) == environment
    assert sink.tracking_uri == database
    assert mlflow.get_run(sink.run_id).info.experiment_id == theirs.info.experiment_id
    assert not mlflow.get_run(theirs.info.run_id).data.metrics


def test_attached_files_arrive_by_the_child(database: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    sink = start_sink(config_for(database), tmp_path)
    for name in ("picture.png", "trace.00002.jsonl", "trace.00003.jsonl", "trace-2.jsonl"):
        (tmp_path / name).write_bytes(b"data")
    sink.attach_artifact("picture.png")
    sink.attach_artifact("trace.jsonl")  # its first segment was rotated away
    sink.attach_artifact("never-written.json")
    put(sink, range(5))
    close(sink)
    client = MlflowClient(tracking_uri=database)
    names = [a.path for a in client.list_artifacts(sink.run_id)]
    assert sorted(names) == [
        "controller_config.json",
        "picture.png",
        "trace.00002.jsonl",
        "trace.00003.jsonl",
    ]
    assert client.get_run(sink.run_id).info.status == "FINISHED"
    again = upload(sink.spool_dir)
    assert (again.runs[0].artifacts_sent, again.points_sent) == (0, 0)
    assert [Path(p).name for p in again.runs[0].missing_artifacts] == ["never-written.json"]


def test_an_overflow_is_counted_and_tracked(database: str, tmp_path: Path) -> None:
    sink = MlflowSink(config_for(database), HEADER, EventQueue(30, snapshots=False), tmp_path)
    put(sink, range(50))
    sink.start()
    close(sink)
    points = stored_points(database, sink.run_id)
    assert points["sink/dropped_events"][-1][1] == 50 * 3 - 30
    assert_sound(points)


def test_a_backlog_goes_in_batches_and_an_upload_resumes(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acclimate.integrations.tracking import Tracker

    sink = start_sink(config_for(database), tmp_path)
    for step in range(60):
        values = {f"test/{i}": float(i * step) for i in range(90)}
        sink.spool.append(MetricRow(1000 + step, step, values))
    kill_uploader(sink.spool_dir)
    sink.spool.release()  # as if the engine had been killed
    calls: list[int] = []
    send = Tracker.send

    def flaky(self: Tracker, run_id: str, rows: list[MetricRow]) -> None:
        calls.append(sum(len(row) for row in rows))
        if len(calls) == 3:
            raise ConnectionError("cable pulled")
        send(self, run_id, rows)

    monkeypatch.setattr(Tracker, "send", flaky)
    first = upload(sink.spool_dir)
    assert first.points_sent == 2 * 990 and "cable pulled" in first.errors[0]
    second = upload(sink.spool_dir)
    assert (second.errors, second.points_sent) == ((), 60 * 90 - 2 * 990)
    assert max(calls) <= 1000
    points = stored_points(database, sink.run_id)
    assert count(points) == 60 * 90
    assert_sound(points)
    from mlflow.tracking import MlflowClient

    assert MlflowClient(tracking_uri=database).get_run(sink.run_id).info.status == "KILLED"
    assert upload(sink.spool_dir).points_sent == 0
    close(sink)


def test_a_run_in_use_is_not_uploaded(database: str, tmp_path: Path) -> None:
    sink = start_sink(config_for(database), tmp_path)
    result = upload(sink.spool_dir)
    assert "in use" in result.errors[0]
    close(sink)


def test_uploading_what_is_no_spool_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="spool directory must exist"):
        upload(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="must hold a run"):
        upload(tmp_path)


def test_credentials_reach_neither_disk_nor_run(tmp_path: Path) -> None:
    config = config_for("http://me:secret@127.0.0.1:1/")
    sink = MlflowSink(config, HEADER, EventQueue(snapshots=False), tmp_path)
    sink.spool.write_run(sink.sender.record)
    assert "secret" not in (sink.spool_dir / "run.json").read_text()
    assert sink.tracking_uri == "http://***@127.0.0.1:1/"
    assert "MLFLOW_TRACKING_URI must hold" in upload(sink.spool_dir).errors[0]


# --- servers that do not ---------------------------------------------------------------------------


def test_dead_from_the_start_then_uploaded(
    dead_uri: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    started_ms = int(time.time() * 1000)
    sink = start_sink(config_for(dead_uri, experiment="late"), tmp_path)
    put_until(sink, 1, lambda: sink.spool.points > 100)
    close(sink)
    assert sink.run_id is None
    assert sink.spool.points == sink.produced_points

    result = upload(tmp_path / "spool", tracking_uri=database)
    assert (result.errors, result.points_sent) == ((), sink.produced_points)
    run_id = result.runs[0].run_id
    points = stored_points(database, run_id)
    assert count(points) == sink.produced_points
    assert_sound(points)
    assert max(value for _, value in points["sink/spooled_points"]) > 0
    run = MlflowClient(tracking_uri=database).get_run(run_id)
    assert run.info.status == "FINISHED" and run.data.params["seed"] == "7"
    assert 0 <= run.info.start_time - started_ms < 60_000
    assert upload(tmp_path / "spool", tracking_uri=database).points_sent == 0


def test_a_hanging_server_holds_nobody_up(tmp_path: Path) -> None:
    # In a process of its own, since its exit must not wait either; MLflow's waiting as shipped.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)  # the system accepts; nobody ever answers
        script = (
            "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
            "from tests.integrations.test_mlflow import *\n"
            "sink = start_sink(config_for(sys.argv[2]), Path.cwd())\n"
            "put_until(sink, 1, lambda: sink.spool.points > 100)\n"
            "sink.close(); sink.close()\n"
            "print(sink.produced_points, sink.spool.points)\n"
        )
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", script, str(Path(__file__).parents[2]), uri],
            capture_output=True,
            text=True,
            timeout=60.0,  # MLflow alone would wait for 120 s, eight times
            check=True,
        )
    (life,) = (tmp_path / "spool").iterdir()
    kill_uploader(life)
    produced, spooled = map(int, done.stdout.split())
    assert produced == spooled == sum(len(row) for row, _ in Spool(life).rows() if row)


def test_the_run_of_a_killed_engine_is_ended_and_whole(database: str, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    script = (
        "import sys, os, signal; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from tests.integrations.test_mlflow import *\n"
        "sink = start_sink(config_for(sys.argv[2]), Path.cwd())\n"
        "sink.spool.append(MetricRow(1, 0, {'test/left': 1.0}))\n"
        "(Path.cwd() / 'trace.jsonl').write_bytes(b'data'); sink.attach_artifact('trace.jsonl')\n"
        "put_until(sink, 1, lambda: sink.sender.sent_points)\n"
        "print(sink.run_id, flush=True)\n"
        "import psutil\n"
        "for child in psutil.Process().children(recursive=True): child.kill()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parents[2]), database],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (life,) = (tmp_path / "spool").iterdir()
    assert afterlife.wait_gone(life, PATIENCE_S)
    client = MlflowClient(tracking_uri=database)
    run = client.get_run(done.stdout.strip())
    assert (run.info.status, run.data.metrics["test/left"]) == ("KILLED", 1.0)
    assert run.info.end_time > run.info.start_time
    assert "trace.jsonl" in [a.path for a in client.list_artifacts(run.info.run_id)]


def kill_uploader(life: Path) -> None:
    pid = afterlife.uploader_pid(life)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert afterlife.wait_gone(life, PATIENCE_S)


class Server:
    """A real MLflow server that can be killed."""

    def __init__(self, directory: Path, store: str, port: int) -> None:
        self.directory, self.store, self.port = directory, store, port
        self.uri = f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--workers", "1", "--backend-store-uri", self.store]
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._healthy)

    def _healthy(self) -> bool:
        assert self.process is not None and self.process.poll() is None
        try:
            with urllib.request.urlopen(f"{self.uri}/health", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def server(database: str, dead_uri: str, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, database, int(dead_uri.rpartition(":")[2]))
    server.start()
    yield server
    server.kill()


def test_a_server_that_dies_midway_loses_nothing(
    server: Server, database: str, tmp_path: Path
) -> None:
    sink = start_sink(config_for(server.uri, experiment="midway"), tmp_path)
    step = put_until(sink, 1, lambda: sink.sender.sent_points > 40)
    server.kill()
    put_until(sink, step, lambda: sink.spool.points > 40)
    sink.close()
    assert sink.sender.sent_points + sink.spool.points == sink.produced_points
    kill_uploader(sink.spool_dir)

    # The server's store is reached without it, as by a server that took its place.
    result = upload(tmp_path / "spool", tracking_uri=database, wait_s=PATIENCE_S)
    assert (result.errors, result.points_sent) == ((), sink.spool.points)
    assert upload(tmp_path / "spool", tracking_uri=database).points_sent == 0
    points = stored_points(database, sink.run_id)
    assert count(points) == sink.produced_points
    assert_sound(points)


def test_learning_arrays_may_be_of_any_integer_type() -> None:
    aggregator = Aggregator()
    plan = StepPlan(
        step=1, draft_depth=1, verify_lens=np.array([1], np.int64), depth=1, reason="fixed"
    )
    aggregator.add(PlanEvent(1, step_events(1)[0].context, plan))  # type: ignore[union-attr]
    row = aggregator.flush(0)
    assert row is not None and isinstance(row.values["controller/verify_depth_mean"], float)
