"""Loads an engine's latency curve when it starts, and saves it now and then and at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from acclimate.integrations.curve_store import CurveKey, CurveStore
from acclimate.predictors.latency import StepLatency
from acclimate.predictors.watched_latency import WatchedLatency

_SAVE_EVERY_S = 300.0
_WORTH_STEPS = 200  # less is not worth a file


class CurveKeeper:
    """One engine's curve and its file; no fault of the file is the engine's.

    Parameters
    ----------
    store, key
        Where the curve is kept, and whose it is.
    curve
        Returns the learner in force, None where the policy has none. Saving reads it while it may
        be learning: its arrays can then be one step apart.
    log
        Gets one line per start, and one for the first fault of each kind.
    save_every_s
        Seconds between two savings.
    """

    def __init__(
        self,
        store: CurveStore,
        key: CurveKey,
        curve: Callable[[], StepLatency | None],
        log: Callable[[str], None],
        *,
        save_every_s: float = _SAVE_EVERY_S,
    ) -> None:
        self._store, self._key, self._curve, self._log = store, key, curve, log
        self._save_every_s = save_every_s
        self._saved_steps = 0
        self._failed = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acclimate-curve", daemon=True)

    def start(self) -> None:
        """Load what there is, say so in a line, and save from now on."""
        curve = self._curve()
        if curve is None:
            self._log("this policy learns no step times, none are kept")
            return
        path = self._store.path_of(self._key)
        try:
            if self._store.load(self._key, curve):
                self._saved_steps = curve.steps
                if isinstance(curve, WatchedLatency):
                    curve.expect_change()  # clocks and neighbours may be others than then
                self._log(f"latency curve of {curve.steps} steps loaded from {path}")
            else:
                self._log(f"no latency curve of this engine in {self._store.folder}: starts cold")
        except (OSError, ValueError) as error:
            self._log(f"latency curve is not used: {error}: starts cold")
        self._thread.start()

    def close(self) -> None:
        """Save, and end."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)
            self._save()

    def _run(self) -> None:
        while not self._end.wait(self._save_every_s):
            self._save()

    def _save(self) -> None:
        curve = self._curve()
        if curve is None or curve.steps < _WORTH_STEPS or curve.steps == self._saved_steps:
            return
        try:
            steps = curve.steps
            self._store.save(self._key, curve)
            self._saved_steps = steps
        except OSError as error:
            if not self._failed:
                self._log(f"latency curve is not saved: {error}")
            self._failed = True
