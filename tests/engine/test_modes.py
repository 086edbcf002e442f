"""The engine in a process of its own, and the OpenAI-compatible server; and what a kill leaves."""

from __future__ import annotations

import contextlib
import json
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

import pytest

from acclimate.controller.records import Slo

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
PATIENCE_S = 300.0
HOSTILE = (
    {"acclimate_slo_tpot_ms": -5, "acclimate_slo_ttft_ms": 0},
    {"acclimate_slo_tpot_ms": "nan", "acclimate_slo_e2e_ms": "1e999", "acclimate_tenant": 7},
    {"acclimate_slo_ttft_ms": "soon", "acclimate_slo_class": "royal"},
    {"acclimate_slo_ttft_ms": [1, 2], "acclimate_slo_class": "x" * 5000, "acclimate_domain": 1e300},
)

HOSTILE_HEADERS = (
    {"x-slo-tpot-ms": "-5", "x-slo-ttft-ms": "0"},
    {"x-slo-tpot-ms": "nan", "x-slo-e2e-ms": "1e999", "x-acclimate-tenant": "t" * 300},
    {"x-slo-ttft-ms": "soon", "x-slo-class": "royal", "x-acclimate-domain": "d" * 300},
    {"x-slo-ttft-ms": "9" * 400, "x-slo-class": "x" * 5000},
)


@contextlib.contextmanager
def _process(command: list[str], log: Path, environ: dict[str, str]) -> Iterator[Any]:
    """Run a command as a process group of its own, which is killed at the end."""
    with open(log, "w") as out:
        child = subprocess.Popen(
            command, env=environ, cwd=log.parent, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait(until: Callable[[], bool], child: Any, log: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert child.poll() is None, log.read_text()[-4000:]
        assert time.monotonic() < end, log.read_text()[-4000:]
        time.sleep(0.2)


def _post(url: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
    """Return the answer to a request; anything but success raises."""
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"} | (headers or {}),
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return bytes(response.read())


def _events(trace: Path) -> list[Any]:
    from acclimate.integrations.trace_reader import read_trace

    return list(read_trace(trace))


def test_multiprocess_engine_and_its_trace_after_a_kill(
    drive: Callable[[str], Any], model: str, environ: dict[str, str], tmp_path: Path
) -> None:
    trace, out, log = tmp_path / "trace", tmp_path / "out.json", tmp_path / "log"
    command = [sys.executable, str(HERE / "drive.py"), "multiprocess", model, str(out), str(trace)]
    with _process(command, log, environ) as child:
        _wait(lambda: out.exists() and out.stat().st_size > 0, child, log)
        # It is writing on; let the trace's next second begin.
        time.sleep(3)
    assert json.loads(out.read_text())["tokens"] == drive("reference")["tokens"]
    assert log.read_text().count("acclimate active: policy shuffled") == 1
    kinds = {type(event).__name__ for event in _events(trace)}
    assert {"ConfigEvent", "SnapshotEvent", "AddEvent", "PlanEvent", "ObserveEvent"} <= kinds
    steps = [e.context.step for e in _events(trace) if type(e).__name__ == "PlanEvent"]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) > 50


def test_server_with_the_plugin_and_client_metadata(
    drive: Callable[[str], Any], model: str, environ: dict[str, str], tmp_path: Path
) -> None:
    truth = drive("reference")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config, log, trace = tmp_path / "control.json", tmp_path / "log", tmp_path / "trace"
    play = {"policy": "scripted_policies:shuffled", "seed": 3, "trace": {"path": str(trace)}}
    config.write_text(json.dumps(play))
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model,
        "--served-model-name", "small", "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager",
        "--no-enable-prefix-caching", "--speculative-config",
        json.dumps({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3,
                    "prompt_lookup_min": 1}),
        "--middleware", "acclimate.integrations.vllm.middleware.SloHeaders",
        "--middleware", "acclimate.integrations.vllm.state_endpoint.StateEndpoint",
    ]  # fmt: skip
    # No user code: the installed package's entry point, and two variables.
    asked = environ | {"ACCLIMATE": "1", "ACCLIMATE_CONFIG": str(config)}
    url = f"http://127.0.0.1:{port}"

    def up() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
        return False

    with _process(command, log, asked) as child:
        _wait(up, child, log)
        body = {
            "model": "small", "prompt": truth["prompts"][:4], "temperature": 0,
            "max_tokens": len(truth["tokens"][0]), "ignore_eos": True, "skip_special_tokens": False,
            "vllm_xargs": {"acclimate_domain": "code", "acclimate_tenant": "a",
                                               "acclimate_slo_tpot_ms": 50},
        }  # fmt: skip
        choices = json.loads(_post(f"{url}/v1/completions", body))["choices"]
        short = {"model": "small", "prompt": truth["prompts"][0], "max_tokens": 3}
        headers = {"x-slo-ttft-ms": "250", "x-slo-class": "interactive", "x-slo-e2e-ms": "soon"}
        streamed = _post(f"{url}/v1/completions", short | {"stream": True}, headers)
        for hostile in HOSTILE:
            _post(f"{url}/v1/completions", short | {"vllm_xargs": hostile})
        for hostile_headers in HOSTILE_HEADERS:
            _post(f"{url}/v1/completions", short, hostile_headers)
        time.sleep(2)
        # Asked of this process, told by the engine core's.
        with urllib.request.urlopen(f"{url}/acclimate/state", timeout=PATIENCE_S) as response:
            (state,) = json.loads(response.read())["engines"]
    assert streamed.rstrip().endswith(b"data: [DONE]") and streamed.count(b"data: ") > 2
    texts = [choice["text"] for choice in sorted(choices, key=lambda c: c["index"])]
    assert texts == truth["texts"][:4]
    assert log.read_text().count("acclimate active: policy shuffled") == 1
    added = [e.request for e in _events(trace) if type(e).__name__ == "AddEvent"]
    assert [(r.domain, r.tenant, r.slo.tpot_s) for r in added[:4]] == [("code", "a", 0.05)] * 4
    assert (added[4].slo_class, added[4].slo) == ("interactive", Slo(ttft_s=0.25, tpot_s=0.05))
    hostile_requests = len(HOSTILE) + len(HOSTILE_HEADERS)
    assert [(r.slo_class, r.slo) for r in added[5:]] == [("", None)] * hostile_requests
    assert all(r.tenant == r.domain == "" for r in added[-len(HOSTILE_HEADERS) :])
    assert (state["policy"], state["max_depth"], state["seats"]) == ("shuffled", 4, 8)
    assert state["load"]["running"] == state["load"]["waiting"] == 0
    assert " | small | float32 | vllm " in state["curve_key"]
