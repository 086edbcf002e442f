"""Rows of the requests that are alive, so that learners can keep them in flat arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import check_range, load_arrays


class RequestRows:
    """Request number → row, with each row's slot and whether its tokens are sampled.

    Row 0 stands for requests that were never added. Rows of forgotten requests are used again, so
    that memory follows the requests alive. Numbers are kept sorted, for a whole step's requests are
    looked up at once; as numbers rise, a new one nearly always goes to the end.

    Examples
    --------
    >>> rows = RequestRows()
    >>> rows.add(71, slot=2, sampled=True), rows.find(np.array([71, 5])).tolist()
    (1, [1, 0])
    """

    def __init__(self) -> None:
        self._free: list[int] = []
        self._count = 0
        self._numbers = np.zeros(64, dtype=np.int64)  # of the requests alive, ascending
        self._rows = np.zeros(64, dtype=np.int64)
        self.slot = np.zeros(64, dtype=np.int64)
        self.sampled = np.zeros(64, dtype=np.int64)

    def __len__(self) -> int:
        return self._count

    @property
    def capacity(self) -> int:
        """Rows that arrays over requests must hold."""
        return int(self.slot.shape[0])

    def add(self, request: int, *, slot: int, sampled: bool) -> int:
        """Return the row of a new request."""
        n = self._count
        row = self._free.pop() if self._free else n + 1
        if row >= self.capacity:
            for name in _ARRAYS:
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
        at = n
        if n and request < self._numbers[n - 1]:
            at = self._place(request)
            self._numbers[at + 1 : n + 1] = self._numbers[at:n]
            self._rows[at + 1 : n + 1] = self._rows[at:n]
        self._numbers[at] = request
        self._rows[at] = row
        self._count = n + 1
        self.slot[row] = slot
        self.sampled[row] = sampled
        return row

    def __contains__(self, request: int) -> bool:
        at = self._place(request)
        return at < self._count and bool(self._numbers[at] == request)

    def alive(self) -> IntArray:
        """Return the rows of all requests, in the order of their numbers."""
        return self._rows[: self._count].copy()

    def find(self, requests: IntArray) -> IntArray:
        """Return the rows of requests, 0 where one is not known."""
        return _find(self._numbers, self._rows, self._count, requests)

    def survey(
        self, requests: IntArray, drafts: IntArray, context_tokens: IntArray
    ) -> tuple[IntArray, IntArray, int, int, int]:
        """Return the rows and slots of a step's requests, and what they add up to.

        Parameters
        ----------
        requests, drafts, context_tokens
            Shape (n,): numbers, drafts at hand, tokens attended to.

        Returns
        -------
        tuple
            Rows and slots, shape (n,); drafts, tokens attended to and sampled requests in all.
        """
        return _survey(
            self._numbers,
            self._rows,
            self._count,
            self.slot,
            self.sampled,
            requests,
            drafts,
            context_tokens,
        )

    def remove(self, request: int) -> int | None:
        """Forget a request, and return the row it had (None if it was not known)."""
        at, n = self._place(request), self._count
        if at >= n or self._numbers[at] != request:
            return None
        row = int(self._rows[at])
        self._numbers[at : n - 1] = self._numbers[at + 1 : n]
        self._rows[at : n - 1] = self._rows[at + 1 : n]
        self._count = n - 1
        self._free.append(row)
        return row

    def state(self) -> dict[str, Any]:
        """Return rows as plain data."""
        n = self._count
        return {
            "rows": np.stack((self._numbers[:n], self._rows[:n]), axis=1).tolist(),
            "free": list(self._free),
            "slot": self.slot.copy(),
            "sampled": self.sampled.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            A row is outside the table.
        """
        load_arrays(self, ("slot", "sampled"), state, growing=("slot", "sampled"))
        if self.slot.shape != self.sampled.shape:
            raise ValueError("slot and sampled must be of as many requests")
        rows = sorted((int(request), int(row)) for request, row in state["rows"])
        self._count = len(rows)
        self._free = [int(row) for row in state["free"]]
        check_range("rows", [row for _, row in rows] + self._free, 1, self.capacity - 1)
        self._numbers, self._rows = np.zeros((2, self.capacity), dtype=np.int64)
        for at, (request, row) in enumerate(rows):
            self._numbers[at], self._rows[at] = request, row

    def _place(self, request: int) -> int:
        return int(self._numbers[: self._count].searchsorted(request))


_ARRAYS = ("_numbers", "_rows", "slot", "sampled")


@compiled("i8[::1](i8[::1], i8[::1], i8, i8[::1])")
def _find(numbers: IntArray, rows: IntArray, count: int, requests: IntArray) -> IntArray:
    """Look up requests one after the other; a step's order is nearly that of the numbers."""
    found = np.zeros(requests.shape[0], dtype=np.int64)
    at = 0
    for r in range(requests.shape[0]):
        request = requests[r]
        if at < count and numbers[at] < request:
            at += 1
        if at >= count or numbers[at] != request:
            at = np.searchsorted(numbers[:count], request)
        if at < count and numbers[at] == request:
            found[r] = rows[at]
    return found


@compiled(
    "Tuple((i8[::1], i8[::1], i8, i8, i8))"
    "(i8[::1], i8[::1], i8, i8[::1], i8[::1], i8[::1], i8[::1], i8[::1])"
)
def _survey(
    numbers: IntArray,
    rows: IntArray,
    count: int,
    slot_of: IntArray,
    sampled: IntArray,
    requests: IntArray,
    drafts: IntArray,
    context_tokens: IntArray,
) -> tuple[IntArray, IntArray, int, int, int]:
    found = _find(numbers, rows, count, requests)
    slots = np.empty_like(found)
    at_hand, context, hot = 0, 0, 0
    for r in range(found.shape[0]):
        slots[r] = slot_of[found[r]]
        at_hand += drafts[r]
        context += context_tokens[r]
        hot += sampled[found[r]]
    return found, slots, at_hand, context, hot
