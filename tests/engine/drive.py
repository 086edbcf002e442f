"""Runs one engine in a process of its own and writes what came of it: drive.py WHAT MODEL OUT."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import known_drafter
from scripted_policies import FaultyPolicy, shuffled

from acclimate import AdaptiveController, ControlConfig
from acclimate.experiments.testbed import truncated_copy
from acclimate.integrations.vllm.launch import start_engine

PROMPTS = [
    "one two three one two three one two",
    "The cat sat on the mat. The cat sat on the",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return",
    "A, B, C, D, A, B, C, D, A,",
    "The rain in the hills falls on the river, and the river",
    "for i in range(10):\n    print(i)\nfor j in range(10):\n",
    "Question: What is two plus two? Answer: four. Question: What is",
    "red green blue red green blue red",
    "Once upon a time there was a",
    "x = 1\ny = 2\nz = 3\nx = 1\ny =",
    "The sun is a star. The moon is",
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Monday",
]
TOKENS = 96
LOOKUP = {"prompt_lookup_min": 1, "prompt_lookup_max": 3}
# A busy machine stalls for longer than the default limit: only a fault of ours may be late here.
PATIENT = {"guard": {"late_ms": 2_000}}
PLAY = {"policy": "scripted_policies:shuffled", "seed": 11} | PATIENT


def generate(llm: Any, count: int = len(PROMPTS), tokens: int = TOKENS) -> list[list[int]]:
    """Return greedy answers, as token ids."""
    from vllm import SamplingParams

    domain = {"acclimate_domain": "code", "acclimate_tenant": "t" * 99}
    greedy = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, extra_args=domain)
    outputs = llm.generate(PROMPTS[:count], greedy, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def reference(model: str) -> dict[str, Any]:
    """An engine without any speculation: the truth."""
    engine = start_engine(model, method=None)
    texts = generate(engine.llm)
    decoded = [engine.llm.get_tokenizer().decode(ids) for ids in texts]
    return {"prompts": PROMPTS, "tokens": texts, "texts": decoded}


def _watched(bridge: Any) -> dict[str, int]:
    """Count what a run verified and how often its depth changed."""
    seen = {"verified": 0, "accepted": 0, "graded": 0, "matched": 0}
    observe = bridge.loop.observe

    def watch(outcome: Any) -> None:
        seen["verified"] += int(outcome.drafts.verified.sum())
        seen["accepted"] += int(outcome.drafts.accepted.sum())
        seen["graded"] += int(outcome.drafts.graded.sum())
        seen["matched"] += int(outcome.drafts.matched.sum())
        observe(outcome)

    bridge.loop.observe = watch
    return seen


def _play(model: str, *, rounds: int, **engine_args: Any) -> tuple[Any, dict[str, Any]]:
    engine = start_engine(model, controller=AdaptiveController(PLAY), max_depth=4, **engine_args)
    seen = _watched(engine.bridge)
    tokens = [generate(engine.llm) for _ in range(rounds)]
    return engine, {"tokens": tokens, "seen": dict(seen), "status": engine.bridge.status()}


def ngram(model: str) -> dict[str, Any]:
    """The n-gram drafter under scripted play, then under faulty policies."""
    engine, result = _play(model, rounds=2, speculative=LOOKUP)
    loop = engine.bridge.loop
    result["faults"] = {}
    for fault in ("raises", "late", "nonsense"):
        loop.reload(ControlConfig.read(PLAY))
        loop.replace_policy(FaultyPolicy(loop.config, loop.capabilities, fault))
        lines: list[str] = []
        loop._log = lines.append
        before = engine.bridge.status()
        tokens = generate(engine.llm, count=4, tokens=48)
        after = engine.bridge.status()
        raised = {k: after[k] - before[k] for k in ("faults", "late_calls", "stock_steps", "steps")}
        result["faults"][fault] = {"tokens": tokens, "raised": raised, "lines": lines}
    return result


def bfloat16(model: str) -> dict[str, Any]:
    """Tokens of k0 and of scripted play in bfloat16, and the log-odds of where they part."""
    from vllm import SamplingParams

    idle = ControlConfig.read(PLAY | {"policy": "static:0"})
    engine = start_engine(
        model,
        controller=AdaptiveController(idle),
        dtype="bfloat16",
        max_depth=4,
        speculative=LOOKUP,
    )
    loop, tokenizer = engine.bridge.loop, engine.llm.get_tokenizer()
    truth = generate(engine.llm)
    loop.reload(ControlConfig.read(PLAY))
    seen = _watched(engine.bridge)
    played = generate(engine.llm)
    loop.reload(idle)
    one = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
    gaps = []
    for prompt, a, b in zip(PROMPTS, truth, played, strict=True):
        if a == b:
            continue
        at = next(i for i, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1])
        ids = tokenizer.encode(prompt) + a[:at]
        output = engine.llm.generate([{"prompt_token_ids": ids}], one, use_tqdm=False)[0]
        chances = output.outputs[0].logprobs[0]
        either = [chances[t].logprob if t in chances else -99.0 for t in (a[at], b[at])]
        gaps.append(abs(either[0] - either[1]))
    return {"prompts": len(PROMPTS), "gaps": gaps, "seen": seen, "status": engine.bridge.status()}


def draft_self(model: str) -> dict[str, Any]:
    """The target drafts for itself, so that everything is accepted."""
    return _play(model, rounds=2, method="draft_model", draft_model=model)[1]


def draft_cut(model: str) -> dict[str, Any]:
    """A draft model of two layers, so that little is accepted."""
    cut = truncated_copy(model, 2)
    return _play(model, rounds=1, method="draft_model", draft_model=cut)[1]


def multiprocess(model: str, trace: str) -> dict[str, Any]:
    """The engine core in a process of its own; writes on until somebody kills it."""
    controller = AdaptiveController(PLAY | {"trace": {"path": trace}})
    engine = start_engine(model, controller=controller, max_depth=4, in_process=False)
    tokens = generate(engine.llm)
    Path(sys.argv[3]).write_text(json.dumps({"tokens": tokens}))
    while True:
        generate(engine.llm)


def known(model: str) -> dict[str, Any]:
    """A drafter of known acceptance under the adaptive policy: two domains, one of which shifts."""
    from vllm import SamplingParams

    controller = AdaptiveController(PATIENT)
    engine = start_engine(
        model, controller=controller, method="custom_class", max_depth=4,
        draft_model="known_drafter.KnownDrafter", max_num_seqs=8,
    )  # fmt: skip
    llm, policy = engine.llm, engine.bridge.loop.policy
    greedy = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    first = llm.generate(PROMPTS[:8], greedy, use_tqdm=False)
    truth = [list(output.outputs[0].token_ids) for output in first]
    for index, output in enumerate(first):
        prompt = tuple(output.prompt_token_ids)
        known_drafter.ANSWERS[prompt] = truth[index]
        known_drafter.DOMAINS[prompt] = "high" if index % 2 else "low"
    params = [
        SamplingParams(
            temperature=0, max_tokens=TOKENS, ignore_eos=True,
            extra_args={"acclimate_domain": "high" if index % 2 else "low"},
        )
        for index in range(8)
    ]  # fmt: skip

    alarms: list[Any] = []
    observe = policy.observe

    def watch(outcome: Any) -> Any:
        got = observe(outcome)
        alarms.extend(got)
        return got

    policy.observe = watch
    phases = []
    for chances in ({"low": 0.4, "high": 0.9}, {"low": 0.4, "high": 0.5}):
        known_drafter.CHANCES.update(chances)
        same, count = True, len(alarms)
        for _ in range(3):
            again = llm.generate(PROMPTS[:8], params, use_tqdm=False)
            same &= [list(output.outputs[0].token_ids) for output in again] == truth
        slots = {slot.label: msgspec_slot(slot) for slot in policy.report().slots}
        # How long steps take is this machine's matter, and may change at any time.
        labels = [alarm.label for alarm in alarms[count:] if alarm.signal != "step_time"]
        phases.append({"chances": chances, "same": same, "slots": slots, "alarms": labels})
    return {"phases": phases, "status": engine.bridge.status()}


def backoff(model: str) -> dict[str, Any]:
    """The back-off drafter, verified in full; variants are swapped between passes."""
    from acclimate.controller.events import DeclareEvent, EventQueue
    from acclimate.experiments.drafters.choices import drafter, start_drafting
    from acclimate.integrations.vllm.variants import swap_variant

    config = {"policy": "static:4"} | PATIENT
    choice = drafter("backoff")
    engine = start_drafting(
        model, choice, controller=AdaptiveController(config), max_depth=4, max_num_seqs=8
    )
    loop = engine.bridge.loop
    loop.reload(ControlConfig.read(config | {"policy": "static:0"}))
    few = {"count": 8, "tokens": 64}
    truth = generate(engine.llm, **few)
    result: dict[str, Any] = {"names": list(choice.swappable), "truth": truth}
    loop.reload(ControlConfig.read(config))
    queue = EventQueue(capacity=100_000, snapshots=False)
    loop.attach(queue)
    seen = _watched(engine.bridge)
    sure = result["sure"] = {"count": [0, 0, 0], "right": [0, 0, 0]}
    _note_sureness(engine.bridge, sure)
    for name, variant, declare in (
        ("general", None, False),
        ("code", "code", False),
        ("general_again", "general", True),
    ):
        if variant is not None:
            swap_variant(engine, variant, declare=declare)
        before = dict(seen)
        tokens = generate(engine.llm, **few)
        result[name] = {key: seen[key] - before[key] for key in seen} | {"tokens": tokens}
    events = [event for event in queue.take() if isinstance(event, DeclareEvent)]
    result["declared"] = [f"{event.change.kind} {event.change.detail}" for event in events]
    try:
        swap_variant(engine, "prose", declare=False)
    except Exception as error:
        result["unknown"] = str(error)
    result["status"] = engine.bridge.status()
    return result


def _note_sureness(bridge: Any, sure: dict[str, list[int]]) -> None:
    """Count first draft tokens by the drafter's confidence, and how many of them were right."""
    import numpy as np

    waiting: dict[tuple[int, int], int] = {}
    plan, observe = bridge.loop.plan, bridge.loop.observe

    def planned(context: Any) -> Any:
        if context.candidates is not None:
            first = context.candidates.depth == 1
            rows = context.candidates.request[first]
            bins = np.digitize(context.candidates.confidence[first], (0.3, 0.7))
            for request, kind in zip(context.requests[rows].tolist(), bins.tolist(), strict=True):
                waiting[context.step, request] = kind
        return plan(context)

    def observed(outcome: Any) -> None:
        drafts = outcome.drafts
        for i in np.flatnonzero(drafts.verified > 0):
            kind = waiting.pop((outcome.step, int(drafts.request[i])), None)
            if kind is not None:
                sure["count"][kind] += 1
                sure["right"][kind] += bool(drafts.accepted[i])
        observe(outcome)

    bridge.loop.plan, bridge.loop.observe = planned, observed


def msgspec_slot(slot: Any) -> dict[str, Any]:
    """Return a slot's report as plain data."""
    import msgspec

    return msgspec.to_builtins(slot)


if __name__ == "__main__":
    what, model, out, *rest = sys.argv[1:]
    assert shuffled is not None
    Path(out).write_text(json.dumps(globals()[what](model, *rest)))
