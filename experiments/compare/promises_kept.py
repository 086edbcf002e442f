"""What became of promises in a comparison: attainment per class and goodput, per arm and target.

A request attains if its times to first token and per token are within what its client asked for,
the waiting before it was sent included; the batch class is promised nothing and attains by ending.
Goodput is the tokens of requests that attained over the time in which they and all others held a
seat, times the number of seats: in an engine that is kept full, tokens per second.

Intervals are a bootstrap over prompts: every arm is seen on the same draw, with all rounds of a
prompt. What the machine's noise does to every arm alike is not in them; ``k0-again`` shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import ADAPTIVE, Arm
from acclimate.experiments.compare.cells import Cell
from acclimate.experiments.compare.promised import CLASSES, TIGHT
from acclimate.experiments.compare.ratios import BEST
from acclimate.experiments.compare.rows import CellRow, RequestRow
from acclimate.experiments.figures import Figure
from acclimate.experiments.statistics import interval, resample

TELLING = (0.2, 0.95)
"""Attainments of some arm between which a cell tells arms apart."""


@dataclasses.dataclass(slots=True)
class Kept:
    """One cell's promises, for every arm.

    Parameters
    ----------
    cell
        Which; its scale is the tight class's target.
    arms
        In the order of the comparison.
    attainment
        By arm and class.
    goodput
        By arm, in tokens per second.
    leads
        Attainment of the tight class by the adaptive arm less that of others, and its goodput over
        theirs; ``best_static`` is chosen inside each draw.
    counts
        Whether some arm's tight attainment lies within `TELLING`.
    """

    cell: Cell
    arms: tuple[str, ...]
    attainment: dict[tuple[str, str], Figure]
    goodput: dict[str, Figure]
    leads: list[Figure]
    counts: bool

    def figures(self) -> list[Figure]:
        """Return everything under its name."""
        telling = Figure(f"slo/telling/{_point(self.cell)}", float(self.counts))
        return [*self.attainment.values(), *self.goodput.values(), *self.leads, telling]


def attained(request: RequestRow) -> bool:
    """Return whether a request got what it was promised; one that did not end got nothing."""
    if not request.finish or request.ttft_s is None:
        return False
    if request.ttft_target_s is not None and request.ttft_s > request.ttft_target_s:
        return False
    tpot_s = request.tpot_s
    return request.tpot_target_s is None or tpot_s is None or tpot_s <= request.tpot_target_s


def promises_kept(
    cell: Cell, rows: Sequence[CellRow], arms: Sequence[Arm], rng: np.random.Generator
) -> Kept:
    """Return what became of the promises of one cell.

    Parameters
    ----------
    cell
        With a scale, at a concurrency.
    rows
        Of that cell, of blocks that all arms ran.
    arms
        Of the comparison.
    rng
        Draws prompts.

    Raises
    ------
    ValueError
        The cell has no scale.
    """
    if cell.scale is None or cell.concurrency is None:
        raise ValueError(f"cell must have a scale and a concurrency, got {cell.name}")
    names = tuple(arm.name for arm in arms)
    sums = _Sums(rows, names)
    index = resample(len(sums.prompts), rng)
    # Of one class, prompts are drawn within it, the same for every arm.
    within = {
        kind: columns[resample(columns.size, rng)]
        for kind in CLASSES
        if (columns := np.flatnonzero(sums.kinds == kind)).size
    }
    point, n = _point(cell), len(sums.prompts)
    attainment, shares = {}, {}
    for at, arm in enumerate(names):
        for kind, own in within.items():
            columns = sums.kinds == kind
            met, total = sums.met[at], sums.total[at]
            draws = met[own].sum(axis=1) / total[own].sum(axis=1)
            value = float(met[columns].sum() / total[columns].sum())
            name = f"slo/{arm}/{kind}/{point}/attainment"
            attainment[arm, kind] = interval(name, value, draws, int(columns.sum()))
            shares[arm, kind] = (value, draws)
    speeds = cell.concurrency * sums.met_tokens.sum(axis=1) / sums.seconds.sum(axis=1)
    drawn = (
        cell.concurrency
        * sums.met_tokens[:, index].sum(axis=2)
        / sums.seconds[:, index].sum(axis=2)
    )
    goodput = {
        arm: interval(
            f"slo/{arm}/{point}/goodput_tokens_per_s", float(speeds[at]), drawn[at], n, "tokens/s"
        )
        for at, arm in enumerate(names)
    }
    tight = [shares[arm, TIGHT][0] for arm in names if (arm, TIGHT) in shares]
    return Kept(
        cell=cell,
        arms=names,
        attainment=attainment,
        goodput=goodput,
        leads=_leads(point, arms, shares, speeds, drawn, n, within[TIGHT].shape[1])
        if TIGHT in within
        else [],
        counts=any(TELLING[0] <= share <= TELLING[1] for share in tight),
    )


class _Sums:
    """Per arm and prompt: requests, those that attained, their tokens, and seconds in a seat."""

    def __init__(self, rows: Sequence[CellRow], arms: Sequence[str]) -> None:
        served = [(row.arm, request) for row in rows for request in row.counted]
        kinds = {request.prompt: request.slo_class for _, request in served}
        self.prompts = sorted(kinds)
        self.kinds = np.array([kinds[prompt] for prompt in self.prompts])
        column = {prompt: at for at, prompt in enumerate(self.prompts)}
        shape = (len(arms), len(self.prompts))
        self.total, self.met = np.zeros(shape), np.zeros(shape)
        self.met_tokens, self.seconds = np.zeros(shape), np.zeros(shape)
        for arm, request in served:
            if arm not in arms:
                continue
            at = arms.index(arm), column[request.prompt]
            met = attained(request)
            self.total[at] += 1
            self.met[at] += met
            self.met_tokens[at] += request.tokens * met
            if request.chunk_s:
                self.seconds[at] += request.chunk_s[-1] - request.due_s


def _leads(
    point: str,
    arms: Sequence[Arm],
    shares: dict[tuple[str, str], tuple[float, FloatArray]],
    speeds: FloatArray,
    drawn: FloatArray,
    prompts: int,
    tight: int,
) -> list[Figure]:
    names = [arm.name for arm in arms]
    if ADAPTIVE not in names:
        return []
    ours = names.index(ADAPTIVE)
    static = [at for at, arm in enumerate(arms) if arm.static]
    others = [name for name in names if name != ADAPTIVE]
    found = []
    mine, mine_draws = shares[ADAPTIVE, TIGHT]
    for name in others:
        value, draws = shares[name, TIGHT]
        figure = f"slo/lead/{ADAPTIVE}/{name}/{TIGHT}/{point}/attainment"
        found.append(interval(figure, mine - value, mine_draws - draws, tight))
        base = names.index(name)
        figure = f"slo/ratio/{ADAPTIVE}/{name}/{point}/goodput"
        found.append(_ratio(figure, speeds[ours], speeds[base], drawn[ours], drawn[base], prompts))
    if static:
        best = max(shares[names[at], TIGHT][0] for at in static)
        best_draws = np.max([shares[names[at], TIGHT][1] for at in static], axis=0)
        figure = f"slo/lead/{ADAPTIVE}/{BEST}/{TIGHT}/{point}/attainment"
        found.append(interval(figure, mine - best, mine_draws - best_draws, tight))
        figure = f"slo/ratio/{ADAPTIVE}/{BEST}/{point}/goodput"
        below, below_draws = speeds[static].max(), drawn[static].max(axis=0)
        found.append(_ratio(figure, speeds[ours], below, drawn[ours], below_draws, prompts))
    return found


def _ratio(
    name: str, above: float, below: float, draws: FloatArray, base: FloatArray, n: int
) -> Figure:
    if not below > 0:
        return Figure(name, None, n=n)
    if not (base > 0).all():
        return Figure(name, float(above / below), n=n)  # in some draw nobody attained
    return interval(name, float(above / below), draws / base, n)


def _point(cell: Cell) -> str:
    return f"x{cell.scale:g}"
