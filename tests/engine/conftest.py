"""Starts engines in processes of their own, so that a test process never holds one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# Programs and policies of engine processes, which find them by PYTHONPATH.
collect_ignore = ["drive.py", "known_drafter.py", "scripted_policies.py"]


def engine_environment() -> dict[str, str]:
    """Return the environment of an engine process: offline, OpenMP preloaded, policies found."""
    from acclimate.experiments.testbed import environment

    return {
        **os.environ,
        **environment(),
        # A checkout that was put on the path by hand stays there.
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(":"),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "INFO",
    }


@pytest.fixture(scope="session")
def model() -> str:
    """The folder of the testbed model."""
    pytest.importorskip("vllm", reason="vllm is not installed")
    from acclimate.experiments.testbed import model_path

    return str(model_path())


@pytest.fixture(scope="session")
def environ() -> dict[str, str]:
    return engine_environment()


@pytest.fixture(scope="session")
def drive(
    model: str, environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Any]:
    """Run one engine to its end, once per session, and return what it wrote."""
    results: dict[str, Any] = {}

    def run(what: str) -> Any:
        if what not in results:
            folder = tmp_path_factory.mktemp(what)
            out = folder / "out.json"
            command = [sys.executable, str(HERE / "drive.py"), what, model, str(out)]
            with open(folder / "log", "w") as log:
                code = subprocess.run(
                    command,
                    check=False,
                    env=environ,
                    cwd=folder,
                    stdout=log,
                    stderr=log,
                    timeout=420,
                ).returncode
            text = (folder / "log").read_text()
            assert code == 0, text[-4000:]
            results[what] = json.loads(out.read_text()) | {"log": text}
        return results[what]

    return run
