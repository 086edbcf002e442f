"""What a comparison is asked to do, checked before an engine starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import Arm, parse_arms
from acclimate.experiments.compare.cells import BURSTS, POISSON
from acclimate.experiments.drafters.choices import NGRAM, drafter
from acclimate.experiments.readers.arrival_files import read_arrivals
from acclimate.experiments.readers.spec_bench import Prompt, read_spec_bench

DTYPES = ("float32", "bfloat16", "float16")
TRACE = "trace"
_NO_RATE = "none"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Options of ``acclimate compare``, as given on the command line.

    Parameters
    ----------
    arms, concurrency, rate
        Lists by comma; ``rate`` may be ``none``.
    prompts, limit
        A file in Spec-Bench's format, and prompts per category.
    rounds, tokens
        Rounds at most, and output tokens per prompt.
    arrivals
        ``poisson``, ``bursts`` or the path of an arrival trace.
    depth
        The engine's ``num_speculative_tokens``.
    by_domain
        Whether to add cells with a single domain.
    max_minutes
        What everything together may take.
    drafter
        Name of what drafts, see `acclimate.experiments.drafters.choices.drafter`.
    own_weights
        Whether every engine process has its weights in memory of its own, instead of all in the
        same.
    trace
        Where the controlled engine's trace goes, with token hashes: every arm on the same traffic,
        for ``acclimate replay --policy``. None: no trace.
    slo
        Whether clients ask for classes of service, at one concurrency; then there is no open loop.
    slo_scale
        Times per token of the tight class, as multiples of k0's, by comma.
    """

    arms: str
    prompts: Path
    limit: int
    rounds: int
    tokens: int
    concurrency: str = "1,4,16"
    rate: str = "0.3,0.6,0.9,1.05"
    arrivals: str = POISSON
    depth: int = 8
    dtype: str = "float32"
    by_domain: bool = False
    max_minutes: float = 75.0
    own_weights: bool = False
    drafter: str = NGRAM
    trace: Path | None = None
    slo: bool = False
    slo_scale: str = "0.75,0.9,1.1"
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """The same, read and checked."""

    options: CompareOptions
    arms: tuple[Arm, ...]
    prompts: tuple[Prompt, ...]
    concurrencies: tuple[int, ...]
    rates: tuple[float, ...]
    arrivals: str
    recorded_s: FloatArray
    scales: tuple[float, ...] = ()

    @property
    def domains(self) -> tuple[str, ...]:
        """Return the categories, in the file's order."""
        return tuple(dict.fromkeys(prompt.domain for prompt in self.prompts))


def read_task(options: CompareOptions) -> Task:
    """Read the files that the options name, and check everything.

    Raises
    ------
    ValueError
        An arm or the drafter is unknown, an arm is too deep, a concurrency or rate is out of range, a file is of the
        wrong kind, or nothing in it can be used.
    FileNotFoundError
        A file is missing.
    """
    for name, least in (("limit", 1), ("rounds", 1), ("tokens", 2), ("depth", 1)):
        if (value := getattr(options, name)) < least:
            raise ValueError(f"{name} must be >= {least}, got {value}")
    if not options.max_minutes > 0:
        raise ValueError(f"max-minutes must be > 0, got {options.max_minutes:g}")
    if options.dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {options.dtype!r}")
    drafter(options.drafter)
    if options.trace is not None and options.trace.exists():
        raise ValueError(f"trace must be a new file, got {options.trace}, which is there")
    arms = parse_arms(options.arms, max_depth=options.depth)
    concurrencies = tuple(int(value) for value in _numbers(options.concurrency, "concurrency"))
    if any(str(c) not in _parts(options.concurrency) for c in concurrencies):
        raise ValueError(f"concurrency must be whole numbers, got {options.concurrency!r}")
    rates = () if options.rate == _NO_RATE else _numbers(options.rate, "rate")
    scales = _numbers(options.slo_scale, "slo-scale") if options.slo else ()
    if options.slo and (len(concurrencies) > 1 or rates or options.by_domain):
        raise ValueError(
            "with slo there must be one concurrency, no rate and no by-domain, "
            f"got concurrency {options.concurrency!r}, rate {options.rate!r}"
        )
    prompts = read_spec_bench(options.prompts, limit=options.limit)
    if not prompts.value:
        raise ValueError(f"{options.prompts.name} must hold prompts, got none that can be used")
    kind, recorded_s = options.arrivals, np.zeros(0)
    if rates and kind not in (POISSON, BURSTS):
        kind, recorded_s = TRACE, read_arrivals(kind).value.arrival_s
        if recorded_s.shape[0] < len(prompts.value) + 2:
            raise ValueError(
                f"arrivals must be at least {len(prompts.value) + 2}, one per prompt and some, "
                f"got {recorded_s.shape[0]}"
            )
    return Task(options, arms, prompts.value, concurrencies, rates, kind, recorded_s, scales)


def _parts(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",")]


def _numbers(text: str, what: str) -> tuple[float, ...]:
    """Read ascending-or-not, distinct numbers above 0."""
    try:
        values = tuple(float(part) for part in _parts(text))
    except ValueError:
        values = ()
    if not values or not all(0 < value < 10_000 for value in values):
        raise ValueError(f"{what} must be numbers above 0 by comma, got {text!r}")
    if len(set(values)) != len(values):
        raise ValueError(f"{what} must be named once each, got {text!r}")
    return values
