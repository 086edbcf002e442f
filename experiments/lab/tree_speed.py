"""Tokens per second of tree shapes on the real model, arms in alternation in one process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, FloatArray
from acclimate.experiments.figures import Figure, median_interval, ratio_interval
from acclimate.experiments.lab.tree_cells import SPEED, TreeCell, TreeRow
from acclimate.experiments.trees.arms import tree_arm_policy
from acclimate.experiments.trees.draft import NextTokens
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.target import TreeTarget

ADAPTIVE = "adaptive_tree"
STATICS = ("0x1x1", "2x1x2", "4x1x4", "3x2x6", "5x3x12")
"""Static boxes: depth, width and nodes; the first verifies nothing."""

LOADS = (1, 8)
PROMPTS = (3, 16)
"""Requests at a time, and prompts of a domain at each."""

_DEPTH, _WIDTH, _NODES = 8, 4, 32
_ENGINE = Capabilities(
    max_depth=_DEPTH, depths=tuple(range(_DEPTH + 1)), max_width=_WIDTH, hindsight=True
)


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One domain at one load: its prompts as token ids, and how many are in service."""

    domain: str
    batch: int
    prompts: Sequence[Sequence[int]]

    @property
    def name(self) -> str:
        """Domain and load."""
        return f"{self.domain}/c{self.batch}"


def speed_cells(rounds: int) -> list[TreeCell]:
    """Return a cell for each round; a `SpeedSession` runs them."""
    return [TreeCell(key=f"{SPEED}/{number}") for number in range(rounds)]


class SpeedSession:
    """Serves all cells with every arm in turn, round after round.

    A policy lives through all rounds, so that ours meets domains and loads that shift from cell to
    cell. Before the first round every other domain is served to warm up, which is not kept. Steps
    count while as many requests are in service as the cell says: its last answers, with nobody left
    to take a place that is free, are another load, and a shape that serves unequally would be judged
    by them.

    Parameters
    ----------
    model, drafter
        The target and the drafter.
    cells
        In the order in which they are served.
    tokens
        Output tokens per answer.
    stop
        Token ids that end an answer.
    seed
        Of the policies.
    arms
        Names, ours first.
    """

    def __init__(
        self,
        model: Any,
        drafter: NextTokens,
        cells: Sequence[Cell],
        *,
        tokens: int,
        stop: tuple[int, ...] = (),
        seed: int = 0,
        arms: Sequence[str] = (ADAPTIVE, *STATICS),
    ) -> None:
        self.cells, self.arms = tuple(cells), tuple(arms)
        self._tokens, self._stop, self._rounds = tokens, stop, 0
        longest = max(len(prompt) for cell in cells for prompt in cell.prompts)
        target = TreeTarget(
            model,
            max_requests=max(cell.batch for cell in cells),
            capacity=longest + tokens + _NODES + 1,
        )
        config = ControlConfig(seed=seed)
        self._engines = [
            TreeEngine(
                target,
                ControlLoop(
                    tree_arm_policy(arm, config, _ENGINE), _ENGINE, config,
                    clock_ns=time.monotonic_ns,
                ),
                drafter,
                nodes=_NODES,
                seed=seed,
            )
            for arm in arms
        ]  # fmt: skip

    def run(self, cell: TreeCell) -> TreeRow:
        """Run a round; the first one is preceded by a shorter one that warms up."""
        every = range(len(self.cells))
        if not self._rounds:
            self._round([at for at in every if at // len(LOADS) % 2 == 0])
        return speed_row(cell.key, self.arms, self.cells, self._round(every))

    def _round(self, served: Iterable[int]) -> FloatArray:
        """Return tokens, seconds, steps of requests and verified nodes, shape (4, arms, cells)."""
        sums = np.zeros((4, len(self.arms), len(self.cells)))
        for at in served:
            for offset in range(len(self.arms)):
                # Who goes first changes, for the machine's speed does.
                arm = (offset + self._rounds) % len(self.arms)
                sums[:, arm, at] = self._serve(self._engines[arm], self.cells[at])
        self._rounds += 1
        return sums

    def _serve(self, engine: TreeEngine, cell: Cell) -> FloatArray:
        """Return a cell's tokens, seconds, steps of requests and verified nodes, at its load."""
        sums = np.zeros(4)
        engine.concurrency = cell.batch
        engine.submit(
            TreeRequest(prompt=prompt, max_tokens=self._tokens, domain=cell.domain, stop=self._stop)
            for prompt in cell.prompts
        )
        for step in engine.steps():
            if step.decode_requests == cell.batch and step.latency_ns:
                sums += (
                    step.committed.sum(),
                    step.latency_ns / 1e9,
                    step.decode_requests,
                    step.verified_tokens,
                )
        engine.finished.clear()
        return sums


def speed_row(key: str, arms: Sequence[str], cells: Sequence[Cell], sums: FloatArray) -> TreeRow:
    """Return a round as a row."""
    columns = ("tokens", "seconds", "request_steps", "verified")
    return TreeRow(
        key=key,
        numbers={name: values.ravel().tolist() for name, values in zip(columns, sums, strict=True)},
        names={"arms": list(arms), "cells": [cell.name for cell in cells]},
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SpeedTable:
    """Sums of each arm in each cell and round, shape (arms, cells, rounds)."""

    arms: tuple[str, ...]
    cells: tuple[str, ...]
    tokens: FloatArray
    seconds: FloatArray
    request_steps: FloatArray
    verified: FloatArray

    @classmethod
    def of(cls, rows: Sequence[TreeRow]) -> SpeedTable:
        """Join rounds."""
        arms, cells = tuple(rows[0].names["arms"]), tuple(rows[0].names["cells"])
        shape = (len(rows), len(arms), len(cells))
        tokens, seconds, steps, verified = (
            np.moveaxis(np.array([row.column(name) for row in rows]).reshape(shape), 0, -1)
            for name in ("tokens", "seconds", "request_steps", "verified")
        )
        return cls(arms, cells, tokens, seconds, steps, verified)

    def figures(self, rng: np.random.Generator) -> list[Figure]:
        """Return ratios of our speed to the best static shape's, by cell and over all cells.

        The best static shape is the best in hindsight: the one with the highest median. Over all
        cells it is one and the same everywhere, and rounds count with all their tokens and seconds.
        Beside it stands what the best shape of each cell would have made of the stream.
        """
        ours = self.arms.index(ADAPTIVE)
        others = [arm for arm in range(len(self.arms)) if arm != ours]
        speeds = self.tokens / self.seconds
        middle = np.median(speeds, axis=2)
        figures = []
        best_of = [max(others, key=lambda arm: float(middle[arm, at])) for at in
                   range(len(self.cells))]  # fmt: skip
        for at, cell in enumerate(self.cells):
            domain, _, load = cell.partition("/")
            name = f"tree/{domain}/adaptive_to_best_static/{load}"
            figures.append(ratio_interval(name, speeds[ours, at], speeds[best_of[at], at], rng))
        for domain in dict.fromkeys(cell.partition("/")[0] for cell in self.cells):
            own = [at for at, cell in enumerate(self.cells) if cell.startswith(f"{domain}/")]
            ratios = [speeds[ours, at] / speeds[best_of[at], at] for at in own]
            figures.append(
                median_interval(
                    f"tree/{domain}/adaptive_to_best_static", np.concatenate(ratios), rng
                )
            )
        whole = self.tokens.sum(axis=1) / self.seconds.sum(axis=1)
        best = max(others, key=lambda arm: float(np.median(whole[arm])))
        name = "tree/mixed/adaptive_to_best_single_static"
        figures.append(ratio_interval(name, whole[ours], whole[best], rng))
        figures += [
            ratio_interval(
                f"tree/mixed/adaptive_to_static/{self.arms[arm]}", whole[ours], whole[arm], rng
            )
            for arm in others
        ]
        every = range(len(self.cells))
        ideal = self.tokens[best_of, every].sum(axis=0) / self.seconds[best_of, every].sum(axis=0)
        figures.append(
            ratio_interval(
                "tree/mixed/best_static_of_each_to_best_single_static", ideal, whole[best], rng
            )
        )
        return figures
