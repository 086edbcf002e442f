"""What a client and an operator would look at, for one arm in one cell."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.figures import Figure
from acclimate.experiments.run_record import Run

COLUMNS = ("tok/s", "decode tok/s", "prompts", "TTFT", "TPOT", "ITL", "wasted", "switches")
"""Headings of `texts`; "prompts" is the share of time in steps that hold prompts."""


def measure(run: Run) -> dict[str, float | None]:
    """Return every metric by name; None where there is nothing to measure.

    Tokens per second are what clients got in the run's time, fillers included; decode tokens per
    second, and the share of time of the other steps, tell decoding and prompts apart. A verified
    draft token is wasted if it was not accepted. Switches are changes of a step's depth.
    """
    totals = run.totals
    plain_ms, all_ms = totals.plain_ms, totals.duration_ms
    return {
        "tokens_per_s": _ratio(totals.committed + totals.first_tokens, run.duration_s),
        "decode_tokens_per_s": _ratio(1e3 * totals.plain_tokens, plain_ms),
        "prefill_time_share": _ratio(all_ms - plain_ms, all_ms),
        "ttft_p50_ms": _quantile_ms(run.ttft_s, 0.5),
        "ttft_p99_ms": _quantile_ms(run.ttft_s, 0.99),
        "tpot_p50_ms": _quantile_ms(run.tpot_s, 0.5),
        "tpot_p99_ms": _quantile_ms(run.tpot_s, 0.99),
        "itl_p50_ms": _gap_ms(run, 0.5),
        "itl_p99_ms": _gap_ms(run, 0.99),
        "wasted_verify_share": _ratio(totals.verified - totals.accepted, totals.verified),
        "switches": float(totals.switches),
    }


def metric_figures(run: Run, where: str) -> list[Figure]:
    """Return every metric of a run, and its share of steps per depth.

    Parameters
    ----------
    where
        Arm and load, the end of the names.
    """
    n = int(run.tokens.shape[0])
    figures = [
        Figure(f"{name}/{where}", value, unit=_unit(name), n=n)
        for name, value in measure(run).items()
    ]
    return figures + [
        Figure(f"depth_share/{where}/k{depth}", share, n=run.totals.steps)
        for depth, share in enumerate(depth_shares(run))
        if share > 0
    ]


def texts(run: Run) -> list[str]:
    """Return the metrics for people, one text per column of `COLUMNS`."""
    found = measure(run)

    def show(name: str, pattern: str) -> str:
        value = found[name]
        return "-" if value is None else pattern.format(value)

    return [
        show("tokens_per_s", "{:.1f}"),
        show("decode_tokens_per_s", "{:.1f}"),
        show("prefill_time_share", "{:.0%}"),
        f"{show('ttft_p50_ms', '{:.0f}')}/{show('ttft_p99_ms', '{:.0f}')}",
        f"{show('tpot_p50_ms', '{:.1f}')}/{show('tpot_p99_ms', '{:.1f}')}",
        f"{show('itl_p50_ms', '{:.1f}')}/{show('itl_p99_ms', '{:.1f}')}",
        show("wasted_verify_share", "{:.0%}"),
        show("switches", "{:.0f}"),
    ]


def depth_shares(run: Run) -> list[float]:
    """Return the share of steps at each depth, from 0 on."""
    steps = run.totals.depth_steps
    return [float(share) for share in steps / max(int(steps.sum()), 1)]


def _unit(name: str) -> str:
    if name.endswith("_per_s"):
        return "tok/s"
    return "ms" if name.endswith("_ms") else ""


def _quantile_ms(values_s: FloatArray, share: float) -> float | None:
    known = values_s[np.isfinite(values_s)]
    return 1e3 * float(np.quantile(known, share)) if known.size else None


def _gap_ms(run: Run, share: float) -> float | None:
    gap_s = run.gaps.quantile_s(share)
    return None if gap_s is None else 1e3 * gap_s


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None
