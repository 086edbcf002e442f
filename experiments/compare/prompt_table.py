"""One cell's measurements: arms in rows, a column per prompt, and rounds behind each other."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.compare.arms import BASE
from acclimate.experiments.compare.paired import PairedTimes
from acclimate.experiments.compare.rows import CellRow, RequestRow


@dataclasses.dataclass(frozen=True, slots=True)
class PromptTable:
    """What every arm took for every prompt, in every round.

    Parameters
    ----------
    arms
        Names of the rows.
    prompts, domains
        Of the columns: every prompt that all arms served in some round, with at least two tokens.
    tokens
        Shape (prompts,): tokens after the first that ``k0`` wrote.
    decode_tpot, tpot
        Time per token after the first: in steps without prompts alone, and with everything in it.
    left_out
        Prompts that are not in the table.
    """

    arms: tuple[str, ...]
    prompts: tuple[str, ...]
    domains: tuple[str, ...]
    tokens: FloatArray
    decode_tpot: PairedTimes
    tpot: PairedTimes
    left_out: int

    def row(self, arm: str) -> int:
        """Return the row of an arm."""
        return self.arms.index(arm)

    def columns(self, domain: str) -> list[int]:
        """Return the columns of a domain."""
        return [at for at, name in enumerate(self.domains) if name == domain]


def prompt_table(rows: Sequence[CellRow], arms: Sequence[str]) -> PromptTable:
    """Gather the rows of one cell.

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
            for request in row.counted:
                seen[row.arm, request.prompt, row.round] = request
                domain_of[request.prompt] = request.domain
    rounds = sorted({row.round for row in rows})

    def times(value: Callable[[RequestRow], float | None]) -> PairedTimes:
        cube = np.full((len(arms), len(domain_of), len(rounds)), np.nan)
        for i, arm in enumerate(arms):
            for j, prompt in enumerate(domain_of):
                for k, round in enumerate(rounds):
                    request = seen.get((arm, prompt, round))
                    measured = None if request is None else value(request)
                    if measured is not None and measured > 0:
                        cube[i, j, k] = measured
        return PairedTimes(cube)

    decode_tpot = times(lambda request: request.decode_tpot_s)
    tpot = times(lambda request: request.tpot_s)
    kept = np.flatnonzero(decode_tpot.complete & tpot.complete)
    prompts = [list(domain_of)[at] for at in kept]
    written = {prompt: request.tokens for (arm, prompt, _), request in seen.items() if arm == BASE}
    return PromptTable(
        arms=tuple(arms),
        prompts=tuple(prompts),
        domains=tuple(domain_of[prompt] for prompt in prompts),
        tokens=np.array([written[prompt] - 1.0 for prompt in prompts]),
        decode_tpot=decode_tpot.only(kept),
        tpot=tpot.only(kept),
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
            for request in row.counted:
                texts[request.prompt][request.text] += 1
    same: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for row in rows:
        for request in row.counted:
            if request.prompt in texts:
                total[row.arm] += 1
                same[row.arm] += request.text == texts[request.prompt].most_common(1)[0][0]
    return {arm: (same[arm] / count, count) for arm, count in total.items()}
