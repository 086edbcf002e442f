"""The command line as a user sees it: help with examples, exit status, one-line errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.headers import engine_header
from typer.testing import CliRunner

import acclimate
from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig, TraceConfig
from acclimate.controller.events import EventQueue
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, StepContext, int_array
from acclimate.experiments import cli
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.integrations.trace import TraceSink

_COMMANDS = (
    "doctor",
    "demo",
    "replay",
    "bench",
    "bench overhead",
    "bench mlflow",
    "bench soak",
    "mlflow",
    "mlflow upload",
    "testbed",
    "testbed model",
    "testbed train-draft",
    "lab swap",
)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run as a user does, through the entry point."""
    code = (
        "import sys; from acclimate.experiments.cli import main; sys.argv[0] = 'acclimate'; main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    engine = Capabilities(max_depth=3, depths=(0, 1, 2, 3))
    header = engine_header(engine, model="[bold]none")
    config = ControlConfig(policy="static:2")
    loop = ControlLoop(build_policy(config, engine), engine, config, clock_ns=lambda: 0)
    queue = EventQueue()
    sink = TraceSink(TraceConfig(path=str(tmp_path / "trace.jsonl")), header, queue, seed=9)
    loop.attach(queue)
    for step in range(1, 21):
        loop.plan(
            StepContext(
                step=step,
                now_ns=step,
                waiting_prompts=0,
                prefill_forecast_tokens=0,
                requests=int_array([1]),
                drafts=int_array([step % 4]),
                committed=int_array([step]),
                context_tokens=int_array([step]),
                tokens_left=int_array([50]),
            )
        )
    sink.start()
    sink.close()
    return sink.path


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_help_text_has_an_example(command: str) -> None:
    result = CliRunner().invoke(cli.app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"Example: acclimate {command}" in " ".join(result.output.split())


def test_every_measuring_command_takes_json() -> None:
    for command in ("doctor", "demo", "replay", "bench overhead", "bench mlflow", "bench soak"):
        result = CliRunner().invoke(cli.app, [*command.split(), "--help"])
        assert "--json" in result.output


@pytest.mark.parametrize(
    ("options", "jobs"), [([], 1), (["--jobs", "3"], 3), (["--no-mlflow", "--resume"], 1)]
)
def test_a_lab_is_told_its_own_options_and_those_of_every_lab(
    options: list[str], jobs: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(
        "acclimate.experiments.lab.trees.run_trees", lambda own, **rest: told.update(rest, own=own)
    )
    asked = ["lab", "trees", "--swaps", "2", "--out", str(tmp_path), "--seed", "7", *options]
    done = CliRunner().invoke(cli.app, asked)
    assert done.exit_code == 0, done.output
    assert told["own"].swaps == 2 and told["minutes"] is None
    assert told["run"] == LabRun(
        jobs=jobs, out=tmp_path, resume="--resume" in options, mlflow="--no-mlflow" not in options,
        seed=7,
    )  # fmt: skip


def test_version() -> None:
    assert _run("--version").stdout == f"acclimate {acclimate.__version__}\n"


def test_a_sound_trace_verifies(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = _run("replay", str(trace), "--verify", "--json", str(out))
    assert done.returncode == 0, done.stderr
    assert "20 identical (100.0000%)" in " ".join(done.stdout.split())
    document = json.loads(out.read_text())
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["replay/identical_share"] == {
        "name": "replay/identical_share",
        "value": 1.0,
        "low": None,
        "high": None,
        "unit": "",
        "n": 20,
    }
    assert document["meta"]["seed"] == 9
    assert document["meta"]["engine"] == "scripted 1"


def test_a_trace_is_summarised_without_being_verified(trace: Path) -> None:
    done = _run("replay", str(trace))
    assert done.returncode == 0
    assert "plan" in done.stdout and "20" in done.stdout and "[bold]none" in done.stdout


def test_a_difference_is_status_1_and_is_explained(trace: Path) -> None:
    trace.write_text(trace.read_text().replace('"depth":2,"reason"', '"depth":3,"reason"', 1))
    done = _run("replay", str(trace), "--verify")
    assert done.returncode == 1
    assert "first difference: event 3, step 1" in done.stdout
    assert "depth was 3, is 2 here" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["replay", "nowhere.jsonl"], "trace must be an existing file, got nowhere.jsonl"),
        (["replay", "."], "trace must be a file, got the folder ."),
        (["replay", __file__, "--verify"], "must be an acclimate trace, got text"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], says: str) -> None:
    done = _run(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("acclimate: error: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("batch", ["0", "1,x", "", "-3"])
def test_a_batch_that_is_no_number_is_refused(batch: str) -> None:
    done = _run("bench", "overhead", "--batch", batch)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_policy_option_must_name_code(trace: Path) -> None:
    done = _run("replay", str(trace), "--verify", "--policy", "mine")
    assert done.returncode == 2
    assert "--policy must be NAME=MODULE:FACTORY, got 'mine'" in done.stderr


def test_a_json_file_that_cannot_be_written_is_one_line(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = _run("replay", str(trace), "--verify", "--json", str(tmp_path / "file" / "out.json"))
    assert done.returncode == 2
    assert done.stderr.startswith("acclimate: error: ")
    assert done.stderr.count("\n") == 1
