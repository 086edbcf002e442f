"""The engine's real schedulers, driven with fabricated model outputs: no model, no worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import (
    Capabilities,
    Change,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
)
from acclimate.controller.reports import Alarm, Report

DEPTH = 4
MAX_LEN = 128
BLOCK = 16


class ScriptedPolicy:
    """Does what it is told: a draft depth and a verify length per step, the last one for ever."""

    name = "scripted"

    def __init__(self, plans: Sequence[tuple[int, int]]) -> None:
        self.plans = list(plans)
        self.contexts: list[StepContext] = []
        self.outcomes: list[StepOutcome] = []
        self.admitted: list[RequestInfo] = []
        self.forgotten: list[int] = []

    def admit(self, request: RequestInfo) -> None:
        self.admitted.append(request)

    def plan(self, context: StepContext) -> StepPlan:
        self.contexts.append(context)
        draft_depth, k = self.plans[min(context.step, len(self.plans)) - 1]
        return StepPlan(
            step=context.step,
            draft_depth=draft_depth,
            verify_lens=np.minimum(context.drafts, k),
            depth=k,
            reason="fixed",
        )

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        self.outcomes.append(outcome)
        return ()

    def declare(self, change: Change) -> None: ...

    def forget(self, request: int) -> None:
        self.forgotten.append(request)

    def report(self) -> Report:
        return Report()

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None: ...


class Rig:
    """A scheduler, its bridge and policy, and a model made of a rule.

    The target writes, as output token number i of any request, ``i + 1``; a draft is right if it
    says so.
    """

    def __init__(self, scheduler: Any, policy: Any, bridge: Any) -> None:
        self.scheduler, self.policy, self.bridge = scheduler, policy, bridge
        self.flights: list[tuple[Any, list[str]]] = []
        self.written: dict[str, int] = {}
        self.clock_ns = 0

    def add(self, name: str, *, prompt: int = 5, max_tokens: int = 50, **sampling: Any) -> Any:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, **sampling)
        params.update_from_generation_config({}, None)
        request = Request(name, list(range(1000, 1000 + prompt)), params, None)
        self.scheduler.add_request(request)
        return request

    def session(self, name: str, *, prompt: int, max_tokens: int, **sampling: Any) -> None:
        """Begin a session, or send its next turn."""
        from vllm import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True, **sampling)
        params.update_from_generation_config({}, None)
        ids = list(range(1000, 1000 + prompt))
        self.scheduler.add_request(Request(name, ids, params, None, resumable=True))

    def launch(self) -> Any:
        """Schedule one step."""
        output = self.scheduler.schedule()
        final = [
            i
            for i in output.num_scheduled_tokens
            if not self.scheduler.requests[i].is_prefill_chunk
        ]
        self.flights.append((output, final))
        return output

    def land(self, accept: dict[str, int] | int = DEPTH) -> Any:
        """Return the oldest step's tokens; ``accept`` caps how many drafts are right."""
        from vllm.v1.outputs import ModelRunnerOutput

        output, final = self.flights.pop(0)
        ids = list(output.num_scheduled_tokens)
        rows: list[list[int]] = []
        for name in ids:
            if name not in final:
                rows.append([])
                continue
            most = accept if isinstance(accept, int) else accept.get(name, DEPTH)
            spec = output.scheduled_spec_decode_tokens.get(name, [])
            begin = self.written.get(name, 0)
            right = 0
            while right < min(len(spec), most) and spec[right] in (-1, begin + right + 1):
                right += 1
            rows.append([begin + i + 1 for i in range(right + 1)])
            self.written[name] = begin + right + 1
        result = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={n: i for i, n in enumerate(ids)}, sampled_token_ids=rows
        )
        self.clock_ns += 10_000_000
        self.scheduler.update_from_output(output, result)
        return output

    def draft(self, output: Any, drafts: dict[str, list[int]] | None = None) -> None:
        """Hand over drafts as a synchronous runner does: right ones, unless given."""
        from vllm.v1.outputs import DraftTokenIds

        names = [n for n in output.num_scheduled_tokens if n in self.scheduler.requests]
        depth = output.num_spec_tokens_to_schedule
        ids = []
        for name in names:
            begin = self.written.get(name, 0)
            right = [begin + i + 1 for i in range(depth)]
            ids.append((drafts or {}).get(name, right))
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, ids))

    def step(self, accept: dict[str, int] | int = DEPTH, drafts: Any = None) -> Any:
        """Run one synchronous step."""
        output = self.launch()
        self.land(accept)
        self.draft(output, drafts)
        return output


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A configuration without weights: schedulers need no more."""
    folder = tmp_path_factory.mktemp("model")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 1,
        "vocab_size": 5000,
        "max_position_embeddings": MAX_LEN,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.fixture
def engine_config(model_folder: str) -> Callable[..., Any]:
    """Build a vLLM configuration; the CPU platform turns async off, so it is set afterwards."""
    pytest.importorskip("vllm", reason="vllm is not installed")

    def build(
        *, asynchronous: bool = False, depth: int = DEPTH, blocks: int = 200, seqs: int = 8,
        additional: dict[str, Any] | None = None, speculative: bool = True,
        scheduler_cls: str | None = None,
    ) -> Any:  # fmt: skip
        from vllm.config import (
            CacheConfig,
            ModelConfig,
            ParallelConfig,
            SchedulerConfig,
            SpeculativeConfig,
            VllmConfig,
        )

        model = ModelConfig(
            model=model_folder, dtype="float32", max_model_len=MAX_LEN, skip_tokenizer_init=True
        )
        config = VllmConfig(
            model_config=model,
            cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=False),
            scheduler_config=SchedulerConfig(
                max_num_seqs=seqs,
                max_num_batched_tokens=64,
                max_model_len=MAX_LEN,
                is_encoder_decoder=False,
                enable_chunked_prefill=True,
                scheduler_cls=scheduler_cls,
            ),
            speculative_config=SpeculativeConfig(
                method="ngram",
                num_speculative_tokens=depth,
                prompt_lookup_max=3,
                target_model_config=model,
                target_parallel_config=ParallelConfig(),
            )
            if speculative
            else None,
            additional_config=additional or {},
        )
        config.scheduler_config.async_scheduling = asynchronous
        config.cache_config.num_gpu_blocks = blocks
        return config

    return build


@pytest.fixture
def scheduler_arguments() -> Callable[[Any], dict[str, Any]]:
    """What an engine core passes to its scheduler class."""

    def build(config: Any) -> dict[str, Any]:
        import torch
        from vllm.v1.kv_cache_interface import (
            FullAttentionSpec,
            KVCacheConfig,
            KVCacheGroupSpec,
        )
        from vllm.v1.structured_output import StructuredOutputManager

        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        return {
            "vllm_config": config,
            "kv_cache_config": KVCacheConfig(
                num_blocks=config.cache_config.num_gpu_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            "structured_output_manager": StructuredOutputManager(config),
            "block_size": BLOCK,
            "log_stats": True,
        }

    return build


@pytest.fixture
def rig(
    engine_config: Callable[..., Any], scheduler_arguments: Callable[[Any], dict[str, Any]]
) -> Callable[..., Rig]:
    """Build a real scheduler with a scripted policy."""

    def build(
        plans: Sequence[tuple[int, int]],
        *,
        asynchronous: bool = False,
        honours_depth: bool = True,
        policy: Any = None,
        log: Callable[[str], None] = lambda line: None,
        facts: dict[str, Any] | None = None,
        control: ControlConfig | None = None,
        **config_args: Any,
    ) -> Rig:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler

        from acclimate.integrations.vllm.bridge import EngineBridge
        from acclimate.integrations.vllm.flight import EngineFacts
        from acclimate.integrations.vllm.scheduler import adaptive_scheduler

        config = engine_config(asynchronous=asynchronous, **config_args)
        base = AsyncScheduler if asynchronous else Scheduler
        scheduler = adaptive_scheduler(base)(**scheduler_arguments(config))
        capabilities = Capabilities(
            max_depth=DEPTH,
            depths=tuple(range(DEPTH + 1)),
            honours_depth=honours_depth,
            hindsight=not asynchronous,
            asynchronous=asynchronous,
        )
        policy = policy or ScriptedPolicy(plans)
        made: list[Rig] = []
        loop = ControlLoop(
            policy,
            capabilities,
            control or ControlConfig(),
            clock_ns=lambda: made[0].clock_ns if made else 0,
            log=log,
        )
        known = {"drafter_len": MAX_LEN, "ids_visible": not asynchronous} | (facts or {})
        bridge = EngineBridge(
            loop, EngineFacts(depth=DEPTH, max_model_len=MAX_LEN, **known), log=log
        )
        scheduler.attach_bridge(bridge)
        made.append(Rig(scheduler, policy, bridge))
        return made[0]

    return build
