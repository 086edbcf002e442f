"""One cell's measurements, a column per prompt: rounds aggregated, arms in rows."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import BASE
from acclimate.experiments.compare.rows import CellRow, RequestRow
from acclimate.experiments.run_record import BoolArray


@dataclasses.dataclass(frozen=True, slots=True)
class PromptTable:
    """What every arm took for every prompt, in seconds; medians over rounds.

    Parameters
    ----------
    arms
        Names of the rows.
    prompts, domains
        Of the columns: every prompt that each arm served, with at least two tokens.
    tokens
        Shape (prompts,): tokens after the first that ``k0`` wrote.
    decode_s
        Shape (arms, prompts): time of these tokens in steps without prompts, at the request's own
        decode time per token.
    tpot_s, ttft_s
        Shape (arms, prompts): time per token after the first with everything in it, and time to
        the first.
    left_out
        Prompts that are not in the table.
    """

    arms: tuple[str, ...]
    prompts: tuple[str, ...]
    domains: tuple[str, ...]
    tokens: FloatArray
    decode_s: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    left_out: int

    def row(self, arm: str) -> int:
        """Return the row of an arm."""
        return self.arms.index(arm)

    def columns(self, domain: str) -> list[int]:
        """Return the columns of a domain."""
        return [at for at, name in enumerate(self.domains) if name == domain]


def prompt_table(rows: Sequence[CellRow], arms: Sequence[str]) -> PromptTable:
    """Gather the rows of one cell.

    A prompt's value for an arm is the median over the rounds that sent it, so that a stall of the
    machine in one of them does not count. A prompt that some arm has no value for is left out for
    all arms, since they are compared prompt by prompt.

    Parameters
    ----------
    rows
        Of one cell; arms that are not among ``arms`` are passed over.
    arms
        Names of the rows wanted, ``k0`` among them.
    """
    seen: dict[str, dict[str, list[RequestRow]]] = {arm: defaultdict(list) for arm in arms}
    domain_of: dict[str, str] = {}
    for row in rows:
        if row.arm in seen:
            for request in row.requests:
                seen[row.arm][request.prompt].append(request)
                domain_of[request.prompt] = request.domain

    def table(value: Callable[[RequestRow], float | None]) -> FloatArray:
        return np.array([
            [_median([value(request) for request in seen[arm][prompt]]) for prompt in domain_of]
            for arm in arms
        ]).reshape(len(arms), len(domain_of))  # fmt: skip

    decode_tpot_s = table(lambda request: request.decode_tpot_s)
    tpot_s, ttft_s = table(lambda request: request.tpot_s), table(lambda request: request.ttft_s)
    whole: BoolArray = np.logical_and.reduce(np.isfinite(decode_tpot_s + tpot_s + ttft_s))
    prompts = [prompt for prompt, kept in zip(domain_of, whole, strict=True) if kept]
    tokens = np.array([_median([r.tokens - 1 for r in seen[BASE][p]]) for p in prompts])
    return PromptTable(
        arms=tuple(arms),
        prompts=tuple(prompts),
        domains=tuple(domain_of[prompt] for prompt in prompts),
        tokens=tokens,
        decode_s=decode_tpot_s[:, whole] * tokens,
        tpot_s=tpot_s[:, whole],
        ttft_s=ttft_s[:, whole],
        left_out=len(domain_of) - len(prompts),
    )


def identical_shares(rows: Sequence[CellRow]) -> dict[str, tuple[float, int]]:
    """Return per arm the share of its answers that are token by token those of k0, and how many.

    The answer of ``k0`` to a prompt is the one that it gave most often.

    Parameters
    ----------
    rows
        Of all cells: greedy answers do not depend on the load in float32.
    """
    texts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.arm == BASE:
            for request in row.requests:
                texts[request.prompt][request.text] += 1
    same: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in rows:
        for request in row.requests:
            if request.prompt in texts:
                total[row.arm] += 1
                same[row.arm] += request.text == texts[request.prompt].most_common(1)[0][0]
    return {arm: (same[arm] / count, count) for arm, count in total.items()}


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else float("nan")
