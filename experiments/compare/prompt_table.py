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

    Arms that ran a prompt in one round did so within a short time. There each arm's time is taken
    relative to the mean of all arms, so that the speed of the machine in that round cancels, and
    the median of that over rounds is the arm's, so that a stall in one of them does not count. It
    is given back in seconds by the prompt's median time over rounds. A prompt that was not
    measured in all arms in any round is left out.

    Parameters
    ----------
    rows
        Of one cell; arms that are not among ``arms`` are passed over.
    arms
        Names of the rows wanted, ``k0`` among them.
    """
    seen: dict[tuple[str, str, int], RequestRow] = {}
    domain_of: dict[str, str] = {}
    for row in rows:
        if row.arm in arms:
            for request in row.requests:
                seen[row.arm, request.prompt, row.round] = request
                domain_of[request.prompt] = request.domain
    rounds = sorted({row.round for row in rows})

    def table(value: Callable[[RequestRow], float | None]) -> FloatArray:
        cube = np.full((len(arms), len(domain_of), len(rounds)), np.nan)
        for i, arm in enumerate(arms):
            for j, prompt in enumerate(domain_of):
                for k, round in enumerate(rounds):
                    request = seen.get((arm, prompt, round))
                    measured = None if request is None else value(request)
                    if measured is not None and measured > 0:
                        cube[i, j, k] = measured
        return paired_medians(cube)

    decode_tpot_s = table(lambda request: request.decode_tpot_s)
    tpot_s, ttft_s = table(lambda request: request.tpot_s), table(lambda request: request.ttft_s)
    whole: BoolArray = np.logical_and.reduce(np.isfinite(decode_tpot_s + tpot_s + ttft_s))
    prompts = [prompt for prompt, kept in zip(domain_of, whole, strict=True) if kept]
    written = {prompt: request.tokens for (arm, prompt, _), request in seen.items() if arm == BASE}
    tokens = np.array([written[prompt] - 1.0 for prompt in prompts])
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


def paired_medians(times: FloatArray) -> FloatArray:
    """Return each arm's typical time per prompt, what all arms share in a round taken out.

    Parameters
    ----------
    times
        Shape (arms, prompts, rounds), above 0; NaN where nothing was measured.

    Returns
    -------
    FloatArray
        Shape (arms, prompts); NaN for a prompt that no round measured in all arms.

    Examples
    --------
    The second round was twice as slow for everybody, and the arms differ by a factor of two:

    >>> paired_medians(np.array([[[1.0, 2.0]], [[2.0, 4.0]]])).tolist()
    [[1.5], [3.0]]
    """
    shared = np.exp(np.log(times).mean(axis=0))  # NaN unless all arms have a value
    out = np.full(times.shape[:2], np.nan)
    for j, own in enumerate(np.isfinite(shared)):
        if own.any():
            relative = np.median(times[:, j, own] / shared[j, own], axis=1)
            out[:, j] = relative * np.median(shared[j, own])
    return out


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
