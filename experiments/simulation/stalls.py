"""What a shared machine adds: now and then a step takes several times as long."""

from __future__ import annotations

from acclimate.controller.records import FloatArray
from acclimate.experiments.simulation.luck import uniform
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime

_STALL = 8  # purpose of the luck


class StalledTime:
    """Step times of which a share is longer by a factor; a curve is not.

    Parameters
    ----------
    step_time
        Without stalls.
    share
        Of the steps that stall, in [0, 1].
    factor
        By which a stalled step is longer, at least 1.
    seed
        Of the stalls: the same step numbers stall.

    Raises
    ------
    ValueError
        Share or factor is out of range.

    Examples
    --------
    >>> from acclimate.experiments.simulation.step_time import StepMakeUp
    >>> from acclimate.experiments.simulation.table_time import TableTime
    >>> times = StalledTime(TableTime([1, 1], [0, 1], [6.0, 7.0]), share=0.1, factor=10.0)
    >>> drawn = [times.step_ms(StepMakeUp(1, 0)) for _ in range(1000)]
    >>> sorted(set(drawn)), 70 < drawn.count(60.0) < 130
    ([6.0, 60.0], True)
    """

    def __init__(self, step_time: StepTime, *, share: float, factor: float, seed: int = 0) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share must be in [0, 1], got {share}")
        if not factor >= 1.0:
            raise ValueError(f"factor must be >= 1, got {factor}")
        self._step_time = step_time
        self._share = share
        self._factor = factor
        self._seed = seed
        self._step = 0

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of the next step."""
        self._step += 1
        stalls = uniform(self._seed, self._step, 0, 0, _STALL) < self._share
        step_ms = self._step_time.step_ms(makeup)
        return step_ms * (self._factor if stalls else 1.0)

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations without stalls."""
        return self._step_time.curve(makeup)
