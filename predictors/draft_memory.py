"""The latest graded draft nodes, so that what follows a change can be learned anew from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_SLOT, _ROW, _OWNER, _DEPTH, _ACCEPTED, _FAMILY = range(6)
_COLUMNS = 6
_STATE = ("said", "columns", "families", "account")


class DraftNodes(NamedTuple):
    """Graded nodes, shape (m,) each; ``owner`` is the request that had ``row`` at the time."""

    slots: IntArray
    rows: IntArray
    owner: IntArray
    depth: IntArray
    said: FloatArray
    accepted: IntArray


class DraftMemory:
    """A ring of graded nodes, each with the number of its family in its slot.

    A family are the children of one accepted node: one of them, or none, is what the target wrote.

    Parameters
    ----------
    n_slots
        Traffic classes.
    capacity
        Nodes remembered, of all slots together.

    Examples
    --------
    >>> memory, one = DraftMemory(n_slots=2), np.ones(2, np.int64)
    >>> nodes = DraftNodes(one, one, one, one, np.array([0.6, 0.2]), np.array([0, 1]))
    >>> memory.add(nodes, np.array([0, 0]))
    >>> memory.add(nodes, np.array([0, 0]))
    >>> memory.latest(1, families=1).said.tolist()
    [0.6, 0.2]
    """

    def __init__(self, n_slots: int, *, capacity: int = 4_096) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be >= 1, got {capacity}")
        self.said = np.zeros(capacity)
        self.columns = np.zeros((capacity, _COLUMNS), dtype=np.int64)
        self.families = np.zeros(n_slots, dtype=np.int64)  # of each slot, since it was opened
        self.account = np.zeros(1, dtype=np.int64)  # nodes ever added

    def open_slot(self, slot: int) -> None:
        """Forget a slot's nodes."""
        self.columns[self.columns[:, _SLOT] == slot, _FAMILY] = -1
        self.families[slot] = 0

    def add(self, nodes: DraftNodes, family: IntArray) -> None:
        """Remember nodes; the oldest give way.

        Parameters
        ----------
        family
            Shape (m,): equal for the children of one node, larger for families that begin later.
        """
        capacity = self.said.shape[0]
        m = nodes.said.shape[0]
        if not m:
            return
        number = np.empty(m, dtype=np.int64)
        for slot in np.unique(nodes.slots).tolist():
            own = nodes.slots == slot
            kinds, place = np.unique(family[own], return_inverse=True)
            number[own] = self.families[slot] + 1 + place
            self.families[slot] += kinds.shape[0]
        places = (int(self.account[0]) + np.arange(m))[-capacity:] % capacity
        values = (nodes.slots, nodes.rows, nodes.owner, nodes.depth, nodes.accepted, number)
        self.columns[places] = np.stack(values, axis=1)[-capacity:]
        self.said[places] = nodes.said[-capacity:]
        self.account += m

    def latest(self, slot: int, *, families: float) -> DraftNodes:
        """Return the nodes of a slot's latest families, oldest first."""
        capacity, added = self.said.shape[0], int(self.account[0])
        order = np.arange(max(added - capacity, 0), added) % capacity
        columns = self.columns[order]
        wanted = (columns[:, _SLOT] == slot) & (
            columns[:, _FAMILY] > max(self.families[slot] - families, 0)
        )
        found = columns[wanted].T
        return DraftNodes(
            found[_SLOT].copy(),
            found[_ROW].copy(),
            found[_OWNER].copy(),
            found[_DEPTH].copy(),
            self.said[order][wanted],
            found[_ACCEPTED].copy(),
        )

    def state(self) -> dict[str, Any]:
        """Return the ring as arrays."""
        return save_arrays(self, _STATE)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _STATE, state)
