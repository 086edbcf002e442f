"""``acclimate bench drift``: how soon shifts of acceptance are noticed, and how often none is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from acclimate.experiments.bench.drift_peers import Peer, peers
from acclimate.experiments.bench.drift_streams import (
    BEFORE_TOKENS,
    Stream,
    first_order_limit,
    independent,
    known_threshold,
    live_like,
    shift_pairs,
    watch_acclimate,
    watch_known,
)
from acclimate.experiments.figures import (
    Figure,
    Meta,
    median_interval,
    print_figures,
    write_figures,
)

NAMED_PAIRS = ((0.8, 0.5), (0.8, 0.6), (0.7, 0.6), (0.6, 0.8))
RATES = (0.05, *(round(0.1 * tenth, 1) for tenth in range(1, 10)), 0.95)
CONCURRENCIES = (1, 8)
_OURS = "acclimate"
_KNOWN = "known_cusum"
_RANDOM_PAIRS = 20
_STRETCH_TOKENS = 1_000
_STABLE_TOKENS = 60_000
_PEER_SHARE = 0.2  # of seeds, for peers at random pairs
_LIVE_STABLE_TOKENS = 4_000
_LIVE_RATES = (0.3, 0.5, 0.7, 0.9)
_LIVE_LIMIT_TOKENS = 10_000
_KNOWN_TOKENS = 3_000_000
_SPARE_SEEDS = 5  # one more in so many, for streams with an early alarm
_ORDERS = 10

_Draw = Callable[[np.random.Generator, int], Stream]


@dataclasses.dataclass(frozen=True, slots=True)
class Delays:
    """What came of streams with a change.

    Parameters
    ----------
    tokens
        Tokens from the change to the alarm, both included, per stream without an early alarm; the
        limit where none came.
    missed
        How many those are.
    early_share
        Streams with an alarm before the change. They are counted apart, unless hardly any other is
        left.
    """

    tokens: list[float]
    missed: int
    early_share: float


def run_drift(
    *,
    json: Path | None = None,
    seed: int = 0,
    seeds: int = 300,
    recording: Path | None = None,
) -> list[Figure]:
    """Measure false alarms and delays of our detector and its peers.

    A stable stream counts up to its first alarm. ``arl_tokens`` is the tokens so counted per alarm,
    or a third of an alarm if there was none; ``alarm_share`` the alarms per 1,000-token stretch.
    A miss is a stream without an alarm within ten times the first-order limit, ln(10,000)/KL; it
    enters the median with that many tokens.

    Parameters
    ----------
    json
        Where the figures go.
    seed
        Of all streams.
    seeds
        Streams per figure; slow peers get a share of them, as their n says.
    recording
        Recorded answers; adds false alarms on their graded tokens with requests in random order.
    """
    others = peers()
    pairs = [*NAMED_PAIRS, *shift_pairs(np.random.default_rng([seed, 0]), _RANDOM_PAIRS)]
    ours = Peer(_OURS, watch_acclimate, stable_tokens=_STABLE_TOKENS)
    figures: list[Figure] = []
    arls: dict[float, float] = {}
    for rate in sorted({*RATES, *(before for before, _ in pairs)}):
        found = _stable_rate(ours, rate, seed, seeds)
        arls[rate] = found[0].value or 0.0
        if rate in RATES:
            figures += found
    for rate in RATES:
        for peer in others:
            figures += _stable_rate(peer, rate, seed, seeds)
    ratios = []
    fewer = [
        dataclasses.replace(peer, seeds_share=_PEER_SHARE * peer.seeds_share) for peer in others
    ]
    for before, after in pairs:
        beside = others if (before, after) in NAMED_PAIRS else fewer
        found, ratio = _pair(before, after, arls[before], [ours, *beside], seed, seeds)
        figures += found
        ratios.append(ratio)
    spread = ratios[len(NAMED_PAIRS) :]
    figures.append(Figure("drift/random_pairs/acclimate/worst_known_ratio", max(spread)))
    figures.append(Figure("drift/random_pairs/acclimate/known_ratio", float(np.median(spread))))
    figures += _live(ours, others, seed, seeds)
    if recording is not None:
        figures += _recorded(recording, [ours, *others[:2]], seed)
    print_figures(figures, title=f"Shifts of acceptance, {seeds} streams a figure")
    if json is not None:
        write_figures(json, figures, Meta("bench drift", seed=seed))
    return figures


def _stable_rate(peer: Peer, rate: float, seed: int, seeds: int) -> list[Figure]:
    def draw(rng: np.random.Generator, length: int) -> Stream:
        return independent(rng, rate, rate, 0, length)

    return stable(f"drift/{peer.name}/p{rate:g}", peer, draw, seed, seeds, peer.stable_tokens)


def stable(name: str, peer: Peer, draw: _Draw, seed: int, seeds: int, tokens: int) -> list[Figure]:
    """Measure false alarms on stable streams: tokens per alarm and alarms per stretch."""
    from scipy.stats import chi2  # type: ignore[import-untyped]

    alarms, exposure = 0, 0
    count = _count(peer, seeds)
    for index in range(count):
        found = peer.watch(draw(np.random.default_rng([seed, 1, index]), tokens), 0)
        alarms += bool(found)
        exposure += found[0] + 1 if found else tokens
    value = exposure / max(alarms, 1.0 / 3.0)
    low = 2.0 * exposure / float(chi2.ppf(0.975, 2 * alarms + 2))
    high = 2.0 * exposure / float(chi2.ppf(0.025, 2 * alarms)) if alarms else None
    return [
        Figure(f"{name}/arl_tokens", value, low, high, unit="tokens", n=count),
        Figure(f"{name}/alarm_share", min(alarms * _STRETCH_TOKENS / exposure, 1.0), n=count),
    ]


def delays(peer: Peer, draw: _Draw, seed: int, seeds: int, limit: int) -> Delays:
    """Measure how long after a change at `BEFORE_TOKENS` the alarm comes."""
    apart: list[float] = []
    tokens: list[float] = []
    early = 0
    count = _count(peer, seeds)
    count += count // _SPARE_SEEDS
    for index in range(count):
        stream = draw(np.random.default_rng([seed, 2, index]), BEFORE_TOKENS + limit)
        found = peer.watch(stream, BEFORE_TOKENS)
        hit = bool(found) and found[-1] >= BEFORE_TOKENS
        delay = float(found[-1] + 1 - BEFORE_TOKENS) if hit else math.inf
        premature = bool(found) and found[0] < BEFORE_TOKENS
        early += premature
        (apart if premature else tokens).append(delay)
    if 3 * len(tokens) < count:
        tokens += apart
    return Delays(
        tokens=[min(delay, float(limit)) for delay in tokens],
        missed=sum(math.isinf(delay) for delay in tokens),
        early_share=early / count,
    )


def _pair(
    before: float, after: float, arl_tokens: float, watched: list[Peer], seed: int, seeds: int
) -> tuple[list[Figure], float]:
    """Return the figures of a change, and our delay over that of the CUSUM that knows it."""
    limit = math.ceil(10.0 * first_order_limit(before, after))
    rng = np.random.default_rng([seed, 3])

    def draw(source: np.random.Generator, tokens: int) -> Stream:
        return independent(source, before, after, BEFORE_TOKENS, tokens)

    threshold = known_threshold(rng, before, after, arl_tokens, _KNOWN_TOKENS)
    known = Peer(_KNOWN, watch_known(before, after, threshold))
    figures: list[Figure] = []
    medians = {}
    for peer in [*watched, known]:
        name = f"drift/{before:g}-{after:g}/{peer.name}"
        found = _delay_figures(name, delays(peer, draw, seed, seeds, limit), rng)
        figures += found
        medians[peer.name] = found[0].value or math.nan
    ratio = medians[_OURS] / medians[_KNOWN]
    figures.append(Figure(f"drift/{before:g}-{after:g}/{_OURS}/known_ratio", ratio))
    return figures, ratio


def _delay_figures(name: str, found: Delays, rng: np.random.Generator) -> list[Figure]:
    n = len(found.tokens)
    return [
        median_interval(f"{name}/median_delay_tokens", found.tokens, rng, unit="tokens"),
        Figure(f"{name}/miss_share", found.missed / n, n=n),
        Figure(f"{name}/early_share", found.early_share, n=n),
    ]


def _live(ours: Peer, others: list[Peer], seed: int, seeds: int) -> Iterator[Figure]:
    """Measure on tokens whose requests have rates of their own; ours knows which is whose."""
    rng = np.random.default_rng([seed, 4])
    for concurrency in CONCURRENCIES:
        for peer in [ours, *others]:
            shares = []
            for rate in _LIVE_RATES:

                def still(
                    source: np.random.Generator,
                    tokens: int,
                    rate: float = rate,
                    concurrency: int = concurrency,
                ) -> Stream:
                    return live_like(source, rate, rate, 0, tokens, concurrency=concurrency)

                name = f"drift/live/c{concurrency}/{peer.name}"
                found = stable(
                    f"{name}/p{rate:g}",
                    peer,
                    still,
                    seed,
                    seeds,
                    min(peer.stable_tokens, _LIVE_STABLE_TOKENS),
                )
                shares.append(found[1].value or 0.0)
                yield from found
            yield Figure(f"{name}/alarm_share", max(shares), n=len(_LIVE_RATES))
        for before, after in NAMED_PAIRS:
            for at_once in (False, True):

                def shifted(
                    source: np.random.Generator,
                    tokens: int,
                    before: float = before,
                    after: float = after,
                    at_once: bool = at_once,
                    concurrency: int = concurrency,
                ) -> Stream:
                    return live_like(
                        source,
                        before,
                        after,
                        BEFORE_TOKENS,
                        tokens,
                        concurrency=concurrency,
                        at_once=at_once,
                    )

                case = "at_once" if at_once else "arrivals"
                yield from _delay_figures(
                    f"drift/live/c{concurrency}/{before:g}-{after:g}/{case}/{ours.name}",
                    delays(ours, shifted, seed, seeds, _LIVE_LIMIT_TOKENS),
                    rng,
                )


def _recorded(recording: Path, watched: list[Peer], seed: int) -> Iterator[Figure]:
    """Count alarms on recorded answers' graded tokens, requests in random order: all are false."""
    from acclimate.experiments.lab.graded import graded_tokens
    from acclimate.experiments.lab.recording import read_recording
    from acclimate.experiments.offsets import Lookup

    _, answers = read_recording(recording)
    for concurrency in CONCURRENCIES:
        alarms = dict.fromkeys((peer.name for peer in watched), 0)
        tokens = 0
        for order in range(_ORDERS):
            graded = graded_tokens(
                answers,
                Lookup(2, 4, 8),
                concurrency=concurrency,
                rng=np.random.default_rng([seed, 5, order]),
            )
            stream = Stream(graded.right, np.ascontiguousarray(graded.request))
            tokens += len(graded)
            for peer in watched:
                alarms[peer.name] += len(peer.watch(stream, len(graded)))
        for name, count in alarms.items():
            yield Figure(
                f"drift/recorded/c{concurrency}/{name}/alarms_per_10000_tokens",
                10_000.0 * count / tokens,
                n=_ORDERS,
            )


def _count(peer: Peer, seeds: int) -> int:
    return max(round(seeds * peer.seeds_share), 1)
