"""What the loop does about a noticed change of acceptance, beyond reporting it.

Predictions never wait for an alarm: `AcceptanceTable` mixes memories of several lengths by fixed
share, and the shortest has mostly forgotten the past when a detector is sure. But it knows little,
while the detector says since when the new law has held. So the evidence since then is put in the
place of what is over: an alarm leaves the slot with the estimate of one that was told the change
and began anew there. If that evidence looks like a mix that was in force before, what was learned
then counts again. It shrinks, it never wipes: some tokens of what was believed before stay, and the
slot's pool keeps what others taught it. So a false alarm costs scatter for a while, no bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import DraftOutcomes, IntArray
from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.drift import Shift
from acclimate.predictors.known_mixes import KnownMixes
from acclimate.predictors.recent_counts import RecentCounts


class Recalibration:
    """Recent evidence of each slot, and the mixes that it has seen.

    Parameters
    ----------
    n_slots, max_depth
        As of `AcceptanceTable`.
    """

    def __init__(self, n_slots: int, max_depth: int) -> None:
        self.recent = RecentCounts(n_slots, max_depth)
        self.mixes = KnownMixes(n_slots, max_depth)

    def open_slot(self, slot: int) -> None:
        """Start a slot afresh."""
        self.recent.open_slot(slot)
        self.mixes.open_slot(slot)

    def learn(self, slots: IntArray, drafts: DraftOutcomes) -> None:
        """Count a step's graded tokens; ``slots`` is that of each draft."""
        self.recent.learn(slots, drafts.start, drafts.graded, drafts.matched, drafts.fresh)

    def restart(self, table: AcceptanceTable, slot: int, shift: Shift) -> bool:
        """Let a slot's evidence begin where its shift did; return whether a known mix returned.

        Parameters
        ----------
        table
            Has learned everything up to now.
        slot, shift
            Whose shift, and since when.
        """
        accepted, graded = self.recent.since(slot, shift.tokens_since)
        before = np.maximum(table.graded[-1, slot] - graded, 0.0)
        right = np.clip(table.accepted[-1, slot] - accepted, 0.0, before)
        returned = self.mixes.recognise(slot, accepted, graded)
        self.mixes.put_away(slot, right, before)
        if returned is not None:
            accepted, graded = accepted + returned[0], graded + returned[1]
        table.begin_at(slot, accepted, graded)
        return returned is not None

    def state(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"recent": self.recent.state(), "mixes": self.mixes.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.recent.load(state["recent"])
        self.mixes.load(state["mixes"])
