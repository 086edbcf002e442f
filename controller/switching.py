"""Stability of the depth: hold it for the dwell, leave it only on a lower bound of the gain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from acclimate.controller.config import SwitchConfig
from acclimate.controller.records import FloatArray

_SECOND_NS = 1_000_000_000


class DepthSwitch:
    """Decides when the depth changes, from each step's value of every allowed depth.

    The gain of leaving the present depth is averaged over recent time, with its standard error;
    the depth with the largest lower bound wins, if the bound exceeds the price of a switch spread
    over the dwell. Seconds are the only measure of time.

    Parameters
    ----------
    depths
        Allowed depths, ascending.
    config
        Dwell, confidence, price of a switch, and an optional frozen depth.

    Examples
    --------
    >>> switch = DepthSwitch((0, 2, 4), SwitchConfig(dwell_s=1.0, confidence=1.0))
    >>> switch.decide(np.array([0.0, 1.0, 0.5]), now_ns=0, step_ms=10.0)
    2
    >>> [switch.decide(np.array([0.0, 1.0, 3.0]), n * 300_000_000, 10.0) for n in range(1, 6)]
    [2, 2, 2, 4, 4]
    """

    def __init__(self, depths: tuple[int, ...], config: SwitchConfig) -> None:
        self.depths = depths
        self.config = config
        self.index: int | None = None
        self.since_ns = 0
        self.best: int | None = None
        self._last_ns = 0
        self._weight = 0.0
        self._squared_weight = 0.0
        self._mean = np.zeros(len(depths))
        self._square = np.zeros(len(depths))
        if config.freeze_depth is not None and config.freeze_depth not in depths:
            raise ValueError(
                f"freeze_depth must be one of {list(depths)}, got {config.freeze_depth}"
            )

    def decide(self, values: FloatArray, now_ns: int, step_ms: float) -> int:
        """Return the depth for this step.

        Parameters
        ----------
        values
            Shape (len(depths),): objective of each depth in this step, in tokens.
        now_ns
            The loop's clock.
        step_ms
            Expected duration of a step, which spreads the price of a switch.
        """
        if self.config.freeze_depth is not None:
            return self.config.freeze_depth
        if self.index is None:
            self._switch(int(np.argmax(values)), now_ns)
            return self.depths[self.index or 0]
        self._average(values - values[self.index], now_ns)
        bounds = self._lower_bounds()
        spread = max(step_ms, 0.01) / max(1000.0 * self.config.dwell_s, step_ms, 0.01)
        bounds = bounds - self.config.cost_tokens * spread
        bounds[self.index] = 0.0
        best = int(np.argmax(bounds))
        self.best = self.depths[best]
        if bounds[best] > 1e-9 and now_ns - self.since_ns >= self.config.dwell_s * _SECOND_NS:
            self._switch(best, now_ns)
        return self.depths[self.index]

    def state(self) -> dict[str, Any]:
        """Return what is held, as plain data."""
        return {
            "index": self.index,
            "since_ns": self.since_ns,
            "last_ns": self._last_ns,
            "weight": self._weight,
            "squared_weight": self._squared_weight,
            "mean": self._mean.copy(),
            "square": self._square.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.index = state["index"]
        self.since_ns = int(state["since_ns"])
        self._last_ns = int(state["last_ns"])
        self._weight = float(state["weight"])
        self._squared_weight = float(state["squared_weight"])
        self._mean = np.array(state["mean"], dtype=np.float64)
        self._square = np.array(state["square"], dtype=np.float64)

    def _switch(self, index: int, now_ns: int) -> None:
        self.index = index
        self.best = self.depths[index]
        self.since_ns = self._last_ns = now_ns
        self._weight = self._squared_weight = 0.0
        self._mean[:] = 0.0
        self._square[:] = 0.0

    def _average(self, gains: FloatArray, now_ns: int) -> None:
        window_ns = max(self.config.dwell_s, 0.25) * _SECOND_NS
        keep = math.exp(-(now_ns - self._last_ns) / window_ns)
        self._last_ns = now_ns
        self._weight = self._weight * keep + 1.0
        self._squared_weight = self._squared_weight * keep * keep + 1.0
        share = 1.0 / self._weight
        self._mean += share * (gains - self._mean)
        self._square += share * (gains * gains - self._square)

    def _lower_bounds(self) -> FloatArray:
        effective = self._weight**2 / self._squared_weight
        variance = np.maximum(self._square - self._mean**2, 0.0) / max(effective - 1.0, 0.5)
        return self._mean - self.config.confidence * np.sqrt(variance)
