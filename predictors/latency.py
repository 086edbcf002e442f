"""Duration of an engine step, learned while serving: a global line, a line per load, and cells.

Three levels, each shrunk towards the one above, so that a prediction is never an extrapolation
where something was measured, and never a lucky single cell where little was:

1. a ridge regression over the whole step: constant, decode requests, verified drafts, prefill
   tokens, context, sampled rows, first and further draft tokens, passes (T_v and T_d share it);
2. per decode count, an offset and a slope over verified drafts;
3. per (decode count, verified drafts), an offset: cliffs.

Where the sizes are known that an engine pads its steps to (CUDA graphs), they are read instead of
discovered: a step counts as long as its padded size, cells are those sizes, and steps beyond the
largest, which run without a graph, have lines of their own.

The lines forget; a cell keeps what its latest visits measured, which moves with its line: whoever
decides must look again at cells that were not visited for long (`StepLatency.evidence`).
A stall is told from a slow cell by repetition: far-off steps weigh nothing until they recur.
``pace`` scales everything at once; who moves it is `acclimate.predictors.watched_latency`.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from acclimate.predictors.latency_doubt import standard_error, write_errors
from acclimate.predictors.latency_interval import step_deviations
from acclimate.predictors.latency_kernels import (
    FEW_PREFILL_SHARE,
    FIRST_DRAFT,
    FURTHER_DRAFT,
    FURTHER_PASS,
    LEARNED,
    PREFILL,
    STALLED,
    VERIFIED,
    learn_step,
    step_curve,
)
from acclimate.predictors.latency_table import LatencyTable
from acclimate.predictors.numerics import FloatArray

_Makeup = tuple[int, int, int, int, int]  # requests, prefill, context, sampled rows, draft depth
_SETTLING_STEPS = 20  # before that, nothing is a stall


class StepLatency(LatencyTable):
    """Predicts milliseconds per step against the number of verified drafts.

    Parameters
    ----------
    max_requests
        Largest decode count; larger ones are clipped.
    max_verified
        Largest number of verified drafts in a step; larger ones are clipped.
    window_steps
        Steps after which evidence has decayed to 1/e.
    capture_sizes
        Token counts that the engine pads a step to, ascending; empty where it does not pad, or they
        are unknown.
    prices_drafting
        Whether draft depths tell what drafting costs. Where drafts come as deep as they do whatever is
        asked, their time is part of every step, and depths that never vary would only blur the rest.

    Attributes
    ----------
    pace
        What all lengths are multiplied with, 1 at first.
    verdict
        What became of the latest step: learned, set aside as a stall, or believed against what its
        cell had seen before (`latency_kernels.LEARNED`, ``STALLED``, ``BELIEVED``).

    Raises
    ------
    ValueError
        ``capture_sizes`` are not ascending and positive.

    Examples
    --------
    >>> model = StepLatency(max_requests=8, max_verified=32)
    >>> for step in range(200):
    ...     m = step % 5
    ...     _ = model.learn(4, m, latency_ms=20.0 + 0.5 * m)
    >>> model.curve(4, max_verified=4).round(1).tolist()
    [20.0, 20.5, 21.0, 21.5, 22.0]
    """

    def __init__(
        self,
        max_requests: int,
        max_verified: int,
        *,
        window_steps: float = 400.0,
        capture_sizes: tuple[int, ...] = (),
        prices_drafting: bool = True,
    ) -> None:
        super().__init__(max_requests, max_verified, capture_sizes, prices_drafting=prices_drafting)
        self.window_steps = window_steps
        self.verdict = LEARNED

    def curve(
        self,
        requests: int,
        max_verified: int,
        *,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        sampled_rows: int = 0,
        draft_depth: int = 0,
    ) -> FloatArray:
        """Return milliseconds for 0, 1, … ``max_verified`` verified drafts, shape (m + 1,)."""
        depth = draft_depth if self.prices_drafting else 0
        makeup = requests, prefill_tokens, context_tokens, sampled_rows, depth
        return self._curve(max_verified, makeup, self.pace)

    def interval(
        self,
        requests: int,
        max_verified: int,
        *,
        level: float = 0.9,
        of_mean: bool = False,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        sampled_rows: int = 0,
        draft_depth: int = 0,
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper milliseconds for 0, 1, … ``max_verified`` verified drafts.

        Parameters
        ----------
        level
            Share of steps, stalls apart, that take between the two; in (0, 1).
        of_mean
            Whether the bounds are those of the expected length instead of a single step's.

        Returns
        -------
        tuple of arrays, shape (m + 1,)

        Raises
        ------
        ValueError
            ``level`` is not between 0 and 1.

        Examples
        --------
        >>> model = StepLatency(max_requests=8, max_verified=32)
        >>> for step in range(200):
        ...     _ = model.learn(4, 8, latency_ms=20.0 + step % 3)
        >>> low, high = model.interval(4, 8)
        >>> low[[0, 8]].round(1).tolist(), high[[0, 8]].round(1).tolist()
        ([17.7, 19.6], [23.4, 22.4])
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}")
        depth = draft_depth if self.prices_drafting else 0
        makeup = requests, prefill_tokens, context_tokens, sampled_rows, depth
        curve = self._curve(max_verified, makeup, 1.0)
        of_expected, of_step = np.empty_like(curve), np.empty_like(curve)
        cells, counts = self._tables(requests)
        for load, first, end in self._modes(requests, curve.shape[0]):
            if first == end:
                continue
            step_deviations(
                of_expected,
                of_step,
                curve,
                self.gram,
                self.load_sums,
                self.visits,
                self.scatter_ms,
                float(self.cliffs[0]),
                cells,
                counts,
                load,
                first,
                end,
                *makeup,
            )
        reach = NormalDist().inv_cdf(0.5 + level / 2.0) * (of_expected if of_mean else of_step)
        return self.pace * np.maximum(curve - reach, 0.01), self.pace * (curve + reach)

    def drafting(self, requests: int, depths: FloatArray) -> FloatArray:
        """Return milliseconds beyond depth 0 that drafting costs at each of ``depths``.

        T_d(n, d) = a·n·min(d, 1) + (b·n + c)·max(d - 1, 0) for n requests.
        """
        if not self.prices_drafting:
            return np.zeros_like(depths)
        # As the line has it, so that both parts of a step that was measured add up to it.
        first, token, each = self.theta[[FIRST_DRAFT, FURTHER_DRAFT, FURTHER_PASS]].tolist()
        further = np.maximum(depths - 1.0, 0.0)
        cost = first * requests * np.minimum(depths, 1.0) + (token * requests + each) * further
        result: FloatArray = self.pace * np.maximum(cost, 0.0)
        return result

    def prefill(self, prefill_tokens: int) -> float:
        """Return the milliseconds of a step that its prefill tokens account for."""
        return self.pace * max(float(self.theta[PREFILL]), 0.0) * prefill_tokens

    @property
    def verified_ms(self) -> float:
        """Milliseconds per verified draft on the global line."""
        return self.pace * max(float(self.theta[VERIFIED]), 0.0)

    @staticmethod
    def is_clean(prefill_tokens: int, decode_tokens: int) -> bool:
        """Whether a step has so little prefill that it tells how long its decode tokens take."""
        return prefill_tokens <= FEW_PREFILL_SHARE * decode_tokens

    def doubt(self, requests: int, verified: int, step_ms: float) -> float | None:
        """Return the standard error of ``step_ms``, the length predicted; None if hardly measured.

        It counts every step that was ever measured here: what has changed since is for those to
        notice who watch for change.
        """
        load, cell = self._place(requests, verified)
        scatter_ms = self.pace * float(self.scatter_ms[load])
        error = standard_error(self.visits[load], cell, scatter_ms, step_ms)
        return error if error < math.inf else None

    def errors(self, requests: int, milliseconds: FloatArray) -> FloatArray:
        """Return the standard errors of a `curve`, infinite where hardly measured; see `doubt`."""
        errors = np.empty_like(milliseconds)
        cells, _ = self._tables(requests)
        for load, first, end in self._modes(requests, milliseconds.shape[0]):
            scatter_ms = self.pace * float(self.scatter_ms[load])
            write_errors(errors, milliseconds, self.visits[load], scatter_ms, cells, first, end)
        return errors

    def learn(
        self,
        requests: int,
        verified: int,
        *,
        latency_ms: float,
        prefill_tokens: int = 0,
        context_tokens: int = 0,
        sampled_rows: int = 0,
        draft_depth: int = 0,
    ) -> float:
        """Learn from one step, and return the prediction made for it before.

        Raises
        ------
        ValueError
            ``latency_ms`` is not a positive finite number.
        """
        if not 0.0 < latency_ms < math.inf:
            raise ValueError(f"latency_ms must be positive and finite, got {latency_ms}")
        self.steps += 1
        load, cell = self._place(requests, verified)
        _, counts = self._tables(requests)
        predicted_ms, self.verdict = learn_step(
            self.theta,
            self.gram,
            self.moment,
            self._ridge,
            self._ridge_moment,
            self.load_sums,
            self.scatter_ms,
            self.far_share,
            self.visits,
            self.weights,
            self.cells,
            self.cliffs,
            load,
            cell,
            requests,
            counts[min(verified, self.max_verified)],
            prefill_tokens,
            context_tokens,
            sampled_rows,
            draft_depth if self.prices_drafting else 0,
            latency_ms / self.pace,
            math.exp(-1.0 / self.window_steps),
            self.steps > _SETTLING_STEPS,
        )
        self.stalls += self.verdict == STALLED
        return float(predicted_ms * self.pace)

    def _curve(self, max_verified: int, makeup: _Makeup, pace: float) -> FloatArray:
        requests = makeup[0]
        curve = np.empty(min(max_verified, self.max_verified) + 1)
        cells, counts = self._tables(requests)
        for load, first, end in self._modes(requests, curve.shape[0]):
            if first == end:
                continue
            step_curve(
                curve,
                self.theta,
                self.load_sums,
                self.visits,
                self.cells,
                self.scatter_ms,
                cells,
                counts,
                load,
                first,
                end,
                *makeup,
                pace,
            )
        return curve
