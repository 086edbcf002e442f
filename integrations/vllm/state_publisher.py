"""Shows the state of an engine core on its page: load at once, everything else once a second."""

from __future__ import annotations

import atexit
from collections.abc import Callable

from acclimate.controller.engine_state import EngineState
from acclimate.integrations.state_page import StatePage

INTERVAL_NS = 1_000_000_000


class StatePublisher:
    """Writes to a page what a bridge tells it; no fault of a page leaves it.

    Parameters
    ----------
    page
        Where to write.
    log
        Gets one line when a write fails, and one when a state is too large for the page.

    Attributes
    ----------
    faults
        Writes that failed. After the first nothing is shown any more.
    """

    def __init__(self, page: StatePage, log: Callable[[str], None] = lambda line: None) -> None:
        self.faults = 0
        self._page: StatePage | None = page
        self._log = log
        self._lost_told = False
        self._due_ns: int | None = None
        atexit.register(self.close)

    def load(self, running: int, waiting: int) -> None:
        """Show how many requests run and wait."""
        page = self._page
        if page is not None:
            self._try(lambda: page.load(running, waiting))

    def step(self, state: Callable[[], EngineState], now_ns: int) -> None:
        """Show the whole state if that was not done for a second.

        Parameters
        ----------
        state
            Asked for only then.
        now_ns
            The loop's clock.
        """
        page = self._page
        if page is None or (self._due_ns is not None and now_ns < self._due_ns):
            return
        self._due_ns = now_ns + INTERVAL_NS
        self._try(lambda: page.write(state()))
        if page.lost and not self._lost_told:
            self._lost_told = True
            self._log("state is too large for its page: routers see the last one that was not")

    def close(self) -> None:
        """Take the page away; a second call does nothing."""
        page, self._page = self._page, None
        if page is not None:
            atexit.unregister(self.close)
            try:
                page.close()
            except Exception:  # it goes with the process
                self.faults += 1

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:  # what routers are shown must not cost the engine a step
            self.faults += 1
            self._log(f"state is not shown any more: {type(error).__name__}: {error}")
            self.close()
