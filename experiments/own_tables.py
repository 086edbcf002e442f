"""Step times and acceptance that a user brings, made into scenarios."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from acclimate.experiments.readers.latency_table import read_latency_table
from acclimate.experiments.simulation.scenario import Scenario

DEFAULT_BATCHES = (1, 4, 16, 64)
_LEAST_REQUESTS, _REQUESTS_PER_SEAT = 60, 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OwnTables:
    """What a user has instead of a scenario: step times, acceptance, batches.

    Parameters
    ----------
    latency
        CSV with batch, K and ms.
    survival, conditional
        Acceptance as ``.68,.39,.2`` or, for several domains, ``code=.9,.8,.7``; one of both.
    batches
        Requests in the engine; one table of results for each.
    prompt_tokens, output_tokens
        Mean lengths.
    requests
        Per batch and seed; by default 8 times the batch, and at least 60.
    noise
        Standard deviation of the logarithm of a step's duration.
    free_drafts
        Whether drafting costs nothing, as with n-gram lookup, and always is max_depth deep.
    uniform_only
        Whether all requests of a step must verify alike.
    draft_share
        Share of a table's excess over K = 0 that pays for drafting.
    """

    latency: Path
    survival: Sequence[str] = ()
    conditional: Sequence[str] = ()
    batches: Sequence[int] = DEFAULT_BATCHES
    prompt_tokens: int = 1
    output_tokens: int = 200
    requests: int | None = None
    noise: float = 0.0
    free_drafts: bool = False
    uniform_only: bool = False
    draft_share: float = 0.0

    def scenarios(self) -> dict[str, Scenario]:
        """Return one scenario per batch, by name of the case.

        Raises
        ------
        ValueError
            The table or the acceptance cannot be used; the message says why.
        """
        domains = self._domains()
        depth = len(next(iter(domains.values())))
        kind = "survival" if self.survival else "conditional"
        listed = read_latency_table(self.latency).value.depth
        # Nothing is known of a depth between the table's columns.
        depths = sorted({0, *(k for k in listed.tolist() if k <= depth)})
        return {
            f"c{batch}": Scenario.of(
                {
                    "title": f"{self.latency.name}, {batch} requests",
                    "engine": {
                        "max_depth": depth,
                        "depths": depths,
                        "max_num_seqs": batch,
                        "token_budget": max(8_192, batch * (depth + 2)),
                        "free_drafts": self.free_drafts,
                        "uniform_only": self.uniform_only,
                    },
                    "arrivals": {
                        "kind": "closed",
                        "concurrency": batch,
                        "requests": self.requests
                        or max(_LEAST_REQUESTS, _REQUESTS_PER_SEAT * batch),
                    },
                    "lengths": {
                        "prompt_tokens": self.prompt_tokens,
                        "output_tokens": {"mean": self.output_tokens, "variation": 0.5},
                    },
                    "step_time": {
                        "table": str(self.latency.resolve()),
                        "draft_share": self.draft_share,
                        "noise": self.noise,
                    },
                    "domains": [{"name": name, kind: q} for name, q in domains.items()],
                },
                name="these options",
            )
            for batch in self.batches
        }

    def notes(self) -> list[str]:
        """Return what a reader should know of how the table is used."""
        read = read_latency_table(self.latency)
        table, depth = read.value, len(next(iter(self._domains().values())))
        notes = [
            f"{read.kept} cells read from {self.latency.name}"
            + "".join(f"; {n} rows dropped: {reason}" for reason, n in read.dropped.items())
        ]
        if read.kept and depth > table.depth.max():
            notes.append(f"K above {table.depth.max()} is not in the table: the last slope goes on")
        outside = [b for b in self.batches if read.kept and b > table.batch.max()]
        if outside:
            notes.append(
                f"batches above {table.batch.max()} are not in the table: the last slope goes on"
            )
        if self.prompt_tokens == 1:
            notes.append("prompts of one token: decoding alone; see --prompt-tokens")
        if not self.draft_share and not self.free_drafts:
            notes.append(
                "a table of fixed depths cannot tell drafting from verifying: all of the excess "
                "over K = 0 counts as verifying; see --draft-share"
            )
        return notes

    def _domains(self) -> dict[str, list[float]]:
        if bool(self.survival) == bool(self.conditional):
            raise ValueError(
                "acceptance must come as --survival (P(the first i drafts are all accepted), as "
                "vLLM's counters and most tables have it) or as --conditional (P(draft i is "
                "accepted, given those before it)), got " + ("both" if self.survival else "neither")
            )
        option = "--survival" if self.survival else "--conditional"
        domains: dict[str, list[float]] = {}
        for text in self.survival or self.conditional:
            name, _, numbers = text.rpartition("=")
            name = name.strip() or "default"
            if name in domains:
                raise ValueError(f"{option} must name each domain once, got {name!r} twice")
            domains[name] = _numbers(numbers, option)
        depths = sorted({len(numbers) for numbers in domains.values()})
        if len(depths) > 1:
            raise ValueError(f"{option} must have as many positions for each domain, got {depths}")
        return domains


def _numbers(text: str, option: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{option} must be numbers by comma such as .68,.39,.20, got {text!r}"
        ) from None
    if any(number > 1 for number in numbers):
        raise ValueError(f"{option} must be probabilities in [0, 1], not percent, got {text!r}")
    return numbers
