"""What the loop does about a noticed change of acceptance, beyond reporting it.

Predictions never wait for an alarm: `AcceptanceTable` mixes memories of several lengths by fixed
share, and the shortest has mostly forgotten the past when a detector is sure. But it knows little,
while the detector says since when the new law has held. So the evidence since then is put in the
place of what is over: an alarm leaves the slot with the estimate of one that was told the change
and began anew there. It shrinks, it never wipes: some tokens of what was believed before stay, and
the slot's pool keeps what others taught it. So a false alarm costs scatter for a while, no bias.
"""

from __future__ import annotations

from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.drift import Shift
from acclimate.predictors.recent_counts import RecentCounts


def restart_at_change(
    table: AcceptanceTable, recent: RecentCounts, slot: int, shift: Shift
) -> None:
    """Let a slot's evidence begin where its shift did.

    Parameters
    ----------
    table
        Has learned everything up to now.
    recent
        The same tokens, counted.
    slot, shift
        Whose shift, and since when.
    """
    accepted, graded = recent.since(slot, shift.tokens_since)
    table.begin_at(slot, accepted, graded)
