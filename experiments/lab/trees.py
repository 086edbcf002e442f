"""``acclimate lab trees``: draft trees on a real model, and whether they leave its text alone."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.drafters.answers import read_answers
from acclimate.experiments.drafters.choices import GENERAL, backoff_files
from acclimate.experiments.drafters.prompts import (
    DOMAINS,
    HELD_OUT_EVERY,
    PASSAGE_DOMAINS,
    training_prompt,
)
from acclimate.experiments.figures import Figure, Meta, print_figures, write_figures
from acclimate.experiments.lab.tree_shapes import shape_figures
from acclimate.experiments.lab.tree_speed import Cell, measure_speed
from acclimate.experiments.peers.static_tree import StaticTree
from acclimate.experiments.testbed import model_path
from acclimate.experiments.trees.backoff import BackoffDrafter
from acclimate.experiments.trees.draft import Grower, grow_beam, grow_caterpillar
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.plain import decode_plain
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.sampling_check import (
    chi_square_p,
    count_pairs,
    not_renormalised,
    pair_law,
)
from acclimate.experiments.trees.target import TreeTarget, load_target
from acclimate.experiments.trees.tiny_model import TableDrafter, tiny_llama
from acclimate.experiments.trees.verification import residual

BATCHES = (1, 2, 4, 8)
_SPEED_PROMPTS, _SPEED_BATCHES = 8, (1, 8)
_PROMPT, _SHARPNESS = (7, 3, 5), 3.0  # of the random model
_SAMPLED = {"depth": 2, "width": 4, "nodes": 20}

Told = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """How trees grow, and who chooses among their nodes.

    Parameters
    ----------
    name
        For people.
    depth, width, nodes
        Of the drafts.
    grow
        How they grow.
    adaptive
        Whether our policy chooses; otherwise all are verified.
    """

    name: str
    depth: int
    width: int
    nodes: int
    grow: Grower = grow_beam
    adaptive: bool = False

    def capabilities(self) -> Capabilities:
        """Return an engine that drafts this shape."""
        return Capabilities(
            max_depth=self.depth,
            depths=tuple(range(self.depth + 1)),
            max_width=max(self.width, 2),
            # A shape that is fixed is drafted as it is.
            free_drafts=self.adaptive,
            hindsight=True,
        )

    def policy(self, config: ControlConfig) -> Policy:
        """Return a fresh policy."""
        if self.adaptive:
            return TreePolicy(config, self.capabilities())
        return StaticTree(self.capabilities(), depth=self.depth, width=self.width, nodes=self.nodes)


SHAPES = (
    Shape("chain4", 4, 1, 4),
    Shape("chain8", 8, 1, 8),
    Shape("beam4x2", 4, 2, 8),
    Shape("beam6x3", 6, 3, 16),
    Shape("beam8x4", 8, 4, 32),
    Shape("caterpillar5x3", 5, 3, 15, grow_caterpillar),
    Shape("adaptive", 8, 4, 32, adaptive=True),
)


def run_trees(
    *,
    prompts: int,
    tokens: int,
    draws: int,
    answers: Path | None,
    rounds: int,
    json: Path | None,
    seed: int,
) -> list[Figure]:
    """Compare every shape's text with plain decoding's, and the law of sampled tokens.

    Parameters
    ----------
    prompts
        Held-out prompts per domain; 0: none, and the model is not needed.
    tokens
        Output tokens per answer.
    draws
        Requests to the random model per test of the law; 0: none.
    answers
        Recorded answers, of which the held-out ones tell what trees are worth; None: not asked.
    rounds
        Of the comparison of speeds, 8 held-out prompts per domain at 1 and 8 requests; 0: none.
    json
        The figures file, if wanted.
    seed
        Of prompts and draws.
    """
    from rich.console import Console

    console, progress = Console(), Console(stderr=True)
    started_s = time.monotonic()
    figures: list[Figure] = []
    with progress.status("starting") as status:
        if prompts:
            figures += identical_figures(prompts, tokens, seed=seed, told=status.update)
        if draws:
            figures += sampling_figures(draws, seed=seed, told=status.update)
        if answers is not None:
            status.update("recorded answers")
            held_out = [answer for answer in read_answers(answers) if answer.held_out]
            figures += shape_figures(held_out, _drafter(), seed=seed)
        if rounds:
            figures += speed_figures(rounds, tokens, seed=seed, told=status.update)
    print_figures(figures, title="Draft trees", console=console)
    console.print(f"• took {time.monotonic() - started_s:.0f} s")
    if json is not None:
        write_figures(json, figures, Meta("lab trees", engine="trees", seed=seed))
    return figures


def identical_figures(prompts: int, tokens: int, *, seed: int, told: Told) -> list[Figure]:
    """Return the share of answers that are those of plain decoding, over all and by shape.

    Each prompt is answered under every shape, and under one of `BATCHES` in turn, so that every
    shape meets every batch.
    """
    told("loading the model")
    path = model_path()
    model = load_target(str(path))
    drafter = _drafter()
    texts = held_out_texts(str(path), prompts, seed=seed)
    stop = _stop_ids(model)
    plain = []
    for number, (_, text) in enumerate(texts):
        told(f"plain decoding, {number + 1} of {len(texts)}")
        plain.append(decode_plain(model, text, tokens, stop=stop))
    shares: list[Figure] = []
    same_in_all = 0
    for index, shape in enumerate(SHAPES):
        same = 0
        for group, size in enumerate(BATCHES):
            told(f"{shape.name}, {size} requests")
            # Groups change their batch from shape to shape.
            part = range((group + index) % len(BATCHES), len(texts), len(BATCHES))
            answers = _answers(
                model, drafter, shape, [texts[i] for i in part], tokens, size, stop, seed
            )
            same += sum(answer == plain[i] for answer, i in zip(answers, part, strict=True))
        shares.append(Figure(f"tree/identical_share/{shape.name}", same / len(texts), n=len(texts)))
        same_in_all += same
    answered = len(texts) * len(SHAPES)
    return [Figure("tree/identical_share", same_in_all / answered, n=answered), *shares]


def sampling_figures(draws: int, *, seed: int, told: Told) -> list[Figure]:
    """Return p of the chi-square test of sampled tokens: as they are, and with a planted fault.

    ``tree/sampling_p`` is about children drawn without replacement, ``tree/sampling_fixed_p`` about
    trees that are a function of the text.
    """
    model = tiny_llama(seed=seed, sharpness=_SHARPNESS)
    drafter = TableDrafter.noisy(model, prompt=_PROMPT, seed=seed, noise=0.7)
    law = pair_law(model, _PROMPT)
    options: dict[str, Any] = {"draws": draws, "seed": seed, **_SAMPLED}
    figures = []
    for name, grow, left_by in (
        ("tree/sampling_p", None, residual),
        ("tree/sampling_fixed_p", grow_beam, residual),
        ("tree/sampling_planted_p", None, not_renormalised),
    ):
        told(f"{name}, {draws} draws")
        counts = count_pairs(model, drafter, _PROMPT, grow=grow, left_by=left_by, **options)
        figures.append(Figure(name, chi_square_p(counts, law), n=draws))
    return figures


def speed_figures(rounds: int, tokens: int, *, seed: int, told: Told) -> list[Figure]:
    """Return ratios of our policy's speed to static shapes', by domain and load and over all."""
    path = model_path()
    model = load_target(str(path))
    prompts: dict[str, list[list[int]]] = {}
    for domain, text in held_out_texts(str(path), _SPEED_PROMPTS, seed=seed):
        prompts.setdefault(domain, []).append(text)
    cells = [
        Cell(domain, batch, texts) for domain, texts in prompts.items() for batch in _SPEED_BATCHES
    ]
    table = measure_speed(
        model, _drafter(), cells, tokens=tokens, rounds=rounds, stop=_stop_ids(model), seed=seed,
        told=told,
    )  # fmt: skip
    return table.figures(np.random.default_rng(seed))


def held_out_texts(path: str, prompts: int, *, seed: int) -> list[tuple[str, list[int]]]:
    """Return domain and token ids of prompts that no drafter was trained on, domains in turn.

    Parameters
    ----------
    path
        Folder of the model, for its tokenizer.
    prompts
        Per domain; domains that ask about an article are left out.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    domains = [domain for domain in DOMAINS if domain not in PASSAGE_DOMAINS]
    texts = []
    for number, domain in itertools.product(range(prompts), domains):
        held_out = HELD_OUT_EVERY * (number + 1) - 1
        prompt = training_prompt(domain, held_out, seed=seed)
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt.text}],
            add_generation_prompt=True,
            return_dict=False,
        )
        texts.append((domain, [int(token) for token in ids]))
    return texts


def _drafter() -> BackoffDrafter:
    return BackoffDrafter.load(backoff_files()[GENERAL])


def _answers(
    model: Any,
    drafter: BackoffDrafter,
    shape: Shape,
    texts: Sequence[tuple[str, list[int]]],
    tokens: int,
    batch: int,
    stop: tuple[int, ...],
    seed: int,
) -> list[list[int]]:
    config = ControlConfig(seed=seed)
    loop = ControlLoop(
        shape.policy(config), shape.capabilities(), config, clock_ns=time.monotonic_ns
    )
    longest = max((len(text) for _, text in texts), default=0)
    target = TreeTarget(model, max_requests=batch, capacity=longest + tokens + shape.nodes + 1)
    engine = TreeEngine(target, loop, drafter, grow=shape.grow, nodes=shape.nodes, seed=seed)
    return engine.run(
        [
            TreeRequest(prompt=text, max_tokens=tokens, domain=domain, stop=stop)
            for domain, text in texts
        ]
    )


def _stop_ids(model: Any) -> tuple[int, ...]:
    stop = model.generation_config.eos_token_id
    return tuple(stop) if isinstance(stop, list) else (int(stop),)
