"""Ratios of arms in one cell, with intervals over prompts.

What is estimated. In closed loop an arm's speed is the sum of its tokens after the first over the
sum of the seconds in which they were decoded, over prompts, where a request's seconds are those of
the steps that it decoded in and that held no prompt: decode time apart. At a constant concurrency
this is the engine's decode throughput divided by the concurrency, for this mix of prompts. In open
loop, where arrivals set the throughput, the speed is the reciprocal of the median time per token
after the first (p50 TPOT), prompts and queues included. A ratio is speed over speed, above 1 is
better. Rounds that repeat a prompt are aggregated before, see `PairedTimes`.

The interval is a bootstrap over prompts: how the ratio would vary with other prompts of the same
kind. Since the machine's noise hits all prompts of a run alike, which a draw of prompts cannot
show, rounds are drawn anew as well; all arms see the same draws. What is left unsaid is how the
ratio would vary with another machine or model. The ratio of k0 to itself is the check.

Arms in one process are compared there. Between processes (``none``, ``stock-kN``) a ratio holds for
these very processes, which may differ for their whole life although they do the same: where their
memory happens to lie is in no draw. They share the memory of their weights, which is most of it;
what is left shows in the ratio of one ``none`` process to another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.compare.arms import (
    ADAPTIVE,
    AGAIN,
    BASE,
    CONTROLLED,
    GUARANTEED,
    NONE,
    NONE_AGAIN,
    Arm,
)
from acclimate.experiments.compare.cells import Cell
from acclimate.experiments.compare.prompt_table import PromptTable
from acclimate.experiments.figures import Figure
from acclimate.experiments.measures import HARM_RATIO
from acclimate.experiments.statistics import (
    inferiority_p,
    interval,
    median_speeds,
    resample,
    speeds,
)

BEST = "best_static"
MARGINS = {BASE: 0.98, NONE: 0.97, BEST: 0.98}
"""Ratios that an arm must pass to count as not inferior, by base."""
_ROUND_DRAWS = 200
TWIN_SLACK = 0.05
"""η: by what share a request may be slower than its twin."""


@dataclasses.dataclass(frozen=True, slots=True)
class Contrast:
    """One ratio: the sample's, and those of the resamples."""

    arm: str
    base: str
    cell: Cell
    figure: Figure
    p: float | None = None


class CellRatios:
    """All ratios of one cell, on one draw of prompts.

    Parameters
    ----------
    cell
        Which.
    table
        Its measurements.
    arms
        Of the comparison.
    rng
        Draws prompts.

    Attributes
    ----------
    speeds, drawn_speeds
        Shape (arms,) and (arms, draws): of the sample, and of the resamples.
    """

    def __init__(
        self, cell: Cell, table: PromptTable, arms: Sequence[Arm], rng: np.random.Generator
    ) -> None:
        self.cell = cell
        self.table = table
        self.arms = arms
        self._rng = rng
        self._n = len(table.prompts)
        times = table.tpot if cell.rate is not None else table.decode_tpot
        self._typical_s = times.typical_s()
        self._redrawn_s = [times.typical_s(rng) for _ in range(_ROUND_DRAWS)]
        everything = np.arange(self._n, dtype=np.int64)
        self.speeds = self._speeds(self._typical_s, everything)
        self.drawn_speeds = self._drawn(everything)

    @property
    def best_static(self) -> str:
        """Return the fixed depth that was fastest in the sample."""
        rows = self._static_rows
        return self.table.arms[rows[int(np.argmax(self.speeds[rows]))]]

    def contrasts(self) -> list[Contrast]:
        """Return every arm against every base that says something."""
        return [self._contrast(arm, base) for arm in self.arms for base in self._bases(arm)]

    def a_a(self) -> Figure:
        """Return k0 against itself: what the instrument shows where there is no difference."""
        name = f"{self._prefix}aa/ratio/{self.cell.load}"
        return self._contrast_figure(name, AGAIN, BASE)[0]

    def processes(self) -> Figure | None:
        """Return ``none`` against a second process of the same, if they took part."""
        if NONE_AGAIN not in self.table.arms:
            return None
        name = f"{self._prefix}aa/processes/ratio/{self.cell.load}"
        return self._contrast_figure(name, NONE_AGAIN, NONE)[0]

    def harmed(self) -> list[Figure]:
        """Return per arm the share of prompts whose time per token is over 5 % longer than k0's.

        In closed loop without the time of prompts, as in ratios: there k0's requests, which are
        all of one length, get their prompts together and are spared those of others.
        """
        slower = self._typical_s > HARM_RATIO * self._typical_s[self.table.row(BASE)]
        index = resample(self._n, self._rng)
        figures = []
        for arm in self.arms:
            if arm.name != BASE:
                row = slower[self.table.row(arm.name)]
                name = f"{self._prefix}harmed/{arm.name}/{self.cell.load}"
                draws = row[index].mean(axis=1)
                figures.append(interval(name, float(row.mean()), draws, self._n))
        return figures

    def behind_twin(self) -> list[Figure]:
        """Return per policy how far its requests fell behind their twins, which are k0's requests.

        ``harmed_share``: the share of prompts whose time per token is longer than k0's by more than
        `TWIN_SLACK`, less the same share of k0 against itself. ``worst_lag``: by what share the
        worst prompt is slower; k0's own worst is beside it. ``cost``: the share of the adaptive
        arm's speed that the guarantee costs, where the arm with it ran too.
        """
        lag = self._typical_s / self._typical_s[self.table.row(BASE)] - 1.0
        behind = lag > TWIN_SLACK
        floor = behind[self.table.row(AGAIN)]
        index = resample(self._n, self._rng)
        prefix = f"twin/engine/{TWIN_SLACK:g}"
        figures = []
        for arm in self.arms:
            if arm.depth is not None and arm.name != AGAIN:
                continue
            row = self.table.row(arm.name)
            if arm.name != AGAIN:
                beyond = behind[row].astype(np.float64) - floor
                name = f"{prefix}/harmed_share/{arm.name}/{self.cell.load}"
                draws = beyond[index].mean(axis=1)
                figures.append(interval(name, float(beyond.mean()), draws, self._n))
            name = f"{prefix}/worst_lag/{arm.name}/{self.cell.load}"
            figures.append(Figure(name, float(lag[row].max()), n=self._n))
        if {ADAPTIVE, GUARANTEED} <= set(self.table.arms):
            kept, free = self.table.row(GUARANTEED), self.table.row(ADAPTIVE)
            cost = 1.0 - float(self.speeds[kept] / self.speeds[free])
            draws = 1.0 - self.drawn_speeds[kept] / self.drawn_speeds[free]
            figures.append(interval(f"{prefix}/cost/{self.cell.load}", cost, draws, self._n))
        return figures

    def domains(self, arm: str) -> list[Figure]:
        """Return an arm against k0 in every domain of a mix, and in the worst of them.

        Prompts are drawn within each domain; the worst is chosen inside each draw. The smallest of
        several noisy ratios is below 1 without any difference: see the same for ``k0-again``.
        """
        rows = [self.table.row(arm), self.table.row(BASE)]
        figures, ratios, draws = [], [], []
        for domain in dict.fromkeys(self.table.domains):
            columns = np.array(self.table.columns(domain), dtype=np.int64)
            ours, base = self._speeds(self._typical_s, columns)[rows]
            ratios.append(float(ours / base))
            drawn = self._drawn(columns)[rows]
            draws.append(drawn[0] / drawn[1])
            name = f"domain/{domain}/ratio/{arm}/{BASE}/{self.cell.load}"
            figures.append(interval(name, ratios[-1], draws[-1], columns.size))
        worst = np.min(draws, axis=0)
        name = f"worst_domain/{arm}/{BASE}/{self.cell.load}"
        return [*figures, interval(name, min(ratios), worst, self._n)]

    @property
    def _prefix(self) -> str:
        return f"domain/{self.cell.domain}/" if self.cell.domain else ""

    @property
    def _static_rows(self) -> list[int]:
        return [self.table.row(arm.name) for arm in self.arms if arm.static]

    def _drawn(self, columns: IntArray) -> FloatArray:
        """Return speeds for draws of rounds and of prompts among ``columns``: (arms, draws)."""
        index = columns[resample(columns.size, self._rng)]
        parts = np.array_split(index, len(self._redrawn_s))
        return np.concatenate(
            [self._speeds(s, part) for s, part in zip(self._redrawn_s, parts, strict=True)], axis=1
        )

    def _speeds(self, typical_s: FloatArray, index: IntArray) -> FloatArray:
        if self.cell.rate is not None:
            return median_speeds(typical_s, index)
        return speeds(self.table.tokens, typical_s * self.table.tokens, index)

    def _bases(self, arm: Arm) -> list[str]:
        names = [other.name for other in self.arms]
        if arm.name in (NONE, NONE_AGAIN, AGAIN):
            return []
        bases = [NONE] if NONE in names else []
        if arm.name != BASE:
            bases.append(BASE)
        if arm.depth is None:
            bases.append(BEST)
        if arm.engine == CONTROLLED:
            passed_over = (CONTROLLED, NONE, NONE_AGAIN)
            bases += [other.name for other in self.arms if other.engine not in passed_over]
        return bases

    def _contrast(self, arm: Arm, base: str) -> Contrast:
        name = f"{self._prefix}ratio/{arm.name}/{base}/{self.cell.load}"
        figure, draws = self._contrast_figure(name, arm.name, base)
        p = None
        if arm.depth is None and base in MARGINS and not self.cell.domain:
            p = inferiority_p(draws, MARGINS[base])
        return Contrast(arm.name, base, self.cell, figure, p)

    def _contrast_figure(self, name: str, arm: str, base: str) -> tuple[Figure, FloatArray]:
        ours = self.table.row(arm)
        if base == BEST:
            # Chosen inside each draw: a depth picked beforehand would be compared with where it is
            # not the best, and flatter us there.
            rows = self._static_rows
            below, below_draws = self.speeds[rows].max(axis=0), self.drawn_speeds[rows].max(axis=0)
        else:
            row = self.table.row(base)
            below, below_draws = self.speeds[row], self.drawn_speeds[row]
        draws = self.drawn_speeds[ours] / below_draws
        return interval(name, float(self.speeds[ours] / below), draws, self._n), draws
