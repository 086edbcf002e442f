"""Who was harmed: requests of two runs with the same luck, paired by number."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.sovereign_cell import RequestFates
from acclimate.experiments.measures import HARM_RATIO


@dataclasses.dataclass(frozen=True, slots=True)
class Harm:
    """Requests of paired runs that speculation harmed.

    A request with a target is harmed if it met it without speculation and not with it; one without,
    if its time per token is more than 5 % longer than without.

    Parameters
    ----------
    promised, promised_harmed
        Requests with a target, and those of them that were harmed.
    others, others_harmed
        The same for requests without one.

    Examples
    --------
    >>> Harm(100, 1, 100, 0).share
    0.005
    """

    promised: int
    promised_harmed: int
    others: int
    others_harmed: int

    @classmethod
    def total(cls, parts: Sequence[Harm]) -> Harm:
        """Return the sum over several pairs of runs."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(sum(getattr(part, name) for part in parts) for name in names))

    @property
    def share(self) -> float | None:
        """Share of all pairs that were harmed; None without pairs."""
        pairs = self.promised + self.others
        return (self.promised_harmed + self.others_harmed) / pairs if pairs else None

    @property
    def promised_share(self) -> float | None:
        """Share of the pairs with a target that were harmed; None without such pairs."""
        return self.promised_harmed / self.promised if self.promised else None

    def figure(self, name: str) -> Figure:
        """Return the share of all pairs as a figure."""
        return Figure(name, self.share, n=self.promised + self.others)


def harm_of(run: RequestFates, base: RequestFates) -> Harm:
    """Return who was harmed in ``run``, judged by the same requests in ``base``.

    Examples
    --------
    >>> base = RequestFates([1, 2, 3], [0, 0, 1], [1, 0, -1], [0.01, 0.02, 0.010])
    >>> run = RequestFates([1, 2, 3], [0, 0, 1], [0, 0, -1], [0.01, 0.02, 0.012])
    >>> harm_of(run, base)
    Harm(promised=2, promised_harmed=1, others=1, others_harmed=1)
    """
    _, here, there = np.intersect1d(run.request, base.request, return_indices=True)
    met, met_before = np.array(run.met)[here], np.array(base.met)[there]
    tpot_s, before_s = np.array(run.tpot_s)[here], np.array(base.tpot_s)[there]
    promised = met >= 0
    others = ~promised & (tpot_s > 0) & (before_s > 0)
    return Harm(
        int(promised.sum()),
        int((promised & (met == 0) & (met_before == 1)).sum()),
        int(others.sum()),
        int((others & (tpot_s > HARM_RATIO * before_s)).sum()),
    )
