"""The true change-points that a clairvoyant policy is told of, and which of them lie ahead."""

from __future__ import annotations

from collections.abc import Iterable


class ChangePoints:
    """Times of the true changes on the loop's clock; the attribute ``ahead`` may be set anew.

    Parameters
    ----------
    points_ns
        In any order.

    Examples
    --------
    >>> changes = ChangePoints((5, 3))
    >>> changes.ahead, changes.reached(4), changes.reached(4), changes.ahead
    ([3, 5], True, False, [5])
    """

    def __init__(self, points_ns: Iterable[int] = ()) -> None:
        self.ahead = sorted(points_ns)

    def reached(self, now_ns: int) -> bool:
        """Return whether a change has come since the last call."""
        passed = [point for point in self.ahead if point <= now_ns]
        self.ahead = self.ahead[len(passed) :]
        return bool(passed)

    def state(self) -> list[int]:
        """Return what lies ahead."""
        return list(self.ahead)

    def load(self, state: Iterable[int]) -> None:
        """Continue from a `state`."""
        self.ahead = [int(point) for point in state]
