"""The cells of a comparison: the loads under which every arm is measured, and who is sent when."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.arrivals import burst_arrivals, poisson_arrivals
from acclimate.integrations.vllm.closed_loop import Job

POISSON, BURSTS = "poisson", "bursts"
_BURST_FACTOR, _BURST_SHARE, _BURST_EVERY_REQUESTS = 4.0, 0.2, 13.0


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One load: a constant concurrency, or a rate as a share of capacity.

    Parameters
    ----------
    concurrency
        Requests in the engine at all times; None in open loop.
    rate
        Arrivals as a share of measured capacity; None in closed loop.
    domain
        The only domain that is sent; empty for the mix.
    scale
        The tight class's time per token as a multiple of k0's, where classes are promised something;
        None where nothing is.
    """

    concurrency: int | None = None
    rate: float | None = None
    domain: str = ""
    scale: float | None = None

    @property
    def load(self) -> str:
        """The last part of figure names.

        >>> Cell(concurrency=4).load, Cell(rate=0.6).load, Cell(concurrency=8, scale=0.75).load
        ('c4', 'rate0.6', 'c8x0.75')
        """
        load = f"rate{self.rate:g}" if self.concurrency is None else f"c{self.concurrency}"
        return load if self.scale is None else f"{load}x{self.scale:g}"

    @property
    def name(self) -> str:
        """The load, and the domain if there is one."""
        return f"{self.domain}/{self.load}" if self.domain else self.load


def build_cells(
    concurrencies: Sequence[int], rates: Sequence[float], domains: Sequence[str] = ()
) -> tuple[Cell, ...]:
    """Return all cells: closed loop, open loop, and single domains in closed loop if wanted."""
    return (
        *(Cell(concurrency=concurrency) for concurrency in concurrencies),
        *(Cell(rate=rate) for rate in rates),
        *(Cell(concurrency=c, domain=domain) for c in concurrencies for domain in domains),
    )


def promised_cells(concurrency: int, scales: Sequence[float]) -> tuple[Cell, ...]:
    """Return a cell for each target of the tight class, all at one concurrency."""
    return tuple(Cell(concurrency=concurrency, scale=scale) for scale in scales)


def by_turns(jobs: Sequence[Job]) -> list[Job]:
    """Order jobs so that every domain comes once before any comes twice.

    >>> jobs = [Job(key, (1,), 2, truth=key[0]) for key in ("a1", "a2", "b1")]
    >>> [job.key for job in by_turns(jobs)]
    ['a1', 'b1', 'a2']
    """
    seen: dict[str, int] = defaultdict(int)
    ranked: list[tuple[int, int]] = []
    for at, job in enumerate(jobs):
        ranked.append((seen[job.truth], at))
        seen[job.truth] += 1
    return [jobs[at] for _, at in sorted(ranked)]


def jobs_of(
    cell: Cell, jobs: Sequence[Job], *, round: int, slices: int, rng: np.random.Generator
) -> list[Job]:
    """Return what a cell sends in a round, shuffled: all jobs, or one of several slices in turn.

    Every slice takes its jobs from as many domains as there are.

    Parameters
    ----------
    jobs
        All of the comparison.
    slices
        How many rounds it takes until every job was sent.
    rng
        Draws the order.
    """
    own = by_turns([job for job in jobs if cell.domain in ("", job.truth)])
    bounds = np.linspace(0, len(own), slices + 1).round().astype(int)
    at = round % slices
    part = own[bounds[at] : bounds[at + 1]]
    return [part[int(i)] for i in rng.permutation(len(part))]


def arrivals_of(
    kind: str, count: int, rate_per_s: float, rng: np.random.Generator, recorded_s: FloatArray
) -> FloatArray:
    """Return the times of ``count`` arrivals at a mean rate, in seconds.

    Parameters
    ----------
    kind
        ``poisson``; ``bursts``: a fifth of the time at four times the rate of the rest; anything
        else: as in a trace.
    recorded_s
        Arrival times of the trace. A window of it is drawn, and stretched to the mean rate, so that
        its gaps keep their proportions.

    Raises
    ------
    ValueError
        The window of the trace is a single moment.

    Examples
    --------
    >>> times_s = arrivals_of("bursts", 2000, 5.0, np.random.default_rng(0), np.zeros(0))
    >>> bool(4.5 < 2000 / times_s[-1] < 5.5)
    True
    """
    if kind == POISSON:
        return poisson_arrivals(count, rate_per_s, rng)
    if kind == BURSTS:
        every_s = _BURST_EVERY_REQUESTS / rate_per_s
        mean_factor = 1 + _BURST_SHARE * (_BURST_FACTOR - 1)
        return burst_arrivals(
            count,
            rate_per_s / mean_factor,
            rng,
            burst_factor=_BURST_FACTOR,
            every_s=every_s,
            burst_s=_BURST_SHARE * every_s,
        )
    begin = int(rng.integers(0, recorded_s.shape[0] - count))
    window_s = recorded_s[begin : begin + count + 1]
    gaps_s = np.diff(window_s)
    if not gaps_s.sum() > 0:
        raise ValueError(f"arrivals must be apart in time, got {count + 1} at once in the trace")
    times_s: FloatArray = np.cumsum(gaps_s) * (count / rate_per_s) / float(gaps_s.sum())
    return times_s
