"""The clock of a simulation."""

from __future__ import annotations


class SimulatedClock:
    """Nanoseconds since the start of a simulation; give it to the control loop as ``clock_ns``.

    Examples
    --------
    >>> clock = SimulatedClock()
    >>> clock.now_ns += 5_000_000
    >>> clock(), clock.now_s
    (5000000, 0.005)
    """

    __slots__ = ("now_ns",)

    def __init__(self, now_ns: int = 0) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return self.now_ns / 1e9
