"""The engines of a comparison, each in a process of its own, of which one computes at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from acclimate.experiments.compare.rows import CellRow
from acclimate.experiments.compare.worker import EngineSpec, Order, serve
from acclimate.experiments.testbed import environment
from acclimate.integrations.vllm.weights import SharedWeights

_PATIENCE_S = 5.0
_LOG_LINES = 3
# Several engines share the memory, and their log is a file.
_WANTED = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


class EngineHandle(Protocol):
    """What rounds need of an engine."""

    def run(self, order: Order) -> CellRow:
        """Run one arm under one load."""


class EngineProcess:
    """A started engine in a child process, which sleeps on a pipe while it has no order.

    Parameters
    ----------
    spec
        What to start.

    Raises
    ------
    RuntimeError
        The engine cannot start, or ended unexpectedly; the message has the end of its log.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        context = multiprocessing.get_context("spawn")
        self._connection: Connection
        self._connection, theirs = context.Pipe()
        self._process: SpawnProcess = context.Process(
            target=serve, args=(theirs, spec), name=f"acclimate-{spec.name}"
        )
        wanted = {name: value for name, value in _WANTED.items() if name not in os.environ}
        with _variables(environment() | wanted):
            self._process.start()
        theirs.close()
        self.weights: SharedWeights = self._answer()

    def run(self, order: Order) -> CellRow:
        """Run one arm under one load."""
        row: CellRow = self._ask("run", order)
        return row

    def tokens(self, conversations: list[list[dict[str, str]]]) -> list[tuple[int, ...]]:
        """Return conversations as the token ids of prompts."""
        ids: list[tuple[int, ...]] = self._ask("tokens", conversations)
        return ids

    def close(self) -> None:
        """Stop the engine, by force if it does not listen."""
        with contextlib.suppress(OSError):
            self._connection.send(("stop", None))
        self._connection.close()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, what: str, content: Any) -> Any:
        try:
            self._connection.send((what, content))
        except OSError as error:
            raise RuntimeError(self._failed("ended unexpectedly")) from error
        return self._answer()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(self._failed("ended unexpectedly")) from error
        if isinstance(answer, str):
            raise RuntimeError(self._failed(f"failed: {answer}"))
        return answer

    def _failed(self, how: str) -> str:
        log = Path(self.spec.log)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        end = " | ".join(line.strip() for line in lines[-_LOG_LINES:])
        return f"engine {self.spec.name!r} {how}; the end of {log}: {end or 'empty'}"


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for as long as a child is being started."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
