"""What a replay found: how many decisions were made again, and whether they are the same."""

from __future__ import annotations

import dataclasses
from collections import Counter

from acclimate.experiments.figures import Figure


@dataclasses.dataclass(slots=True)
class VerifyResult:
    """What a replay found.

    Parameters
    ----------
    events
        Events per kind.
    decisions
        Decisions in the trace; each was either recomputed or skipped for a named reason.
    identical
        Recomputed decisions that equal the logged ones.
    alarms, identical_alarms
        Alarms that were logged or recomputed, and those that agree.
    policies
        Recomputed decisions per policy.
    skipped
        Decisions not recomputed, by reason.
    first_difference
        A sentence on the first decision or alarm that differs.
    truncated_lines
        Unfinished last lines, as a killed writer leaves.
    """

    events: Counter[str] = dataclasses.field(default_factory=Counter)
    decisions: int = 0
    identical: int = 0
    alarms: int = 0
    identical_alarms: int = 0
    policies: Counter[str] = dataclasses.field(default_factory=Counter)
    skipped: Counter[str] = dataclasses.field(default_factory=Counter)
    first_difference: str | None = None
    truncated_lines: int = 0

    @property
    def compared(self) -> int:
        """Decisions that were recomputed."""
        return self.decisions - self.skipped.total()

    @property
    def identical_share(self) -> float | None:
        """Share of recomputed decisions that are identical; None if there were none."""
        return self.identical / self.compared if self.compared else None

    @property
    def holds(self) -> bool:
        """Whether something was recomputed and nothing differs."""
        return self.compared > 0 and self.first_difference is None

    def figures(self) -> list[Figure]:
        """Return the result as figures."""
        return [
            Figure("replay/identical_share", self.identical_share, n=self.compared),
            Figure("replay/decisions", self.decisions, unit="decisions", n=self.decisions),
            Figure(
                "replay/skipped_decisions",
                self.skipped.total(),
                unit="decisions",
                n=self.decisions,
            ),
            Figure(
                "replay/identical_alarm_share",
                self.identical_alarms / self.alarms if self.alarms else None,
                n=self.alarms,
            ),
        ]
