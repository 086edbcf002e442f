"""What became of promises, per class of service: a bounded table of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

MAX_CLASSES = 64
"""Classes kept apart; the first has no name, and takes those that find no room."""

_COLUMNS = ("judged", "met", "ttft_missed", "tpot_missed", "e2e_missed")


class PromiseTally:
    """Counts requests that ended, by class and by which of their targets they missed.

    Examples
    --------
    >>> tally = PromiseTally()
    >>> tally.judge(tally.kind("interactive"), ttft=False, tpot=True, e2e=False)
    >>> tally.counts_of("interactive")["tpot_missed"], tally.labels
    (1, ['', 'interactive'])
    """

    def __init__(self) -> None:
        self._counts = np.zeros((MAX_CLASSES, len(_COLUMNS)), dtype=np.int64)
        self._kinds: dict[str, int] = {"": 0}

    @property
    def labels(self) -> list[str]:
        """The classes seen, by number."""
        return list(self._kinds)

    def kind(self, label: str) -> int:
        """Return the number of a class."""
        kind = self._kinds.get(label)
        if kind is None:
            kind = len(self._kinds) if len(self._kinds) < MAX_CLASSES else 0
            if kind:
                self._kinds[label] = kind
        return kind

    def judge(self, kind: int, *, ttft: bool, tpot: bool, e2e: bool) -> None:
        """Count a request that ended; the flags say which targets it missed."""
        self._counts[kind] += (1, not (ttft or tpot or e2e), ttft, tpot, e2e)

    def counts_of(self, label: str) -> dict[str, int]:
        """Return a class's counts by name: ``judged``, ``met``, ``ttft_missed``, ….

        Raises
        ------
        KeyError
            Nobody has heard of the class.
        """
        return dict(zip(_COLUMNS, self._counts[self._kinds[label]].tolist(), strict=True))

    def state(self) -> dict[str, Any]:
        """Return names and counts as plain data."""
        return {"labels": self.labels, "counts": self._counts[: len(self._kinds)].tolist()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._kinds = {str(label): kind for kind, label in enumerate(state["labels"])}
        self._counts[:] = 0
        self._counts[: len(self._kinds)] = state["counts"]
