"""Tokens per second of tree shapes on the real model, arms in alternation in one process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, FloatArray
from acclimate.experiments.figures import Figure, ratio_interval
from acclimate.experiments.trees.arms import tree_arm_policy
from acclimate.experiments.trees.draft import NextTokens
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.target import TreeTarget

ADAPTIVE = "adaptive_tree"
STATICS = ("0x1x1", "2x1x2", "4x1x4", "3x2x6", "5x3x12")
"""Static boxes: depth, width and nodes; the first verifies nothing."""

_DEPTH, _WIDTH, _NODES = 8, 4, 32
_ENGINE = Capabilities(
    max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=_WIDTH, hindsight=True
)

Told = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One domain at one load: its prompts as token ids, and how many are in service."""

    domain: str
    batch: int
    prompts: Sequence[Sequence[int]]


class SpeedTable:
    """Tokens and seconds of each arm in each cell and round.

    Parameters
    ----------
    arms, cells, rounds
        Names, domains with loads, and repetitions.
    """

    def __init__(self, arms: Sequence[str], cells: Sequence[Cell], rounds: int) -> None:
        self.arms = tuple(arms)
        self.cells = tuple(cells)
        shape = (len(arms), len(cells), rounds)
        self.tokens: FloatArray = np.zeros(shape)
        self.seconds: FloatArray = np.zeros(shape)

    def figures(self, rng: np.random.Generator) -> list[Figure]:
        """Return ratios of our speed to the best static shape's, by cell and over all cells.

        The best static shape is the best in hindsight: the one with the highest median. Over all
        cells it is one and the same everywhere, and rounds count with all their tokens and seconds.
        """
        ours = self.arms.index(ADAPTIVE)
        others = [arm for arm in range(len(self.arms)) if arm != ours]
        speeds = self.tokens / self.seconds
        figures = []
        for at, cell in enumerate(self.cells):
            best = max(others, key=lambda arm: float(np.median(speeds[arm, at])))
            name = f"tree/{cell.domain}/adaptive_to_best_static/c{cell.batch}"
            figures.append(ratio_interval(name, speeds[ours, at], speeds[best, at], rng))
        whole = self.tokens.sum(axis=1) / self.seconds.sum(axis=1)
        best = max(others, key=lambda arm: float(np.median(whole[arm])))
        figures.append(
            ratio_interval(
                "tree/mixed/adaptive_to_best_single_static", whole[ours], whole[best], rng
            )
        )
        for arm in others:
            name = f"tree/mixed/adaptive_to_static/{self.arms[arm]}"
            figures.append(ratio_interval(name, whole[ours], whole[arm], rng))
        return figures


def measure_speed(
    model: Any,
    drafter: NextTokens,
    cells: Sequence[Cell],
    *,
    tokens: int,
    rounds: int,
    stop: tuple[int, ...] = (),
    seed: int = 0,
    told: Told = lambda line: None,
) -> SpeedTable:
    """Serve all cells with every arm in turn, round after round.

    A policy lives through all rounds, so that ours meets domains and loads that shift from cell to
    cell. The first round warms up and is not kept.

    Parameters
    ----------
    model, drafter
        The target and the drafter.
    cells
        In the order in which they are served.
    tokens
        Output tokens per answer.
    rounds
        Kept.
    stop
        Token ids that end an answer.
    """
    arms = (ADAPTIVE, *STATICS)
    table = SpeedTable(arms, cells, rounds)
    longest = max(len(prompt) for cell in cells for prompt in cell.prompts)
    target = TreeTarget(
        model,
        max_requests=max(cell.batch for cell in cells),
        capacity=longest + tokens + _NODES + 1,
    )
    config = ControlConfig(seed=seed)
    engines = [
        TreeEngine(
            target,
            ControlLoop(
                tree_arm_policy(arm, config, _ENGINE), _ENGINE, config, clock_ns=time.monotonic_ns
            ),
            drafter,
            nodes=_NODES,
            seed=seed,
        )
        for arm in arms
    ]
    for turn in range(rounds + 1):
        for at, cell in enumerate(cells):
            for offset in range(len(arms)):
                # Who goes first changes, for the machine's speed does.
                arm = (offset + turn) % len(arms)
                told(f"round {turn} of {rounds}, {cell.domain} at {cell.batch}, {arms[arm]}")
                committed, seconds = _serve(engines[arm], cell, tokens, stop)
                if turn:
                    table.tokens[arm, at, turn - 1] = committed
                    table.seconds[arm, at, turn - 1] = seconds
    return table


def _serve(engine: TreeEngine, cell: Cell, tokens: int, stop: tuple[int, ...]) -> tuple[int, float]:
    """Serve a cell; return tokens and seconds of its steps."""
    before = dataclasses.replace(engine.tally)
    engine.concurrency = cell.batch
    engine.run(
        [
            TreeRequest(prompt=prompt, max_tokens=tokens, domain=cell.domain, stop=stop)
            for prompt in cell.prompts
        ]
    )
    engine.finished.clear()
    tally = engine.tally
    return tally.committed - before.committed, (tally.time_ns - before.time_ns) / 1e9
