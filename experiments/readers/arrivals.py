"""Requests that arrive: when, and how long prompt and answer are."""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.readers.read import Read

NO_OUTPUT = "no output tokens"
NO_PROMPT = "no prompt tokens"
_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_YEAR_2000_S, _YEAR_2100_S = 946_684_800, 4_102_444_800
_SLOWEST_GAP_S, _FASTEST_PER_S = 1_000.0, 500.0
_FEW = 10
_LATEST_NS = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests in order of arrival; every array has shape (n,).

    Parameters
    ----------
    arrival_s
        Seconds since the first arrival, ascending.
    prompt_tokens, output_tokens
        Lengths, at least 1.

    Examples
    --------
    >>> three = Arrivals(np.array([0.0, 1.0, 4.0]), np.array([9, 9, 9]), np.array([5, 1, 2]))
    >>> len(three), three.rate_per_s
    (3, 0.5)
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray

    def __len__(self) -> int:
        return int(self.arrival_s.size)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        return float(self.arrival_s[-1]) if len(self) else 0.0

    @property
    def rate_per_s(self) -> float | None:
        """Arrivals per second between the first and the last; None if they have no span."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else None


class ArrivalList:
    """Collects requests in any order, and puts them in order; published traces have millions."""

    def __init__(self) -> None:
        self._times_ns = array("q")
        self._prompt_tokens = array("q")
        self._output_tokens = array("q")

    def __len__(self) -> int:
        return len(self._times_ns)

    def add(self, time_ns: int, prompt_tokens: int, output_tokens: int) -> None:
        """Take one request."""
        self._times_ns.append(time_ns)
        self._prompt_tokens.append(prompt_tokens)
        self._output_tokens.append(output_tokens)

    def arrivals(self, notes: Counter[str]) -> Arrivals:
        """Return the requests by time, ties in the file's order; note ties and disorder."""
        times_ns, prompt, output = (
            np.array(column, dtype=np.int64)
            for column in (self._times_ns, self._prompt_tokens, self._output_tokens)
        )
        if times_ns.size == 0:
            return Arrivals(np.zeros(0), prompt, output)
        if late := int((times_ns[1:] < np.maximum.accumulate(times_ns)[:-1]).sum()):
            notes["out of order, sorted"] += late
        order = np.argsort(times_ns, kind="stable")
        times_ns = times_ns[order]
        if ties := int((np.diff(times_ns) == 0).sum()):
            notes["same time as another"] += ties
        arrival_s = (times_ns - times_ns[0]) / 1e9
        return Arrivals(arrival_s, prompt[order], output[order])


class TimedRows:
    """Requests whose times are numbers in a unit that is still to be checked."""

    def __init__(self) -> None:
        self.times = array("d")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")

    def add(self, time: float, prompt_tokens: int, output_tokens: int) -> None:
        """Take one request."""
        self.times.append(time)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)


def to_ns(value: float, unit: str) -> int:
    """Return a time as whole nanoseconds; ``unit`` is ``s``, ``ms``, ``us`` or ``ns``.

    >>> to_ns(1.5, "ms")
    1500000
    """
    whole = int(value)
    return whole * _NS[unit] + round((value - whole) * _NS[unit])


def collect(
    name: str,
    rows: TimedRows,
    unit: str,
    dropped: Counter[str],
    notes: Counter[str],
) -> Read[Arrivals]:
    """Return the requests of ``rows`` in order, their times taken for ``unit``.

    Raises
    ------
    ValueError
        The times are plainly in another unit.
    """
    check_unit(name, rows.times, unit)
    found = ArrivalList()
    for time, prompt_tokens, output_tokens in zip(
        rows.times, rows.prompt_tokens, rows.output_tokens, strict=True
    ):
        if (time_ns := to_ns(time, unit)) > _LATEST_NS:
            dropped["timestamp beyond belief"] += 1
        else:
            found.add(time_ns, prompt_tokens, output_tokens)
    return Read(found.arrivals(notes), len(found), dropped, notes)


def check_unit(name: str, values: Sequence[float], unit: str) -> None:
    """Refuse times that are plainly in another unit than they should be.

    Times since 1970 betray their unit by their size. Others do by their pace: nobody records a
    trace with a request every hour, or with more of them in a second than a cluster serves.

    Parameters
    ----------
    name
        The file, for the message.
    values
        Times as they stand in the file.
    unit
        What they are taken for.

    Raises
    ------
    ValueError
        The unit is unknown, or another one fits and this one does not.
    """
    if unit not in _NS:
        raise ValueError(f"unit must be one of {', '.join(_NS)}, got {unit!r}")
    if len(values) < 2:
        return
    low, high = min(values), max(values)
    epochs = [u for u, ns in _NS.items() if _YEAR_2000_S < low * ns / 1e9 < _YEAR_2100_S]
    if epochs and unit not in epochs:
        raise ValueError(_wrong_unit(name, unit, epochs[0], "they would be times since 1970 then"))
    seconds = (high - low) * _NS[unit] / 1e9
    gap_s = seconds / (len(values) - 1)
    if gap_s > _SLOWEST_GAP_S:
        finer = [u for u, ns in _NS.items() if ns < _NS[unit]]
        likely = next((u for u in finer if gap_s * _NS[u] / _NS[unit] < _SLOWEST_GAP_S / 10), None)
        if likely:
            raise ValueError(
                _wrong_unit(name, unit, likely, f"a request every {gap_s:,.0f} s is no traffic")
            )
    if len(values) >= _FEW and 0 < gap_s < 1.0 / _FASTEST_PER_S:
        coarser = [u for u, ns in reversed(_NS.items()) if ns > _NS[unit]]
        if coarser:
            reason = f"{1 / gap_s:,.0f} requests a second are too many"
            raise ValueError(_wrong_unit(name, unit, coarser[0], reason))


def _wrong_unit(name: str, unit: str, likely: str, reason: str) -> str:
    return (
        f"{name}: times must be in {_NAMES[unit]}, got what looks like {_NAMES[likely]} ({reason})"
    )
