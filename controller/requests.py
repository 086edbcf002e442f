"""Rows of the requests that are alive, so that learners can keep them in flat arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import IntArray, int_array

_MANY = 32  # so many are compared sooner than they are looked up


class RequestRows:
    """Request number → row, with each row's slot and whether its tokens are sampled.

    Row 0 stands for requests that were never added. Rows of forgotten requests are used again, so
    that memory follows the requests alive.

    Examples
    --------
    >>> rows = RequestRows()
    >>> rows.add(71, slot=2, sampled=True), rows.find(np.array([71, 5])).tolist()
    (1, [1, 0])
    """

    def __init__(self) -> None:
        self._row: dict[int, int] = {}
        self._free: list[int] = []
        self.slot = np.zeros(64, dtype=np.int64)
        self.sampled = np.zeros(64, dtype=np.int64)
        # The latest question and its answer: plan and outcome of a step ask for the same requests.
        self._asked, self._answer = int_array(), int_array()
        self._unknown = False

    def __len__(self) -> int:
        return len(self._row)

    @property
    def capacity(self) -> int:
        """Rows that arrays over requests must hold."""
        return int(self.slot.shape[0])

    def add(self, request: int, *, slot: int, sampled: bool) -> int:
        """Return the row of a new request."""
        row = self._free.pop() if self._free else len(self._row) + 1
        if row >= self.capacity:
            self.slot = np.concatenate([self.slot, np.zeros_like(self.slot)])
            self.sampled = np.concatenate([self.sampled, np.zeros_like(self.sampled)])
        self._row[request] = row
        if self._unknown:
            self._asked = int_array()
        self.slot[row] = slot
        self.sampled[row] = sampled
        return row

    def __contains__(self, request: int) -> bool:
        return request in self._row

    def find(self, requests: IntArray) -> IntArray:
        """Return the rows of requests, 0 where one is not known."""
        if requests is self._asked:
            return self._answer
        n = requests.shape[0]
        if n < _MANY or n != self._asked.shape[0] or not (requests == self._asked).all():
            self._answer = self.look_up(requests)
            self._unknown = not self._answer.all()
        self._asked = requests
        return self._answer

    def look_up(self, requests: IntArray) -> IntArray:
        """As `find`, where the same question is not to be expected again."""
        get = self._row.get
        return int_array([get(request, 0) for request in requests.tolist()])

    def remove(self, request: int) -> int | None:
        """Forget a request, and return its slot (None if it was not known)."""
        row = self._row.pop(request, None)
        if row is None:
            return None
        self._free.append(row)
        self._asked = int_array()
        return int(self.slot[row])

    def state(self) -> dict[str, Any]:
        """Return rows as plain data."""
        return {
            "rows": [[request, row] for request, row in self._row.items()],
            "free": list(self._free),
            "slot": self.slot.copy(),
            "sampled": self.sampled.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self._row = {int(request): int(row) for request, row in state["rows"]}
        self._free = [int(row) for row in state["free"]]
        self._asked = int_array()
        self.slot = np.array(state["slot"], dtype=np.int64)
        self.sampled = np.array(state["sampled"], dtype=np.int64)
