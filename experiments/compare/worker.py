"""The process of one engine: told which arm to run under which load, it answers with a row."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from acclimate.controller.config import ControlConfig, TraceConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.compare.rows import CellRow, row_of
from acclimate.experiments.drafters.choices import NGRAM, drafter, start_drafting
from acclimate.integrations.vllm.client import Client
from acclimate.integrations.vllm.closed_loop import Job
from acclimate.integrations.vllm.draft_clock import DraftClock
from acclimate.integrations.vllm.known_proposer import KNOWN
from acclimate.integrations.vllm.launch import Engine
from acclimate.integrations.vllm.open_loop import run_open_loop
from acclimate.integrations.vllm.settings import CONFIG_FILE, SWITCH
from acclimate.integrations.vllm.steady_load import run_steady
from acclimate.integrations.vllm.weights import SharedWeights, WeightMemory

DRAFT_CALLS, DRAFT_NS = "draft_calls", "draft_ns"
"""Entries of a row's status: in how many steps the engine drafted, and the time that took."""
_COUNTED = ("steps", "stock_steps", "late_calls", "faults", "violations", "alarms")


@dataclasses.dataclass(frozen=True, slots=True)
class EngineSpec:
    """Which engine to start.

    Parameters
    ----------
    name
        For messages.
    depth
        Its ``num_speculative_tokens``; 0 for an engine that does not speculate.
    controlled
        Whether policies are swapped in it; otherwise it is stock.
    log
        File for everything that the engine prints.
    drafter
        Name of what it drafts with.
    pages
        Path of the `acclimate.integrations.shared_pages.SharedPages` in which all engines have
        their weights; empty for weights in memory of its own.
    trace
        Path of the controller's trace, which then holds token hashes; empty for none.
    """

    name: str
    model: str
    depth: int
    controlled: bool
    dtype: str
    max_num_seqs: int
    max_model_len: int
    seed: int
    log: str
    drafter: str = NGRAM
    pages: str = ""
    trace: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """One arm under one load.

    Parameters
    ----------
    arm, cell, round, block
        As in the row.
    policy
        What `acclimate.experiments.arms.arm_policy` builds; empty on a stock engine. The policy of
        an arm is built once and keeps what it has learned from order to order.
    fresh
        Whether the policy is built for this order alone (a warm-up).
    concurrency, arrival_s
        The one or the other: closed or open loop.
    """

    arm: str
    cell: str
    round: int
    jobs: tuple[Job, ...]
    policy: str = ""
    fresh: bool = False
    block: int = 0
    concurrency: int | None = None
    arrival_s: tuple[float, ...] | None = None


def serve(connection: Connection, spec: EngineSpec) -> None:
    """Start the engine and obey until told to stop, or until the other end is gone.

    Sends how it shares its weights once the engine is up; then, per message, an answer, or a string that says what
    failed. Messages are ``("tokens", conversations)`` and ``("run", order)``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _redirect(spec.log)
    # What a user has set for engines of his own must not reach an arm.
    os.environ.pop(CONFIG_FILE, None)
    os.environ[SWITCH] = "1" if spec.controlled else "0"
    try:
        worker = Worker(spec)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(worker.weights)
    # The other end may be gone at any time: then there is nobody left to work for.
    with contextlib.suppress(EOFError, OSError):
        while True:
            what, content = connection.recv()
            if what == "stop":
                break
            connection.send(_answer(worker, what, content))
    worker.close()


def _answer(worker: Worker, what: str, content: Any) -> Any:
    try:
        return worker.tokens(content) if what == "tokens" else worker.run(content)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class Worker:
    """One engine and the policies that take turns in it."""

    def __init__(self, spec: EngineSpec) -> None:
        from acclimate.integrations.vllm.handle import AdaptiveController

        trace = TraceConfig(path=spec.trace, token_hashes=True) if spec.trace else TraceConfig()
        self.config = ControlConfig(seed=spec.seed, trace=trace)
        memory = WeightMemory() if spec.pages else None
        with memory or contextlib.nullcontext():
            self.engine: Engine = start_drafting(
                spec.model,
                drafter(spec.drafter) if spec.depth else None,
                controller=AdaptiveController(self.config) if spec.controlled else None,
                max_depth=max(spec.depth, 1),
                dtype=spec.dtype,
                max_num_seqs=spec.max_num_seqs,
                max_model_len=spec.max_model_len,
                seed=spec.seed,
            )
        self.teaches = bool(spec.depth) and drafter(spec.drafter).taught
        self.drafting = DraftClock(self.engine)
        self.weights = memory.share(self.engine, spec.pages) if memory else SharedWeights(0, 0)
        self.loop: Any = self.engine.bridge.loop if spec.controlled else None
        self.client = Client(self.engine, depth=spec.depth)
        self.policies: dict[str, Policy] = {}

    def tokens(self, conversations: list[list[dict[str, str]]]) -> list[tuple[int, ...]]:
        """Return conversations as the token ids of prompts."""
        return [self.engine.tokens(messages) for messages in conversations]

    def run(self, order: Order) -> CellRow:
        """Run one arm under one load.

        Raises
        ------
        RuntimeError
            The controller's connection to the engine has failed for good.
        """
        before: dict[str, int] = {}
        if self.loop is not None:
            self._enter(order)
            before = self.loop.status()
        self.client.verify_lens = [0] * len(self.client.verify_lens)
        self.drafting.restart()
        if order.arrival_s is None:
            run = run_steady(self.client, order.jobs, order.concurrency or 1)
        else:
            run = run_open_loop(self.client, order.jobs, order.arrival_s)
        if self.teaches:
            for sent in run.sent:
                if sent.finish_reason is not None:
                    job = sent.job
                    KNOWN.teach(job.prompt_token_ids, sent.token_ids, domain=job.truth)
        status: dict[str, int] = {}
        if self.loop is not None:
            after = self.loop.status()
            status = {name: after[name] - before[name] for name in _COUNTED}
            if self.engine.bridge.failed:
                raise RuntimeError(
                    f"the controller must stay connected, got a fault in {order.arm}"
                )
        if self.drafting.calls:
            status[DRAFT_CALLS] = self.drafting.calls
            status[DRAFT_NS] = self.drafting.time_ns
        return row_of(
            run,
            order.arm,
            order.cell,
            order.round,
            order.block,
            verify_lens=self.client.verify_lens,
            status=status,
        )

    def close(self) -> None:
        """Stop the engine."""
        self.client.close()
        self.engine.shutdown()

    def _enter(self, order: Order) -> None:
        """Let the arm's policy act, with a guard that knows nothing of earlier arms."""
        capabilities: Capabilities = self.loop.capabilities
        policy = None if order.fresh else self.policies.get(order.arm)
        if policy is None:
            policy = arm_policy(order.policy, self.config, capabilities)
            if not order.fresh:
                self.policies[order.arm] = policy
        if self.loop.stock is not None:
            self.loop.reload(self.config)
        self.loop.replace_policy(policy)


def _redirect(path: str) -> None:
    """Send what this process prints, engine and libraries included, to a file."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
