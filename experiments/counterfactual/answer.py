"""What one arm would have done on recorded traffic, as figures with their errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import FloatArray
from acclimate.experiments.counterfactual.speeds import Speeds, total_speeds
from acclimate.experiments.figures import Figure, ratio_interval
from acclimate.experiments.run_record import Run


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """A policy to be tried on recorded traffic: how it is called, and how it is made."""

    name: str
    build: Callable[[], Policy]
    config: ControlConfig


@dataclasses.dataclass(slots=True)
class Pair:
    """An arm and the recorded policy, both served again in one way."""

    arm: Speeds
    base: Speeds

    @property
    def ratio(self) -> float:
        """The arm's speed over the recorded policy's, prompts included."""
        return self.arm.tokens_per_s / self.base.tokens_per_s

    @property
    def decode_ratio(self) -> float:
        """The same over steps without prompts."""
        return self.arm.decode_tokens_per_s / self.base.decode_tokens_per_s


@dataclasses.dataclass(frozen=True, slots=True)
class Tail:
    """99th percentiles of time per output token, predicted and measured, on the same traffic.

    Parameters
    ----------
    loop
        ``closed`` or ``open``.
    requests
        That were measured.
    """

    loop: str
    predicted_s: float
    measured_s: float
    requests: int

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1.0


@dataclasses.dataclass(slots=True)
class Answer:
    """What one arm would have done, and what is known of how well that is answered.

    Parameters
    ----------
    arm
        Its name.
    predicted
        The answer.
    runs
        The arm's runs, one per recorded pass.
    measured_steps
        Share of the arm's steps at loads that were measured.
    renewal
        As predicted, with drafts drawn from logged acceptance; None where that is all there is.
    checked
        As predicted, of those passes alone whose traffic the trace shows with the arm as well; None
        where there is none.
    held_out
        As checked, with step times learned without the arm's own steps.
    simulated
        As checked, with drafts drawn from logged acceptance.
    measured
        Where the trace has the arm on the same traffic: speeds per round.
    tails
        The same: 99th percentiles of the requests' times per output token, in closed and in open
        loop.
    """

    arm: str
    predicted: Pair
    runs: list[Run]
    measured_steps: float
    renewal: Pair | None = None
    checked: Pair | None = None
    held_out: Pair | None = None
    simulated: Pair | None = None
    measured: list[Pair] = dataclasses.field(default_factory=list)
    tails: list[Tail] = dataclasses.field(default_factory=list)

    @property
    def tpot_p99_s(self) -> float:
        """99th percentile of the requests' time per output token; NaN without any."""
        return finite_quantile(np.concatenate([run.tpot_s for run in self.runs]), 0.99)

    def figures(self, rng: np.random.Generator) -> list[Figure]:
        """Return the answer as figures; errors are of ratios, and 0 is none."""
        name = f"counterfactual/{self.arm}"
        n = int(sum(len(run.tokens) for run in self.runs))
        figures = [
            Figure(f"{name}/tokens_per_s", self.predicted.arm.tokens_per_s, unit="tok/s", n=n),
            Figure(f"{name}/ratio", self.predicted.ratio, n=n),
            Figure(f"{name}/decode_ratio", self.predicted.decode_ratio, n=n),
            Figure(f"{name}/tpot_p99", 1e3 * self.tpot_p99_s, unit="ms", n=n),
            Figure(f"{name}/measured_step_share", self.measured_steps, n=n),
        ]
        if self.renewal is not None:
            error = self.renewal.ratio / self.predicted.ratio - 1
            figures.append(Figure(f"{name}/renewal_ratio_error", error, n=n))
        if not self.measured:
            return figures
        rounds = len(self.measured)
        figures += [
            Figure(f"{name}/{tail.loop}_tpot_p99_error", tail.error, n=tail.requests)
            for tail in self.tails
        ]
        for what, ratio_of in (("ratio", _ratio), ("decode_ratio", _decode_ratio)):
            measured = ratio_of(_pooled(self.measured))
            ratios = [ratio_of(one) for one in self.measured]
            spread = ratio_interval(f"{name}/measured_{what}", ratios, [1.0] * rounds, rng)
            figures.append(dataclasses.replace(spread, value=measured))
            for error_name, pair in (
                (f"{name}/{what}_error", self.checked),
                (f"{name}/held_out_{what}_error", self.held_out),
                (f"simulator/{self.arm}/{what}_error", self.simulated),
            ):
                if pair is not None:
                    error = ratio_of(pair) / measured - 1
                    figures.append(Figure(error_name, error, n=rounds))
        return figures


def finite_quantile(values: FloatArray, share: float) -> float:
    """Return a quantile of the finite values; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if finite.size else float("nan")


def _ratio(pair: Pair) -> float:
    return pair.ratio


def _decode_ratio(pair: Pair) -> float:
    return pair.decode_ratio


def _pooled(pairs: Sequence[Pair]) -> Pair:
    return Pair(total_speeds(pair.arm for pair in pairs), total_speeds(pair.base for pair in pairs))
