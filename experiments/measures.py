"""Every metric of a run, and what two runs of one workload say of each other."""

from __future__ import annotations

import dataclasses

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.figures import Figure
from acclimate.experiments.run_record import Run

HARM_RATIO = 1.05  # without a target: slower than in the base run by more than this is harm
_SHARES = (0.5, 0.99)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The metrics of one run; None where nothing could be measured, never NaN.

    Parameters
    ----------
    tokens_per_s
        Output tokens that clients got per second of the run, prompts and idle time included.
    decode_tokens_per_s
        Tokens per second of the steps without prefill.
    prefill_time_share
        Share of engine time in steps that hold prompts.
    ttft_p50_ms, ttft_p99_ms
        Time to the first token.
    tpot_p50_ms, tpot_p99_ms
        (last token - first token) / (tokens - 1) of finished requests.
    itl_p50_ms, itl_p99_ms
        Gap between outputs. An output can hold several tokens, so that this is not TPOT.
    acceptance_length
        Tokens per request and step, bonus token included, over steps in which a request decoded.
    wasted_verify_share
        Share of verified draft tokens that were not accepted.
    verified_per_request
        Draft tokens verified per request and step.
    switches
        Changes of the depth from one step to the next.
    goodput_tokens_per_s, slo_attainment
        Tokens per second of the finished requests that met all their targets, and their share
        among finished requests that have one; None without targets.
    depth_shares, verify_len_shares
        Share of steps at each depth, and of requests' steps at each verify length, from 0 on.
    """

    tokens_per_s: float | None
    decode_tokens_per_s: float | None
    prefill_time_share: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    tpot_p50_ms: float | None
    tpot_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    acceptance_length: float | None
    wasted_verify_share: float | None
    verified_per_request: float | None
    switches: int
    goodput_tokens_per_s: float | None
    slo_attainment: float | None
    depth_shares: tuple[float, ...]
    verify_len_shares: tuple[float, ...]

    def figures(self, where: str) -> list[Figure]:
        """Return the metrics as figures whose names begin with ``where``."""
        figures = [
            Figure(f"{where}/{field.name}", getattr(self, field.name), unit=_unit(field.name))
            for field in dataclasses.fields(self)
            if not field.name.endswith("_shares")
        ]
        for name, shares in (
            ("depth_share", self.depth_shares),
            ("verify_len_share", self.verify_len_shares),
        ):
            figures += [Figure(f"{where}/{name}/k{k}", share) for k, share in enumerate(shares)]
        return figures


def measure(run: Run) -> Measures:
    """Return the metrics of a run."""
    totals, lens = run.totals, run.verify_lens
    tokens = int(run.tokens.sum())
    # A request that is cut off by the end of the run says nothing of a whole answer's pace.
    tpot_s = run.tpot_s[run.finished]
    ttft_ms = _quantiles_ms(run.ttft_s)
    tpot_ms = _quantiles_ms(tpot_s)
    met = met_targets(run)
    judged = np.isfinite(met) & run.finished
    request_steps = None if lens is None else int(lens.sum())
    return Measures(
        tokens_per_s=_ratio(tokens, run.duration_s),
        decode_tokens_per_s=_ratio(1e3 * totals.plain_tokens, totals.plain_ms),
        prefill_time_share=_ratio(totals.duration_ms - totals.plain_ms, totals.duration_ms),
        ttft_p50_ms=ttft_ms[0],
        ttft_p99_ms=ttft_ms[1],
        tpot_p50_ms=tpot_ms[0],
        tpot_p99_ms=tpot_ms[1],
        itl_p50_ms=_gap_ms(run, _SHARES[0]),
        itl_p99_ms=_gap_ms(run, _SHARES[1]),
        acceptance_length=_ratio(totals.committed, request_steps),
        wasted_verify_share=_ratio(totals.verified - totals.accepted, totals.verified),
        verified_per_request=_ratio(totals.verified, request_steps),
        switches=totals.switches,
        goodput_tokens_per_s=(
            _ratio(float(run.tokens[judged & (met > 0)].sum()), run.duration_s)
            if judged.any()
            else None
        ),
        slo_attainment=_ratio(float(met[judged].sum()), int(judged.sum())),
        depth_shares=_shares(totals.depth_steps),
        verify_len_shares=() if lens is None else _shares(lens),
    )


def met_targets(run: Run) -> FloatArray:
    """Return 1 where a request met all its targets, 0 where not, NaN where it has none."""
    met: FloatArray = np.full(run.tokens.shape, np.nan)
    for values, targets in (
        (run.ttft_s, run.ttft_target_s),
        (run.tpot_s, run.tpot_target_s),
        (run.e2e_s, run.e2e_target_s),
    ):
        if targets is None:
            continue
        # An answer of one token has no pace that could miss a target.
        holds = np.where(np.isnan(values) & (run.tokens > 0), True, values <= targets)
        met = np.where(targets > 0, np.fmin(met, holds), met)
    return met


def harmed_share(run: Run, base: Run) -> float | None:
    """Return the share of requests that speculation harmed, paired with the base run.

    A request with targets is harmed if it met them in ``base`` and not in ``run``; one without, if
    its time per token is more than 5 % longer than in ``base``. None if no pair can be judged.

    Notes
    -----
    In a real engine two runs of the same arm differ too: report the share between them beside it.
    """
    pair = _pair(run, base)
    if pair is None:
        return None
    here, there = pair
    met, met_before = met_targets(run)[here], met_targets(base)[there]
    slow = run.tpot_s[here] > HARM_RATIO * base.tpot_s[there]
    harmed = np.where(np.isnan(met), slow, (met == 0) & (met_before == 1))
    judged = np.isfinite(met) | np.isfinite(run.tpot_s[here] + base.tpot_s[there])
    return _ratio(float((harmed & judged).sum()), int(judged.sum()))


def domain_ratios(run: Run, base: Run) -> dict[str, float]:
    """Return each domain's speed against the base run: its time per token there over that here.

    Requests that finished in both runs are compared, all their tokens after the first together.
    """
    pair = _pair(run, base)
    if pair is None:
        return {}
    here, there = pair
    ratios = {}
    for index, name in enumerate(run.domain):
        inside = run.domain_of[here] == index
        pace = _seconds_per_token(run, here[inside])
        before = _seconds_per_token(base, there[inside])
        if pace and before:
            ratios[name] = before / pace
    return ratios


def worst_domain(run: Run, base: Run) -> tuple[str, float] | None:
    """Return the domain that fares worst against the base run, and its ratio of speeds."""
    ratios = domain_ratios(run, base)
    return min(ratios.items(), key=lambda item: item[1]) if ratios else None


def speed_ratio(run: Run, base: Run) -> float | None:
    """Return tokens per second of ``run`` over those of ``base``."""
    speed, before = measure(run).tokens_per_s, measure(base).tokens_per_s
    return None if speed is None or not before else speed / before


def _pair(run: Run, base: Run) -> tuple[IntArray, IntArray] | None:
    """Return the indices of the requests that finished in both runs; None if there are none."""
    here, there = np.flatnonzero(run.finished), np.flatnonzero(base.finished)
    _, i, j = np.intersect1d(run.request[here], base.request[there], return_indices=True)
    return (here[i], there[j]) if i.size else None


def _seconds_per_token(run: Run, rows: IntArray) -> float | None:
    several = rows[run.tokens[rows] > 1]
    seconds = float((run.last_token_s[several] - run.first_token_s[several]).sum())
    return _ratio(seconds, int((run.tokens[several] - 1).sum()))


def _quantiles_ms(values_s: FloatArray) -> list[float | None]:
    known = values_s[np.isfinite(values_s)]
    if not known.size:
        return [None for _ in _SHARES]
    return [1e3 * float(value) for value in np.quantile(known, _SHARES)]


def _gap_ms(run: Run, share: float) -> float | None:
    gap_s = run.gaps.quantile_s(share)
    return None if gap_s is None else 1e3 * gap_s


def _shares(counts: IntArray) -> tuple[float, ...]:
    total = int(counts.sum())
    return tuple(float(count) / total for count in counts) if total else ()


def _ratio(above: float, below: float | None) -> float | None:
    return float(above) / below if below else None


def _unit(name: str) -> str:
    if name.endswith("_per_s"):
        return "tok/s"
    return "ms" if name.endswith("_ms") else ""
