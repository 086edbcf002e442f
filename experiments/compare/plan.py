"""How much every round can hold: an estimate of the time, and what is thinned to keep to it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from acclimate.experiments.compare.cells import Cell

# Jobs in a block, as a multiple of the concurrency: short enough that arms alternate before the
# machine's speed has drifted, long enough that the engine is filled for most of it.
_REFILLS = 3
# In open loop: jobs in a slice at least, and the share of capacity from which queues matter.
_LEAST_STREAM, _HEAVY_RATE = 8, 0.8


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """What a warm-up said of the engine at one concurrency.

    Parameters
    ----------
    tokens_per_s
        Of all requests together, prompts included.
    tokens
        Mean output tokens of a request.
    latency_s
        Mean time from sending to the last token.
    """

    tokens_per_s: float
    tokens: float
    latency_s: float

    @property
    def requests_per_s(self) -> float:
        """Requests that can be served per second."""
        return self.tokens_per_s / self.tokens


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell, and how it is thinned.

    Parameters
    ----------
    slices
        In each round one slice of the prompts is sent, so that after so many rounds all were.
    every
        It runs in every so-manieth round.
    offset
        The first round in which it runs.
    blocks
        Into how many parts its prompts are cut, between which the arms alternate.
    cost_s
        Estimated seconds of all arms when it runs.
    passes
        Runs of an arm in every block.
    others
        Cells of the same traffic with other targets: only arms that are told of them run there.
    """

    cell: Cell
    slices: int
    every: int
    offset: int
    blocks: int
    cost_s: float
    passes: int = 1
    others: tuple[Cell, ...] = ()

    def runs_in(self, round: int) -> bool:
        """Whether the cell runs in a round, counted from 0."""
        return round % self.every == self.offset % self.every

    def turn(self, round: int) -> int:
        """Return how often the cell ran before a round: which slice it sends."""
        return round // self.every


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """All cells, thinned to what the budget allows."""

    cells: tuple[PlannedCell, ...]
    rounds: int
    arms: int

    @property
    def total_s(self) -> float:
        """Estimated seconds of all rounds."""
        return sum(self.round_s(number) for number in range(self.rounds))

    def round_s(self, number: int) -> float:
        """Estimated seconds of one round."""
        return sum(c.cost_s for c in self.cells if c.runs_in(number))

    @property
    def words(self) -> str:
        """What is thinned, for people; empty if nothing is."""
        parts = [f"{c.cell.name} sends 1/{c.slices} of the prompts a round"
                 for c in self.cells if c.slices > 1]  # fmt: skip
        parts += [f"{c.cell.name} runs every {c.every} rounds" for c in self.cells if c.every > 1]
        return "; ".join(parts)


def make_plan(
    cells: Sequence[Cell],
    *,
    prompts: Mapping[str, int],
    paces: Mapping[int, Pace],
    capacity_per_s: float,
    arms: int,
    rounds: int,
    budget_s: float,
    told: int = 0,
) -> Plan:
    """Thin the dearest cells, step by step, until all rounds fit into the budget or nothing is left.

    Cells send slices of the prompts, as long as a slice fills the engine, or in open loop is a
    stream at all. Those near capacity, where queues need a long stream to build up, and those of
    one domain, which has few prompts, run in fewer rounds instead. First down to two measurements
    per prompt, then, if that is not enough, to one or fewer.

    Parameters
    ----------
    prompts
        How many there are per domain.
    paces
        By concurrency; an open loop takes that of the highest.
    capacity_per_s
        Requests per second that k0 serves at most.
    arms, rounds
        How many there are.
    budget_s
        What all rounds together may take.
    told
        How many arms there are whom promises move: cells that differ by targets alone are one to
        all others.

    Examples
    --------
    >>> cells = [Cell(concurrency=1), Cell(rate=0.9)]
    >>> pace = {1: Pace(tokens_per_s=20.0, tokens=60.0, latency_s=3.0)}
    >>> plan = make_plan(cells, prompts={"a": 30, "b": 30}, paces=pace, capacity_per_s=1.0, arms=5,
    ...                  rounds=6, budget_s=4_500.0)
    >>> plan.words, round(plan.total_s)
    ('c1 sends 1/3 of the prompts a round', 3890)
    """
    others: dict[Cell, tuple[Cell, ...]] = {}
    for cell in cells:
        like = next((first for first in others if first.scale and cell.scale), None)
        if like is None:
            others[cell] = ()
        else:
            others[like] += (cell,)
    cells = list(others)
    thinning = [1] * len(cells)

    def planned(index: int, cell: Cell) -> PlannedCell:
        thin, alike = thinning[index], others[cell]
        count, passes = _count(cell, prompts), arms + told * len(alike)
        one = _planned(cell, thin, index, count, paces, capacity_per_s)
        return dataclasses.replace(one, cost_s=passes * one.cost_s, passes=passes, others=alike)

    def plan() -> Plan:
        return Plan(tuple(planned(i, cell) for i, cell in enumerate(cells)), rounds, arms)

    for most in (max(rounds // 2, 1), rounds):
        while (made := plan()).total_s > budget_s:
            thinner = [
                (made.cells[i].cost_s / made.cells[i].every, i)
                for i, cell in enumerate(cells)
                if thinning[i] < most and _may_thin(cell, thinning[i] + 1, _count(cell, prompts))
            ]
            if not thinner:
                break
            thinning[max(thinner)[1]] += 1
    return plan()


def _count(cell: Cell, prompts: Mapping[str, int]) -> int:
    return prompts[cell.domain] if cell.domain else sum(prompts.values())


def _may_thin(cell: Cell, thin: int, count: int) -> bool:
    return _skips_rounds(cell) or cell.concurrency is None or count // thin >= cell.concurrency


def _skips_rounds(cell: Cell) -> bool:
    """Whether a cell is thinned by running in fewer rounds, not by sending fewer prompts."""
    return bool(cell.domain) or (cell.rate is not None and cell.rate >= _HEAVY_RATE)


def _planned(
    cell: Cell,
    thin: int,
    index: int,
    count: int,
    paces: Mapping[int, Pace],
    capacity_per_s: float,
) -> PlannedCell:
    slices, every = (1, thin) if _skips_rounds(cell) else (thin, 1)
    if cell.concurrency is None and slices > 1:
        slices = max(min(thin, count // _LEAST_STREAM), 1)
        every = math.ceil(thin / slices)
    sent = count / slices
    if cell.concurrency is None:
        assert cell.rate is not None
        cost_s = sent / (cell.rate * capacity_per_s) + paces[max(paces)].latency_s
        return PlannedCell(cell, slices, every, index, 1, cost_s)
    pace = paces[cell.concurrency]
    blocks = max(round(sent / (_REFILLS * cell.concurrency)), 1)
    # The last jobs of a block run among fillers: half a request longer than the tokens say.
    filling_s = blocks * pace.latency_s / 2 if cell.concurrency > 1 else 0.0
    cost_s = sent / pace.requests_per_s + filling_s
    return PlannedCell(cell, slices, every, index, blocks, cost_s)
