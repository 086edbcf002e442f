"""Do trees leave the text alone? Every shape's answers against plain decoding's."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.policy import Policy
from acclimate.controller.records import Capabilities
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.drafters.choices import GENERAL, backoff_files
from acclimate.experiments.drafters.prompts import (
    DOMAINS,
    HELD_OUT_EVERY,
    PASSAGE_DOMAINS,
    training_prompt,
)
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.tree_cells import IDENTITY, TreeCell, TreeRow
from acclimate.experiments.peers.static_tree import StaticTree
from acclimate.experiments.testbed import model_path
from acclimate.experiments.trees.backoff import BackoffDrafter
from acclimate.experiments.trees.draft import Grower, grow_beam, grow_caterpillar
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.plain import decode_plain
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.target import TreeTarget, load_target

BATCHES = (1, 2, 4, 8)
PROMPT_DOMAINS = tuple(domain for domain in DOMAINS if domain not in PASSAGE_DOMAINS)
"""Domains whose prompts need no article."""

_PROMPTS_PER_CELL = 2  # of each domain


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


def identity_cells(prompts: int, tokens: int, *, seed: int) -> list[TreeCell]:
    """Return cells that cover so many held-out prompts of each domain."""
    return [
        TreeCell(
            key=f"{IDENTITY}/{first}",
            options={
                "numbers": list(range(first, min(first + _PROMPTS_PER_CELL, prompts))),
                "tokens": tokens,
                "seed": seed,
            },
        )
        for first in range(0, prompts, _PROMPTS_PER_CELL)
    ]


def identity_cell(key: str, *, numbers: Sequence[int], tokens: int, seed: int) -> TreeRow:
    """Answer prompts plainly and under every shape; count equal answers and all.

    Each shape has one of `BATCHES` in turn, so that over four cells every shape meets every batch.

    Parameters
    ----------
    numbers
        Which held-out prompts of each domain.
    tokens
        Output tokens per answer.
    """
    path = str(model_path())
    model, drafter = _model(path), general_drafter()
    texts = held_out_texts(path, numbers, seed=seed)
    stop = stop_ids(model)
    plain = [decode_plain(model, text, tokens, stop=stop) for _, text in texts]
    counts: dict[str, list[float | None]] = {}
    for index, shape in enumerate(SHAPES):
        batch = BATCHES[(numbers[0] // _PROMPTS_PER_CELL + index) % len(BATCHES)]
        answers = _answers(model, drafter, shape, texts, tokens, batch, stop, seed)
        same = sum(mine == other for mine, other in zip(answers, plain, strict=True))
        counts[shape.name] = [float(same), float(len(texts))]
    return TreeRow(key=key, numbers=counts)


def identity_figures(rows: Sequence[TreeRow]) -> list[Figure]:
    """Return the share of answers that are plain decoding's, over all and by shape."""
    shares, totals = [], [0.0, 0.0]
    for shape in SHAPES:
        same, answered = (
            sum(column) for column in zip(*(row.column(shape.name) for row in rows), strict=True)
        )
        shares.append(
            Figure(f"tree/identical_share/{shape.name}", same / answered, n=int(answered))
        )
        totals = [totals[0] + same, totals[1] + answered]
    return [Figure("tree/identical_share", totals[0] / totals[1], n=int(totals[1])), *shares]


def held_out_texts(path: str, numbers: Sequence[int], *, seed: int) -> list[tuple[str, list[int]]]:
    """Return domain and token ids of prompts that no drafter was trained on, domains in turn.

    Parameters
    ----------
    path
        Folder of the model, for its tokenizer.
    numbers
        Which of each domain's, from 0; domains that ask about an article are left out.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = []
    for number, domain in itertools.product(numbers, PROMPT_DOMAINS):
        held_out = HELD_OUT_EVERY * (number + 1) - 1
        prompt = training_prompt(domain, held_out, seed=seed)
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt.text}],
            add_generation_prompt=True,
            return_dict=False,
        )
        texts.append((domain, [int(token) for token in ids]))
    return texts


def general_drafter() -> BackoffDrafter:
    """Return the back-off model for all domains."""
    return BackoffDrafter.load(backoff_files()[GENERAL])


def stop_ids(model: Any) -> tuple[int, ...]:
    """Return the token ids that end an answer of a model."""
    stop = model.generation_config.eos_token_id
    return tuple(stop) if isinstance(stop, list) else (int(stop),)


@cache
def _model(path: str) -> Any:
    return load_target(path)


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
