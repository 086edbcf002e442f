"""Notices that a drafter's trees are accepted more or less than was believed, class by class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled
from acclimate.predictors.drift import Shift, SlotDrift

_LONE = -1  # predictions know the requests: outcomes are watched as if each were of its own
_ALARM_EVERY_FAMILIES = 50_000.0
_SETTLED_FAMILIES = 200  # what beliefs rest on before they are watched

ALL = -1
"""Stands for all slots together."""


class Families(NamedTuple):
    """What became of the children of accepted nodes, shape (f,) each.

    ``request`` is the row in the step, ``expected`` P(one of the children is accepted) as it was
    believed, ``hit`` whether one was; ``of_node`` has shape (m,), the family of each node.
    """

    request: IntArray
    expected: FloatArray
    hit: IntArray
    of_node: IntArray


class TreeDrift:
    """Watches each slot's families: whether one of the children is accepted, as often as believed.

    That is one outcome, 0 or 1, per accepted node, however many children it has, and each comes
    with a prediction of its own, its request's history included; see `SlotDrift` for the statistic. All slots together are watched
    too: a new drafter concerns all of them, and is noticed sooner so. Watching begins once beliefs
    rest on enough families, and after an alarm anew.

    Parameters
    ----------
    n_slots
        Slots watched.
    """

    def __init__(self, n_slots: int) -> None:
        self.drift = SlotDrift(n_slots, alarm_every_tokens=_ALARM_EVERY_FAMILIES)
        self.seen = np.zeros(n_slots, dtype=np.int64)  # families since the slot was opened anew
        self.all = SlotDrift(1, alarm_every_tokens=_ALARM_EVERY_FAMILIES)
        self._restart_all()

    def open_slot(self, slot: int) -> None:
        """Stop watching a slot until beliefs of it rest on enough again."""
        self.drift.restart(slot)
        self.seen[slot] = 0

    def restart(self) -> None:
        """Stop watching all slots: a change was declared."""
        self.drift.restart()
        self.seen[:] = 0
        self._restart_all()

    def observe(self, slots: IntArray, rows: IntArray, families: Families) -> dict[int, Shift]:
        """Take a step's families, and return the slots that shifted, `ALL` for all of them together.

        Parameters
        ----------
        slots, rows
            Shape (n,): of each request of the step; row 0, an unknown request's, is passed over.
        """
        shifted: dict[int, Shift] = {}
        for request, expected, hit in zip(
            families.request.tolist(), families.expected.tolist(), families.hit.tolist(),
            strict=True,
        ):  # fmt: skip
            slot, row = int(slots[request]), int(rows[request])
            if not row or ALL in shifted:
                continue
            self.all_seen += 1
            if self.all_seen > _SETTLED_FAMILIES:
                shift = self.all.update(0, hit, 1, expected, _LONE)
                if shift is not None:
                    shifted[ALL] = shift
                    self._restart_all()
            if slot in shifted:
                continue
            self.seen[slot] += 1
            if self.seen[slot] < _SETTLED_FAMILIES:
                continue
            if not self.drift.watches(slot):
                self.drift.watch(slot, np.array([0.5]))
            shift = self.drift.update(slot, hit, 1, expected, _LONE)
            if shift is not None:
                shifted[slot] = shift
        return shifted

    def share(self, slot: int) -> float:
        """Return the share of a slot's families among those of all slots."""
        return float(self.seen[slot] / max(self.seen.sum(), 1))

    def state(self) -> dict[str, Any]:
        """Return what was seen."""
        return {
            "drift": self.drift.state(),
            "seen": self.seen.copy(),
            "all": self.all.state(),
            "all_seen": self.all_seen,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.drift.load(state["drift"])
        self.seen[:] = state["seen"]
        self.all.load(state["all"])
        self.all_seen = int(state["all_seen"])

    def _restart_all(self) -> None:
        self.all.watch(0, np.array([0.5]))
        self.all_seen = 0


def families(
    request: IntArray,
    parent: IntArray,
    conditional: FloatArray,
    accepted: IntArray,
    known: IntArray,
) -> Families:
    """Return the families of a step's graded nodes, in the order of their first children.

    Parameters
    ----------
    request, parent, accepted
        Shape (m,): of all candidates.
    conditional
        Shape (k,): P(each graded node is accepted | its parent was).
    known
        Shape (k,): the graded nodes.

    Examples
    --------
    >>> found = families(np.zeros(3, np.int64), np.array([-1, -1, 0]), np.array([0.5, 0.2, 0.9]),
    ...                  np.array([1, 0, 0]), np.arange(3))
    >>> found.expected.tolist(), found.hit.tolist(), found.of_node.tolist()
    ([0.7, 0.9], [1, 0], [0, 0, 1])
    """
    count, owner, expected, hit, of_node = _families(request, parent, conditional, accepted, known)
    return Families(owner[:count], np.minimum(expected[:count], 1.0), hit[:count], of_node)


@compiled(
    "Tuple((i8, i8[::1], f8[::1], i8[::1], i8[::1]))(i8[::1], i8[::1], f8[::1], i8[::1], i8[::1])"
)
def _families(
    request: IntArray,
    parent: IntArray,
    conditional: FloatArray,
    accepted: IntArray,
    known: IntArray,
) -> tuple[int, IntArray, FloatArray, IntArray, IntArray]:
    k, m = known.shape[0], request.shape[0]
    n = 1 + request.max() if m else 0
    number = np.full(n + m, -1)
    owner = np.empty(k, dtype=np.int64)
    expected = np.zeros(k)
    hit = np.zeros(k, dtype=np.int64)
    of_node = np.empty(k, dtype=np.int64)
    count = 0
    for i in range(k):
        j = known[i]
        place = request[j] if parent[j] < 0 else n + parent[j]
        if number[place] < 0:
            number[place] = count
            owner[count] = request[j]
            count += 1
        f = number[place]
        expected[f] += conditional[i]
        hit[f] = max(hit[f], accepted[j])
        of_node[i] = f
    return count, owner, expected, hit, of_node
