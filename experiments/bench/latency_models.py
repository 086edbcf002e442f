"""Who predicts step times: our learner, and plain ones beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from acclimate.experiments.bench.latency_worlds import World
from acclimate.predictors.watched_latency import WatchedLatency

OURS = "acclimate"
_EMA_WEIGHT = 0.2
_RIDGE = 1e-6


class LatencyModel(Protocol):
    """Learns and predicts steps in which ``requests`` verify ``depth`` drafts each."""

    def learn(self, requests: int, depth: int, ms: float) -> None:
        """Learn the duration of one step."""

    def predict(self, requests: int, depth: int) -> float:
        """Return the expected duration in milliseconds."""


class Learned:
    """`WatchedLatency`, told what the controller tells it."""

    def __init__(self, world: World) -> None:
        largest = max(world.batches)
        self._model = WatchedLatency(largest, largest * max(world.depths))

    def learn(self, requests: int, depth: int, ms: float) -> None:
        """Learn the duration of one step."""
        self._model.learn(requests, requests * depth, latency_ms=ms, draft_depth=depth)

    def predict(self, requests: int, depth: int) -> float:
        """Return the expected duration in milliseconds."""
        return float(self._model.curve(requests, requests * depth, draft_depth=depth)[-1])


class LinearFit:
    """Least squares over constant, tokens in the batch and tokens drafted, as TurboSpec fits."""

    def __init__(self, world: World) -> None:
        self._gram = _RIDGE * np.eye(3)
        self._moment = np.zeros(3)

    def learn(self, requests: int, depth: int, ms: float) -> None:
        """Learn the duration of one step."""
        x = self._features(requests, depth)
        self._gram += np.outer(x, x)
        self._moment += x * ms

    def predict(self, requests: int, depth: int) -> float:
        """Return the expected duration in milliseconds; at least a microsecond."""
        fitted = np.linalg.solve(self._gram, self._moment)
        return max(float(self._features(requests, depth) @ fitted), 1e-3)

    @staticmethod
    def _features(requests: int, depth: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([1.0, requests * (depth + 1), requests * depth])


class CellMean:
    """The mean of each cell's steps; of all steps where a cell was not seen."""

    def __init__(self, world: World) -> None:
        self._cells: dict[tuple[int, int], tuple[float, int]] = {}

    def learn(self, requests: int, depth: int, ms: float) -> None:
        """Learn the duration of one step."""
        mean, n = self._cells.get((requests, depth), (0.0, 0))
        self._cells[requests, depth] = self._moved(mean, n, ms), n + 1

    def predict(self, requests: int, depth: int) -> float:
        """Return the expected duration in milliseconds."""
        if (requests, depth) in self._cells:
            return self._cells[requests, depth][0]
        seen = [mean for mean, _ in self._cells.values()]
        return float(np.mean(seen)) if seen else 1.0

    def _moved(self, mean: float, n: int, ms: float) -> float:
        return mean + (ms - mean) / (n + 1)


class CellEma(CellMean):
    """A moving average of each cell's steps, each new one counting a fifth."""

    def _moved(self, mean: float, n: int, ms: float) -> float:
        return ms if n == 0 else mean + _EMA_WEIGHT * (ms - mean)


class CellMedian:
    """The median of each cell's steps, all remembered: what forgetting nothing could know."""

    def __init__(self, world: World) -> None:
        self._cells: dict[tuple[int, int], list[float]] = {}

    def learn(self, requests: int, depth: int, ms: float) -> None:
        """Learn the duration of one step."""
        self._cells.setdefault((requests, depth), []).append(ms)

    def predict(self, requests: int, depth: int) -> float:
        """Return the expected duration in milliseconds."""
        if (requests, depth) in self._cells:
            return float(np.median(self._cells[requests, depth]))
        seen = [ms for cell in self._cells.values() for ms in cell]
        return float(np.median(seen)) if seen else 1.0


MODELS: dict[str, Callable[[World], LatencyModel]] = {
    OURS: Learned,
    "linear": LinearFit,
    "cell_mean": CellMean,
    "cell_ema": CellEma,
    "cell_median": CellMedian,
}
