"""Builds a live loop with its sinks, and takes them down again."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig
from acclimate.controller.events import EventQueue
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.integrations.header import EngineHeader

if TYPE_CHECKING:
    from acclimate.integrations.engine_key import EngineKey
    from acclimate.integrations.memory_store import MemoryStore
    from acclimate.integrations.mlflow import MlflowSink
    from acclimate.integrations.trace import TraceSink


class Sink(Protocol):
    """Takes events from its queue in a thread of its own."""

    def start(self) -> None:
        """Begin."""

    def close(self) -> None:
        """Write what is left, and end."""


S = TypeVar("S", bound=Sink)


class Runtime:
    """One engine core's loop and the sinks that hang off it; build it with `start`.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> header = EngineHeader(
    ...     engine="none", engine_version="0", runner="v1", model="m", dtype="float32",
    ...     method="ngram", device="cpu", capabilities=engine, max_model_len=64, max_num_seqs=1)
    >>> runtime = Runtime.start(ControlConfig(policy="static:2"), engine, header, print)
    >>> runtime.loop.status()["policy"], runtime.sink_faults
    ('static:2', 0)
    >>> runtime.close()
    """

    def __init__(self, loop: ControlLoop, log: Callable[[str], None]) -> None:
        self.loop = loop
        self.sinks: list[Sink] = []
        self.sink_faults = 0
        self.record_tokens: Callable[[int, list[int], list[int]], None] | None = None
        self._states: EventQueue | None = None
        self._log = log

    @classmethod
    def start(
        cls,
        config: ControlConfig,
        capabilities: Capabilities,
        header: EngineHeader,
        log: Callable[[str], None],
        key: EngineKey | None = None,
    ) -> Runtime:
        """Build the policy and its loop, and attach the sinks that the configuration names.

        Parameters
        ----------
        config, capabilities
            What the policy is built from.
        header
            What traces and tracked runs say of the engine.
        log
            Gets one line per guard event and per sink that does not start.
        key
            Whose memory it is where the configuration names a folder; what the header says of the
            engine, if not given.

        Raises
        ------
        ValueError
            The configuration names no usable policy.
        """
        store = _memory_store(config, header, key)
        loop = ControlLoop(
            _policy(config, capabilities, store, log),
            capabilities,
            config,
            clock_ns=time.monotonic_ns,
            log=log,
        )
        runtime = cls(loop, log)
        trace, tracker = None, None
        if config.trace.path is not None:
            trace = runtime._add("trace", lambda queue: _trace_sink(config, header, queue))
        if trace is not None and config.trace.token_hashes:
            runtime.record_tokens = trace.add_tokens
        if config.mlflow.enabled:
            tracker = runtime._add(
                "mlflow", lambda queue: _mlflow_sink(config, header, queue), snapshots=False
            )
        if store is not None:
            runtime._remember(store, config.memory.interval_s)
        if trace is not None and tracker is not None:
            tracker.attach_artifact(trace.path)  # uploaded when the life ends, all its segments
        atexit.register(runtime.close)
        return runtime

    def close(self) -> None:
        """Close the sinks and save what is kept; a second call does nothing."""
        self._take_last_state()
        sinks, self.sinks = self.sinks, []
        for sink in sinks:
            try:
                sink.close()
            except Exception as error:
                self._fault(type(sink).__name__, error)
        atexit.unregister(self.close)

    def _add(
        self, name: str, build: Callable[[EventQueue], S], *, snapshots: bool = True
    ) -> S | None:
        """Start a sink and return it; one that does not start is logged and left out."""
        queue = EventQueue(snapshots=snapshots)
        try:
            sink = build(queue)
            sink.start()
        except Exception as error:
            self._fault(name, error)
            return None
        self.sinks.append(sink)
        self.loop.attach(queue)
        return sink

    def _remember(self, store: MemoryStore, interval_s: float) -> None:
        """Save what the policy learns from now on."""
        from acclimate.integrations.memory_keeper import MemoryKeeper

        keeper = MemoryKeeper(store, self.loop.policy.name, self._log, interval_s=interval_s)
        self._states = keeper.queue
        self.loop.attach(keeper.queue)
        keeper.start()
        self.sinks.append(keeper)

    def _take_last_state(self) -> None:
        """Take the state that the next start begins with; none is better than a faulty one."""
        states, self._states = self._states, None
        if states is not None:
            self.loop.detach(states)
            if self.loop.counters.outcomes and self.loop.stock is None:
                self.loop.attach(states)
                self.loop.detach(states)

    def _fault(self, name: str, error: Exception) -> None:
        self.sink_faults += 1
        self._log(f"sink {name} is off: {type(error).__name__}: {error}")


def _memory_store(
    config: ControlConfig, header: EngineHeader, key: EngineKey | None
) -> MemoryStore | None:
    if config.memory.path is None:
        return None
    from acclimate.integrations.engine_key import EngineKey
    from acclimate.integrations.memory_store import MemoryStore

    key = key or EngineKey.of(header)
    return MemoryStore(config.memory.path, config.policy, key, header.rank)


def _policy(
    config: ControlConfig,
    capabilities: Capabilities,
    store: MemoryStore | None,
    log: Callable[[str], None],
) -> Policy:
    """Build the policy, with what an earlier life learned if that can be used."""
    if store is None:
        return build_policy(config, capabilities)
    from acclimate.integrations.memory_keeper import begin

    return begin(lambda: build_policy(config, capabilities), store, log)


def _trace_sink(config: ControlConfig, header: EngineHeader, queue: EventQueue) -> TraceSink:
    from acclimate.integrations.trace import TraceSink

    return TraceSink(config.trace, header, queue, seed=config.seed)


def _mlflow_sink(config: ControlConfig, header: EngineHeader, queue: EventQueue) -> MlflowSink:
    from acclimate.integrations.mlflow import MlflowSink

    return MlflowSink(config, header, queue)
