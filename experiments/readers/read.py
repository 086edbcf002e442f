"""What every reader returns: a value, and how many records became part of it or why not."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """A value read from a file.

    Parameters
    ----------
    value
        What was read.
    kept
        Records that are part of the value.
    dropped
        Records that are not, by reason.
    notes
        What was odd and did no harm, by reason; these records are kept.

    Examples
    --------
    >>> Read([1, 2], 2, Counter({"no output tokens": 3})).read
    5
    """

    value: T
    kept: int
    dropped: Counter[str]
    notes: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Records in the file."""
        return self.kept + self.dropped.total()


class BadRecord(Exception):
    """A record that cannot be used; ``reason`` is a short phrase to count it under."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
