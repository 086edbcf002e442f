"""How long steps that verify nothing really take, at each load: the yardstick of every twin."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.predictors.numerics import geometric_buckets, load_arrays, save_arrays

_MAX_REQUESTS = 512
_TRUSTED_STEPS = 3  # that must be seen of a load before a twin is trusted there
_DUE_EVERY = 100  # steps at a load, after which another is due
_GAIN, _RANGE = 0.05, 1.25
_PREDICTION_STEPS = 8.0  # plain steps that a prediction is worth: single ones scatter more
_ARRAYS = ("plain_steps", "plain_ratio", "steps_since")


class PlainSteps:
    """Measured plain steps over what the latency model predicts of them, by load.

    Up to 16 requests each load is its own, beyond that eight share an octave, up to 512.

    Examples
    --------
    >>> plain = PlainSteps()
    >>> plain.due(4)
    True
    >>> for _ in range(400):
    ...     plain.learn(4, measured_ms=11.0, predicted_ms=10.0)
    >>> plain.due(4), round(plain.expected_ms(4, 10.0), 2), plain.expected_ms(5, 10.0)
    (False, 11.0, 10.0)
    """

    def __init__(self) -> None:
        self._load = geometric_buckets(_MAX_REQUESTS, exact=16, per_octave=8)
        n_loads = int(self._load[-1]) + 1
        self.plain_steps = np.zeros(n_loads, dtype=np.int64)
        self.plain_ratio = np.ones(n_loads)
        self.steps_since = np.zeros(n_loads, dtype=np.int64)

    def expected_ms(self, requests: int, predicted_ms: float) -> float:
        """Return how long a plain step with so many requests takes that is predicted to take so long."""
        return predicted_ms * float(self.plain_ratio[self._at(requests)])

    def due(self, requests: int) -> bool:
        """Whether another plain step must be seen before anybody knows what the twin would do."""
        load = self._at(requests)
        return bool(self.plain_steps[load] < _TRUSTED_STEPS or self.steps_since[load] >= _DUE_EVERY)

    def pass_by(self, requests: int) -> None:
        """Count a step that was no plain one."""
        self.steps_since[self._at(requests)] += 1

    def learn(self, requests: int, *, measured_ms: float, predicted_ms: float) -> None:
        """Learn from a plain step."""
        load = self._at(requests)
        self.plain_steps[load] += 1
        self.steps_since[load] = 0
        if self.plain_steps[load] == 1:
            return  # nothing was measured here before, and what was predicted is a guess
        gain = max(1.0 / (_PREDICTION_STEPS + self.plain_steps[load]), _GAIN)
        # What is further off is a stall.
        ratio = min(max(measured_ms / predicted_ms, 1.0 / _RANGE), _RANGE)
        self.plain_ratio[load] += gain * (ratio - self.plain_ratio[load])

    def state(self) -> dict[str, Any]:
        """Return everything that `load` needs."""
        return save_arrays(self, _ARRAYS)

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        load_arrays(self, _ARRAYS, state)

    def _at(self, requests: int) -> int:
        return int(self._load[min(requests, _MAX_REQUESTS)])
