"""``acclimate lab swap``: how soon a policy is right again after the drafter was swapped, live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.events import EventQueue
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.demo.prompts import PROMPTS
from acclimate.experiments.drafters.choices import Drafter, drafter, start_drafting
from acclimate.experiments.figures import (
    Figure,
    Meta,
    median_interval,
    print_figures,
    write_figures,
)
from acclimate.experiments.lab.swap_recovery import (
    LABEL,
    SwapRecovery,
    SwapRun,
    declare_swap,
    hindsight,
    relive,
)
from acclimate.experiments.peers.clairvoyant import Clairvoyant
from acclimate.experiments.testbed import model_path
from acclimate.integrations.vllm.closed_loop import Job, run_closed_loop
from acclimate.integrations.vllm.launch import Engine
from acclimate.integrations.vllm.variants import swap_variant

SECRET, DECLARED, CLAIRVOYANT = "adaptive", "adaptive-declared", "clairvoyant"
_DEPTH, _CONCURRENCY, _TOKENS = 4, 8, 64
_MAX_MODEL_LEN = 512

Contender = tuple[str, Callable[[SwapRun], Policy], Callable[[Policy], None]]


def run_swap(
    *,
    drafter_name: str,
    variant: str,
    rounds: int,
    jobs: int,
    json: Path | None,
    seed: int,
) -> list[Figure]:
    """Swap a drafter's variant while the engine serves, and measure how soon beliefs are right.

    A round is two passes over as many prompts: one with the first variant, one behind the swap.
    The policy on the engine is never told. What it, the same policy when it is told, and one that
    starts afresh at the swap believe is lived anew from the logged outcomes.

    Parameters
    ----------
    drafter_name
        With variants, see `acclimate.experiments.drafters.choices.drafter`.
    variant
        Which takes over.
    rounds
        Swaps, each from the first variant.
    jobs
        Prompts of a pass.
    json
        The figures file, if wanted.
    seed
        Draws the prompts.

    Raises
    ------
    ValueError
        The drafter has no such variant.
    """
    from rich.console import Console

    choice = drafter(drafter_name)
    if variant not in choice.swappable[1:]:
        known = ", ".join(choice.swappable[1:]) or "none"
        raise ValueError(f"to must be a variant of {drafter_name}: {known}; got {variant!r}")
    config = ControlConfig(seed=seed)
    console, progress = Console(), Console(stderr=True)
    started_s = time.monotonic()
    with progress.status("starting the engine") as status:
        engine = _start(choice, config)
        capabilities = engine.bridge.loop.capabilities
        try:
            runs = []
            for number in range(rounds):
                status.update(f"swap {number + 1} of {rounds}")
                runs.append(_swap(engine, choice, variant, config, jobs, (seed, number)))
        finally:
            engine.shutdown()
    figures = swap_figures(runs, config, capabilities, np.random.default_rng(seed))
    print_figures(figures, title=f"{drafter_name}, swapped for {variant}", console=console)
    console.print(f"• took {time.monotonic() - started_s:.0f} s")
    if json is not None:
        write_figures(json, figures, Meta("lab swap", engine="vllm", seed=seed))
    return figures


def swap_figures(
    runs: Sequence[SwapRun],
    config: ControlConfig,
    capabilities: Capabilities,
    rng: np.random.Generator,
) -> list[Figure]:
    """Return how soon each contender was right again, and how much the swap changed.

    A swap after which a contender was never right counts with all tokens that were graded, and
    lowers ``swap/<policy>/recovered``, the share of swaps after which it was.
    """
    figures = []
    contenders: list[Contender] = [
        (SECRET, lambda run: arm_policy(SECRET, config, capabilities), _nothing),
        (DECLARED, lambda run: arm_policy(SECRET, config, capabilities), declare_swap),
        (
            CLAIRVOYANT,
            lambda run: Clairvoyant(config, capabilities, (run.swapped_ns,)),
            _nothing,
        ),
    ]
    for name, build, at_swap in contenders:
        found = [relive(run, build(run), at_swap=at_swap) for run in runs]
        base = f"swap/{name}"
        figures += [
            median_interval(f"{base}/tokens_to_recover", _tokens(found), rng, unit="tokens"),
            Figure(f"{base}/recovered", _share(found, "recovered"), n=len(found)),
            Figure(f"{base}/noticed", _share(found, "noticed"), n=len(found)),
        ]
    for when in ("before", "after"):
        first = [float(hindsight(getattr(run, when), run.max_depth)[0]) for run in runs]
        figures.append(median_interval(f"swap/acceptance_position1/{when}", first, rng))
    return figures


def _tokens(found: Sequence[SwapRecovery]) -> list[float]:
    return [float(one.graded if one.recovered is None else one.recovered) for one in found]


def _share(found: Sequence[SwapRecovery], what: str) -> float:
    return float(np.mean([getattr(one, what) is not None for one in found]))


def _nothing(policy: Policy) -> None:
    """Keep the swap secret."""


def _start(choice: Drafter, config: ControlConfig) -> Engine:
    from acclimate import AdaptiveController

    return start_drafting(
        model_path(),
        choice,
        controller=AdaptiveController(config),
        max_depth=_DEPTH,
        max_num_seqs=_CONCURRENCY,
        max_model_len=_MAX_MODEL_LEN,
    )


def _swap(
    engine: Engine,
    choice: Drafter,
    variant: str,
    config: ControlConfig,
    jobs: int,
    seed: tuple[int, int],
) -> SwapRun:
    """Serve, swap, serve on, and swap back for the next round."""
    loop = engine.bridge.loop
    loop.replace_policy(arm_policy(SECRET, config, loop.capabilities))
    queue = EventQueue(capacity=1_000_000, snapshots=False)
    loop.attach(queue)
    prompts = _prompts(np.random.default_rng(seed))
    first, second = (
        [_job(engine, f"{when}-{number}", next(prompts)) for number in range(jobs)]
        for when in ("before", "after")
    )
    run_closed_loop(engine, first, _CONCURRENCY)
    before = queue.take()
    swap_variant(engine, variant, declare=False)
    swapped_ns = loop.clock_ns()
    run_closed_loop(engine, second, _CONCURRENCY)
    after = queue.take()
    loop.detach(queue)
    swap_variant(engine, choice.swappable[0], declare=False)
    return SwapRun(before, after, swapped_ns, _DEPTH)


def _job(engine: Engine, key: str, text: str) -> Job:
    tokens = engine.tokens([{"role": "user", "content": text}])
    return Job(key, tokens, _TOKENS, label=LABEL)


def _prompts(rng: np.random.Generator) -> Iterator[str]:
    """Give prompts of all domains mixed, again in another order when there are no more."""
    everything = [text for prompts in PROMPTS.values() for text in prompts]
    while True:
        for index in rng.permutation(len(everything)):
            yield everything[int(index)]
