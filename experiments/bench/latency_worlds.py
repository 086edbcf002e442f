"""Engines whose step time is known, for a learner of step times to be judged by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.table_time import TableTime

F2_SURVIVALS = (
    (0.681, 0.391, 0.204, 0.101, 0.051),
    (0.76, 0.54, 0.39, 0.28, 0.21),
    (0.17, 0.15, 0.12, 0.01, 0.01),
)
"""Survival at positions 1 to 5 of three drafters (vllm#32374)."""
STALL_SHARE, STALL_FACTOR = 0.02, 10.0
NOISE = 0.05
_F2 = Path(__file__).parent.parent / "scenarios" / "f2.csv"
_BATCHES = (1, 4, 8, 12, 16, 24, 32)
_DEPTHS = (0, 1, 2, 3, 5)
CAPTURED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96)


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """Cells of one engine.

    Parameters
    ----------
    batches, depths
        Decode requests, and the depths that all of them verify alike.
    ms
        Shape (batches, depths): the true milliseconds of a step.
    noise
        Standard deviation of a step's logarithm.
    stalls
        Share of the steps that take ten times as long.
    """

    batches: tuple[int, ...]
    depths: tuple[int, ...]
    ms: FloatArray
    noise: float = NOISE
    stalls: float = STALL_SHARE

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Indices of batch and depth."""
        return [(b, d) for b in range(len(self.batches)) for d in range(len(self.depths))]

    def step_ms(self, cell: tuple[int, int], rng: np.random.Generator) -> float:
        """Return the duration of one step."""
        stalled = STALL_FACTOR if rng.random() < self.stalls else 1.0
        return float(self.ms[cell] * np.exp(self.noise * rng.standard_normal()) * stalled)

    def exact(self) -> World:
        """Return the same without noise and stalls."""
        return dataclasses.replace(self, noise=0.0, stalls=0.0)

    def slower(self, factor: float) -> World:
        """Return the same with every step longer."""
        return dataclasses.replace(self, ms=self.ms * factor)

    def throughput(self, ms: FloatArray, survival: tuple[float, ...]) -> FloatArray:
        """Return tokens per millisecond of every cell, if its steps took ``ms``."""
        accepted = np.concatenate([[0.0], np.cumsum(survival)])
        tokens: FloatArray = np.outer(self.batches, 1.0 + accepted[list(self.depths)]) / ms
        return tokens


def f2() -> World:
    """Return the measured table of facts: smooth, saturating at 256 requests."""
    table = TableTime.read(_F2)
    batches, depths = (1, 4, 16, 64, 256), (0, 1, 3, 5)
    ms = [[table.step_ms(StepMakeUp(n, n * k)) for k in depths] for n in batches]
    return World(batches, depths, np.array(ms))


def one_cliff() -> World:
    """Return an engine that lacks one graph: 33 to 48 tokens cost four times what 64 cost."""
    return _by_tokens(_lacks_a_graph)


def captures() -> World:
    """Return an engine that pads to captured sizes, and runs uncaptured above 96 tokens.

    Every second size was captured in a slower mode, so that more tokens are often cheaper.
    """
    return _by_tokens(captured_ms)


WORLDS: dict[str, Callable[[], World]] = {"f2": f2, "one_cliff": one_cliff, "captures": captures}


def captured_ms(tokens: int) -> float:
    """Return milliseconds of a step by its tokens, on the engine that pads.

    >>> captured_ms(9) == captured_ms(16) > captured_ms(24)
    True
    """
    size = next((size for size in CAPTURED if tokens <= size), None)
    if size is None:
        return 24.0 + 0.12 * tokens
    return (8.0 + 0.06 * size) * (1.6 if size in (4, 16, 32, 64) else 1.0)


def _by_tokens(ms_of: Callable[[int], float]) -> World:
    ms = [[ms_of(n * (k + 1)) for k in _DEPTHS] for n in _BATCHES]
    return World(_BATCHES, _DEPTHS, np.array(ms))


def _lacks_a_graph(tokens: int) -> float:
    """Return milliseconds of a step by its tokens.

    >>> _lacks_a_graph(48) / _lacks_a_graph(64)
    4.0
    """
    whole_ms = 8.0 + 0.05 * tokens
    return 4.0 * (8.0 + 0.05 * 64) if 32 < tokens <= 48 else whole_ms
