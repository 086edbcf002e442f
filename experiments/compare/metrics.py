"""What a client and an operator would look at, for one arm in one cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.figures import Figure
from acclimate.experiments.run_record import Run


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Parameters
    ----------
    name
        In figures.
    short
        In tables.
    value
        None or NaN where there is nothing to measure.
    """

    name: str
    short: str
    value: Callable[[Run], float | None]
    unit: str = ""
    pattern: str = "{:.1f}"

    def text(self, run: Run) -> str:
        """Return the value for people."""
        value = self.value(run)
        return "-" if value is None or not np.isfinite(value) else self.pattern.format(value)


def metric_figures(run: Run, where: str) -> list[Figure]:
    """Return every metric of a run, and its share of steps per depth.

    Parameters
    ----------
    where
        Arm and load, the end of the names.
    """
    n = int(run.tokens.shape[0])
    figures = [Figure(f"{m.name}/{where}", m.value(run), unit=m.unit, n=n) for m in METRICS]
    shares = enumerate(depth_shares(run))
    return figures + [
        Figure(f"depth_share/{where}/k{depth}", share, n=run.totals.steps)
        for depth, share in shares
        if share > 0
    ]


def depth_shares(run: Run) -> list[float]:
    """Return the share of steps at each depth, from 0 on."""
    steps = run.totals.depth_steps
    return [float(share) for share in steps / max(int(steps.sum()), 1)]


def _quantile_ms(values_s: FloatArray, share: float) -> float | None:
    known = values_s[np.isfinite(values_s)]
    return 1e3 * float(np.quantile(known, share)) if known.size else None


def _gap_ms(run: Run, share: float) -> float | None:
    gap_s = run.gaps.quantile_s(share)
    return None if gap_s is None else 1e3 * gap_s


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


METRICS = (
    Metric(
        "tokens_per_s",
        "tok/s",
        lambda run: _ratio(run.totals.committed + run.totals.first_tokens, run.duration_s),
        "tok/s",
    ),
    Metric(
        "decode_tokens_per_s",
        "decode",
        lambda run: _ratio(1e3 * run.totals.plain_tokens, run.totals.plain_ms),
        "tok/s",
    ),
    Metric(
        "prefill_time_share",
        "prefill",
        lambda run: _ratio(run.totals.duration_ms - run.totals.plain_ms, run.totals.duration_ms),
        pattern="{:.0%}",
    ),
    Metric("ttft_p50_ms", "TTFT p50", lambda run: _quantile_ms(run.ttft_s, 0.5), "ms", "{:.0f}"),
    Metric("ttft_p99_ms", "p99", lambda run: _quantile_ms(run.ttft_s, 0.99), "ms", "{:.0f}"),
    Metric("tpot_p50_ms", "TPOT p50", lambda run: _quantile_ms(run.tpot_s, 0.5), "ms"),
    Metric("tpot_p99_ms", "p99", lambda run: _quantile_ms(run.tpot_s, 0.99), "ms"),
    Metric("itl_p50_ms", "ITL p50", lambda run: _gap_ms(run, 0.5), "ms"),
    Metric("itl_p99_ms", "p99", lambda run: _gap_ms(run, 0.99), "ms"),
    Metric(
        "wasted_verify_share",
        "wasted",
        lambda run: _ratio(run.totals.verified - run.totals.accepted, run.totals.verified),
        pattern="{:.0%}",
    ),
    Metric("switches", "switches", lambda run: float(run.totals.switches), pattern="{:.0f}"),
)
"""In the order of tables. Tokens per second are what clients got, fillers included; decode tokens
per second and the prefill share tell steps with a prompt in them from those without."""
