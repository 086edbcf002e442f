"""``acclimate bench soak``: memory stays flat whatever clients send, for as long as they send it."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

from acclimate.experiments.bench.soak_learners import soak_learners
from acclimate.experiments.figures import Figure, Meta, print_figures, write_figures
from acclimate.experiments.scripted_scheduler import ScriptedScheduler

_BATCH = 4
_WARM_UP_SHARE = 0.1


def run_soak(
    *,
    steps: int = 100_000,
    graded_tokens: int = 10_000_000,
    json: Path | None = None,
    seed: int = 0,
) -> list[Figure]:
    """Run short requests with hostile labels; compare resident memory after warm-up and at the end.

    Then feed the learners alone, see `soak_learners`.

    Parameters
    ----------
    steps
        Of the whole loop.
    graded_tokens
        Of the learners.

    Raises
    ------
    RuntimeError
        The system does not tell a process its resident memory.
    """
    engine = ScriptedScheduler(
        _BATCH, max_depth=5, seed=seed, output_tokens=(1, 12), labels=hostile_labels
    )
    warm_up = int(steps * _WARM_UP_SHARE)
    before_mib = 0.0
    for step in range(warm_up + steps):
        if step == warm_up:
            before_mib = resident_mib()
        engine.step()
        engine.queue.take()
    growth_mib = resident_mib() - before_mib
    engine.check()
    figures = [
        Figure("soak/memory_growth_mib", growth_mib, unit="MiB", n=steps),
        Figure("soak/requests", engine.bridge.counters.requests, unit="requests", n=steps),
    ]
    figures += soak_learners(graded_tokens, resident_mib, seed=seed)
    print_figures(
        figures,
        title=f"{steps} steps and {graded_tokens} graded tokens, ever new labels, hostile rows",
    )
    if json is not None:
        write_figures(json, figures, Meta("bench soak", engine="scripted", seed=seed))
    return figures


def hostile_labels(number: int) -> Any:
    """Return extra arguments as a careless or hostile client sends them, new for each request.

    Examples
    --------
    >>> hostile_labels(0)["acclimate_domain"]
    'unique-0'
    """
    kind = number % 8
    unique = f"unique-{number}"
    return (
        {"acclimate_domain": unique, "acclimate_tenant": unique},
        {"acclimate_domain": unique * 1_000},
        {"acclimate_domain": f"\x00\x1b[2J\ud800{number}", "acclimate_tenant": "\n" * 60},
        {"acclimate_domain": number, "acclimate_tenant": [unique] * 10},
        {"acclimate_slo_ttft_ms": float("nan"), "acclimate_slo_tpot_ms": -1e308},
        {"acclimate_slo_e2e_ms": unique, "acclimate_domain": None},
        {f"acclimate_{unique}": unique, "acclimate_trust_domain": unique},
        None if number % 16 == 7 else unique,
    )[kind]


def resident_mib() -> float:
    """Return the process's resident memory."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise RuntimeError(f"resident memory must be readable, got {error}") from error
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
