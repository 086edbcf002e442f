"""One global alert when all traffic classes fall together: what fails them all is the engine's."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.numerics import FloatArray


class CommonShift:
    """Tells a fall of all slots from that of one, by their alarms.

    Slots are noticed one after the other, since their traffic differs. All have fallen together if,
    of those watched, at least ``share`` and no fewer than two alarmed downwards within
    ``within_steps``. The alert is given once, and again only after a rise or an equally long calm.

    Parameters
    ----------
    n_slots
        Slots that may alarm.
    within_steps
        Steps from the first of these alarms to the last.
    share
        Of the watched slots, in (0, 1].

    Examples
    --------
    >>> common = CommonShift(n_slots=3)
    >>> common.add(100, 0, fell=True, watched=2), common.add(130, 2, fell=True, watched=2)
    (False, True)
    """

    def __init__(self, n_slots: int, *, within_steps: int = 1_000, share: float = 0.8) -> None:
        if within_steps < 1:
            raise ValueError(f"within_steps must be >= 1, got {within_steps}")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share must be in (0, 1], got {share}")
        self.within_steps = within_steps
        self.share = share
        self._fell_at: FloatArray = np.full(n_slots, -np.inf)
        self._alerted_at = -np.inf

    def add(self, step: int, slot: int, *, fell: bool, watched: int) -> bool:
        """Take a slot's alarm; return whether it makes the alert.

        Parameters
        ----------
        step, slot
            When and whose; steps never go back.
        fell
            Whether acceptance went down.
        watched
            Slots watched at present.
        """
        if not fell:
            self._fell_at[slot] = -np.inf
            self._alerted_at = -np.inf
            return False
        self._fell_at[slot] = step
        recent = int(np.count_nonzero(self._fell_at > step - self.within_steps))
        if recent < 2 or recent < self.share * watched:
            return False
        again = step - self._alerted_at < self.within_steps
        self._alerted_at = float(step)
        return not again

    def restart(self) -> None:
        """Forget all alarms: a change was declared."""
        self._fell_at[:] = -np.inf
        self._alerted_at = -np.inf

    def state(self) -> dict[str, Any]:
        """Return everything as plain data; a slot without an alarm, or no alert, is -1."""
        fell = np.where(np.isfinite(self._fell_at), self._fell_at, -1.0)
        return {"fell_at": fell, "alerted_at": max(self._alerted_at, -1.0)}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another number of slots.
        """
        fell = np.array(state["fell_at"], dtype=np.float64)
        if fell.shape != self._fell_at.shape:
            raise ValueError(f"fell_at must have shape {self._fell_at.shape}, got {fell.shape}")
        self._fell_at = np.where(fell >= 0.0, fell, -np.inf)
        alerted = float(state["alerted_at"])
        self._alerted_at = alerted if alerted >= 0.0 else -np.inf
