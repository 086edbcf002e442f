"""Draws the requests that a scenario describes: when they arrive, how long they are, what they want."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.arrivals import burst_arrivals, poisson_arrivals, staggered_arrivals
from acclimate.experiments.readers.arrival_files import read_arrivals
from acclimate.experiments.simulation.scenario import Scenario
from acclimate.experiments.simulation.scenario_sections import (
    FileArrivals,
    Length,
    LengthsSection,
)
from acclimate.experiments.workload import Workload


def scenario_workload(scenario: Scenario, rng: np.random.Generator) -> Workload:
    """Return a scenario's requests."""
    arrivals, domains = scenario.arrivals, scenario.domains
    shares = np.array([domain.share for domain in domains])
    shares = shares / shares.sum()
    staggered: IntArray | None = None
    if isinstance(arrivals, FileArrivals):
        trace = read_arrivals(scenario.folder / arrivals.path).value
        arrival_s = trace.arrival_s[: arrivals.requests] / arrivals.speed
        prompt = trace.prompt_tokens[: arrivals.requests]
        output = trace.output_tokens[: arrivals.requests]
    elif arrivals.kind == "staggered":
        arrival_s, staggered = staggered_arrivals(
            arrivals.duration_s,
            arrivals.rate_per_s * shares,
            rng,
            every_s=arrivals.every_s,
            peak_factor=arrivals.peak_factor,
        )
    else:
        n = arrivals.requests
        if arrivals.kind == "closed":
            arrival_s = np.zeros(n)
        elif arrivals.kind == "poisson":
            arrival_s = poisson_arrivals(n, arrivals.rate_per_s, rng)
        else:
            arrival_s = burst_arrivals(
                n,
                arrivals.rate_per_s,
                rng,
                burst_factor=arrivals.burst_factor,
                every_s=arrivals.every_s,
                burst_s=arrivals.burst_s,
            )
    n = arrival_s.shape[0]
    if not isinstance(arrivals, FileArrivals):
        lengths = scenario.lengths or LengthsSection()
        prompt = _lengths(lengths.prompt_tokens, n, rng)
        output = _lengths(lengths.output_tokens, n, rng)
    if staggered is None:
        staggered = np.asarray(rng.choice(len(domains), size=n, p=shares), dtype=np.int64)
    domain_of = staggered
    for index, domain in enumerate(domains):
        inside = domain_of == index
        if domain.prompt_tokens is not None:
            prompt[inside] = _lengths(domain.prompt_tokens, int(inside.sum()), rng)
        if domain.output_tokens is not None:
            output[inside] = _lengths(domain.output_tokens, int(inside.sum()), rng)
    declared = np.array([i if d.declared else -1 for i, d in enumerate(domains)], dtype=np.int64)
    return Workload(
        arrival_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=output,
        domain=tuple(domain.name for domain in domains),
        domain_of=domain_of,
        label_of=declared[domain_of],
        tpot_s=_targets([domain.tpot_slo_ms for domain in domains], domain_of),
        ttft_s=_targets([domain.ttft_slo_ms for domain in domains], domain_of),
        e2e_s=_targets([domain.e2e_slo_ms for domain in domains], domain_of),
        slo_class=tuple(domain.slo_class for domain in domains),
        tenant=tuple(domain.tenant for domain in domains),
        tenant_of=domain_of,
        trust_domain=tuple(domain.trust_domain for domain in domains),
        trust_of=domain_of,
    )


def _lengths(length: int | Length, n: int, rng: np.random.Generator) -> IntArray:
    if isinstance(length, int):
        return np.full(n, length, dtype=np.int64)
    variance = np.log1p(length.variation**2)
    drawn = rng.lognormal(np.log(length.mean) - 0.5 * variance, np.sqrt(variance), size=n)
    whole: IntArray = np.maximum(np.rint(drawn), 1.0).astype(np.int64)
    return whole


def _targets(of_domain: list[float | None], domain_of: IntArray) -> FloatArray | None:
    if all(target is None for target in of_domain):
        return None
    seconds = np.array([np.nan if target is None else target / 1e3 for target in of_domain])
    return seconds[domain_of]
