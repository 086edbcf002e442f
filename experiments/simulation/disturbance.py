"""What makes steps longer than a table says: a throttled GPU, and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from acclimate.controller.records import FloatArray
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.luck import normal
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime

_NOISE = 7  # purpose of the luck


class ThrottledTime:
    """Step times that are longer by a factor while a GPU is throttled.

    Parameters
    ----------
    step_time
        Of the GPU at full speed.
    clock
        The simulation's: a step's factor is that at its beginning.
    windows
        Beginning, end (both in seconds) and factor of each window; factors of windows that
        overlap multiply.

    Examples
    --------
    >>> from acclimate.experiments.simulation.step_time import StepMakeUp
    >>> from acclimate.experiments.simulation.table_time import TableTime
    >>> clock = SimulatedClock()
    >>> times = ThrottledTime(TableTime([1, 1], [0, 1], [6.0, 7.0]), clock, [(1.0, 2.0, 1.5)])
    >>> before = times.step_ms(StepMakeUp(1, 0))
    >>> clock.now_ns = 1_500_000_000
    >>> before, times.step_ms(StepMakeUp(1, 0))
    (6.0, 9.0)
    """

    def __init__(
        self,
        step_time: StepTime,
        clock: SimulatedClock,
        windows: Sequence[tuple[float, float, float]],
    ) -> None:
        self._step_time = step_time
        self._clock = clock
        self._windows = tuple(windows)

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of one step that begins now."""
        return self.factor * self._step_time.step_ms(makeup)

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations with 0, 1, … ``makeup.verified`` drafts verified, of a step now."""
        return self.factor * self._step_time.curve(makeup)

    @property
    def factor(self) -> float:
        """By how much a step is longer now."""
        now_s = self._clock.now_s
        return math.prod(factor for start, end, factor in self._windows if start <= now_s < end)


class NoisyTime:
    """Step times with noise: each step that is asked for differs, a curve does not.

    Parameters
    ----------
    step_time
        Without noise.
    noise
        Standard deviation of the logarithm of a step's duration; its mean stays as it was.
    seed
        Of the noise: the same step numbers meet the same noise.

    Examples
    --------
    >>> from acclimate.experiments.simulation.step_time import StepMakeUp
    >>> from acclimate.experiments.simulation.table_time import TableTime
    >>> exact = TableTime([1, 1], [0, 1], [6.0, 7.0])
    >>> noisy = NoisyTime(exact, 0.02)
    >>> bool(0 < abs(noisy.step_ms(StepMakeUp(1, 0)) - 6.0) < 0.6)
    True
    """

    def __init__(self, step_time: StepTime, noise: float, *, seed: int = 0) -> None:
        if not 0.0 <= noise < math.inf:
            raise ValueError(f"noise must be >= 0 and finite, got {noise}")
        self._step_time = step_time
        self._noise = noise
        self._seed = seed
        self._step = 0

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of the next step."""
        self._step += 1
        deviation = self._noise * normal(self._seed, self._step, 0, 0, _NOISE)
        exact_ms = self._step_time.step_ms(makeup)
        return exact_ms * math.exp(deviation - 0.5 * self._noise**2)

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations without noise."""
        return self._step_time.curve(makeup)
