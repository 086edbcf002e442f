"""An engine without a model: request objects, schedules and outputs as vLLM's, from a seed.

It calls an `EngineBridge` where vLLM's scheduler does, and times those calls alone.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from acclimate.controller.build import build_policy
from acclimate.controller.config import ControlConfig, SloConfig
from acclimate.controller.events import EventQueue
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities
from acclimate.integrations.vllm.bridge import EngineBridge
from acclimate.integrations.vllm.flight import EngineFacts

_MAX_MODEL_LEN = 4_096
_VOCABULARY = 32_000
_TOKEN_BUDGET = 8_192
_ACCEPTANCE = (0.85, 0.7, 0.5)
_DRAFT_SHARE = 0.6  # n-gram lookup often finds nothing


class ScriptedRequest:
    """A request with the attributes that the bridge reads; its whole output is known beforehand."""

    def __init__(
        self, request_id: str, prompt_tokens: int, output: list[int], sampling_params: Any, q: float
    ) -> None:
        self.request_id = request_id
        self.num_prompt_tokens = prompt_tokens
        self.max_tokens = len(output)
        self.sampling_params = sampling_params
        self.num_computed_tokens = 0
        self.num_output_placeholders = 0
        self.is_prefill_chunk = False
        self.spec_token_ids: list[int] = []
        self.lora_request = None
        self.priority = 0
        self.structured_output_request = None
        self.resumable = False
        self.output = output
        self.written: list[int] = []
        self.q = q

    @property
    def num_output_tokens(self) -> int:
        """Output tokens so far."""
        return len(self.written)

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens so far."""
        return self.num_prompt_tokens + len(self.written)


class ScriptedScheduler:
    """Holds a batch at a constant size: requests finish, and others arrive at once.

    Drafts are n-gram-like: often absent, of any length up to the depth, and right up to a
    position that is drawn per draft. A step's latency is that of a small engine, on a clock that
    runs with real time inside our calls and jumps by the latency outside.

    Parameters
    ----------
    batch
        Requests in the engine.
    max_depth
        The engine's ``num_speculative_tokens``.
    seed
        Of everything drawn.
    output_tokens
        Shortest and longest output.
    labels
        Gives the extra arguments of each request; by default one of eight domains.
    policy, slo
        As in the configuration.
    during
        What else the machine does while the model runs, outside of what is timed.
    """

    def __init__(
        self,
        batch: int,
        *,
        max_depth: int,
        seed: int,
        output_tokens: tuple[int, int] = (40, 200),
        labels: Callable[[int], Any] | None = None,
        policy: str = "adaptive",
        slo: SloConfig | None = None,
        during: Callable[[], object] = lambda: None,
    ) -> None:
        self.batch = batch
        self.max_depth = max_depth
        self._rng = np.random.default_rng(seed)
        self._output_tokens = output_tokens
        self._labels = labels or (lambda number: {"acclimate_domain": f"domain-{number % 8}"})
        self._during = during
        self._ahead_ns = 0
        self._numbers = itertools.count(1)
        capabilities = Capabilities(
            max_depth=max_depth,
            depths=tuple(range(max_depth + 1)),
            free_drafts=True,
            hindsight=True,
        )
        config = ControlConfig(policy=policy, seed=seed, slo=slo or SloConfig())
        self.log: list[str] = []
        self.loop = ControlLoop(
            build_policy(config, capabilities),
            capabilities,
            config,
            clock_ns=self._clock_ns,
            log=self.log.append,
        )
        self.bridge = EngineBridge(
            self.loop,
            EngineFacts(depth=max_depth, max_model_len=_MAX_MODEL_LEN, ids_visible=True),
            log=self.log.append,
        )
        self.queue = EventQueue()
        self.loop.attach(self.queue)
        self.running: list[ScriptedRequest] = []
        self.waiting: deque[ScriptedRequest] = deque()
        self.requests: dict[str, ScriptedRequest] = {}
        self.tokens = 0

    def step(self) -> int:
        """Run one engine step; return the nanoseconds that it spent in our calls."""
        spent_ns = self._arrive()
        bridge = self.bridge
        begun_ns = time.perf_counter_ns()
        bridge.begin(
            self.running,
            self.waiting,
            waiting_prompts=len(self.waiting),
            token_budget=_TOKEN_BUDGET,
            seats=self.batch,
        )
        depth = bridge.depth()
        spent_ns += time.perf_counter_ns() - begun_ns
        output = self._schedule(self.max_depth if depth is None else depth)
        begun_ns = time.perf_counter_ns()
        bridge.scheduled(output, self.requests)
        spent_ns += time.perf_counter_ns() - begun_ns
        result = self._execute(output)
        begun_ns = time.perf_counter_ns()
        bridge.sampled(output, result)
        spent_ns += time.perf_counter_ns() - begun_ns
        finished = self._update(output, result)
        begun_ns = time.perf_counter_ns()
        for request in finished:
            bridge.free(request)
        bridge.finish(more_work=True)
        spent_ns += time.perf_counter_ns() - begun_ns
        for request in finished:
            self.running.remove(request)
            del self.requests[request.request_id]
        self._draft(output.num_spec_tokens_to_schedule)
        return spent_ns

    def check(self) -> None:
        """Make sure that the controller acted all along.

        Raises
        ------
        RuntimeError
            A fault, a violation or a failure of the bridge; the message quotes the log.
        """
        status = self.bridge.status()
        if status["faults"] or status["violations"] or status["failed"]:
            raise RuntimeError(f"the controller must act in every step, got: {self.log[0]}")

    def _clock_ns(self) -> int:
        return time.perf_counter_ns() + self._ahead_ns

    def _arrive(self) -> int:
        spent_ns = 0
        while len(self.running) + len(self.waiting) < self.batch:
            number = next(self._numbers)
            length = int(self._rng.integers(*self._output_tokens, endpoint=True))
            request = ScriptedRequest(
                f"request-{number}",
                int(self._rng.integers(20, 200)),
                self._rng.integers(_VOCABULARY, size=length).tolist(),
                SimpleNamespace(temperature=0.0, extra_args=self._labels(number)),
                _ACCEPTANCE[number % len(_ACCEPTANCE)],
            )
            self.requests[request.request_id] = request
            self.waiting.append(request)
            begun_ns = time.perf_counter_ns()
            self.bridge.admit(request)
            spent_ns += time.perf_counter_ns() - begun_ns
        return spent_ns

    def _schedule(self, depth: int) -> Any:
        tokens: dict[str, int] = {}
        spec: dict[str, list[int]] = {}
        before = []
        for request in self.running:
            room = request.max_tokens - len(request.written) - 1
            drafts = request.spec_token_ids[: max(room, 0)]
            tokens[request.request_id] = 1 + len(drafts)
            if drafts:
                spec[request.request_id] = drafts
            request.spec_token_ids = []
            before.append(request.num_computed_tokens)
            request.num_computed_tokens += 1 + len(drafts)
        for request in self.waiting:
            tokens[request.request_id] = request.num_prompt_tokens
            request.num_computed_tokens = request.num_prompt_tokens
        self.running.extend(self.waiting)
        self.waiting.clear()
        return SimpleNamespace(
            num_scheduled_tokens=tokens,
            total_num_scheduled_tokens=sum(tokens.values()),
            scheduled_spec_decode_tokens=spec,
            num_spec_tokens_to_schedule=depth,
            num_invalid_spec_tokens=None,
            scheduled_cached_reqs=SimpleNamespace(num_computed_tokens=before),
            scheduled_new_reqs=[],
        )

    def _execute(self, output: Any) -> Any:
        self._during()
        sampled: list[list[int]] = []
        spec = output.scheduled_spec_decode_tokens
        for request_id in output.num_scheduled_tokens:
            request = self.requests[request_id]
            truth = iter(request.output[len(request.written) :])
            row = []
            for draft in spec.get(request_id, ()):
                token = next(truth)
                row.append(token)
                if draft != token:
                    break
            else:
                row.append(next(truth))
            sampled.append(row)
        verified = sum(map(len, spec.values()))
        n = len(sampled)
        noise = 1.0 + 0.03 * float(self._rng.random())
        prefill = output.total_num_scheduled_tokens - n - verified
        self._ahead_ns += int(1e6 * noise * (13.0 + 0.8 * n + 0.6 * verified + 0.2 * prefill))
        index = {request_id: row for row, request_id in enumerate(output.num_scheduled_tokens)}
        return SimpleNamespace(sampled_token_ids=sampled, req_id_to_index=index)

    def _update(self, output: Any, result: Any) -> list[ScriptedRequest]:
        finished = []
        spec = output.scheduled_spec_decode_tokens
        for request_id, row in zip(
            output.num_scheduled_tokens, result.sampled_token_ids, strict=True
        ):
            request = self.requests[request_id]
            request.num_computed_tokens -= len(spec.get(request_id, ())) + 1 - len(row)
            request.written.extend(row)
            self.tokens += len(row)
            if len(request.written) >= request.max_tokens:
                finished.append(request)
        return finished

    def _draft(self, depth: int) -> None:
        for request, found, length, right in zip(self.running, *self._draws(depth), strict=False):
            if not found:
                continue
            at = len(request.written)
            draft = request.output[at : at + length]
            if len(draft) > right:
                draft[right] = (draft[right] + 1) % _VOCABULARY
            request.spec_token_ids = draft

    def _draws(self, depth: int) -> Iterator[list[Any]]:
        n = len(self.running)
        yield (self._rng.random(n) < _DRAFT_SHARE).tolist()
        yield self._rng.integers(1, max(depth, 1), size=n, endpoint=True).tolist()
        fail = np.array([1.0 - request.q for request in self.running])
        yield (self._rng.geometric(fail) - 1).tolist() if n else []
