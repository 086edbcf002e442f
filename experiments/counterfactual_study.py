"""Several policies on one trace's traffic, against the recorded one, and how far to believe it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import FloatArray
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.counterfactual import (
    Traffic,
    learned_time,
    measured_share,
    rerun,
    speeds_of,
    traffic_of,
)
from acclimate.experiments.figures import Figure, ratio_interval
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.experiments.trace_passes import Pass, Speeds
from acclimate.integrations.header import EngineHeader

ADAPTIVE = "adaptive"


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
        return _quantile(np.concatenate([run.tpot_s for run in self.runs]), 0.99)

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


class Study:
    """The recorded traffic and its step times, with the recorded policy served again.

    Parameters
    ----------
    passes
        The trace's.
    engine
        What its header says of the engine.
    recorded
        Whose traffic is served again, by arm; None: the adaptive policy's where the trace has it,
        else that of the policy that most requests met.
    seed
        Draws what is not on record.

    Raises
    ------
    ValueError
        The trace has no pass of the recorded arm with a request that ended.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        engine: EngineHeader,
        *,
        recorded: str | None = None,
        seed: int = 0,
    ) -> None:
        self.passes, self.engine = list(passes), engine
        self.base = _recorded_passes(self.passes, recorded)
        self.policy = arm_of(self.base[0].policy)
        self.times, self.measured = learned_time(self.passes, engine)
        self.traffic = [traffic_of(one, engine, seed=seed) for one in self.base]
        self._drawn = [traffic_of(one, engine, use_hashes=False, seed=seed) for one in self.base]
        self._again = self._serve_again(self.traffic, self.times)

    @property
    def record_share(self) -> float:
        """Share of output tokens whose fate under any chain policy is on record."""
        tokens = np.array([traffic.workload.tokens for traffic in self.traffic])
        shares = np.array([traffic.record_share for traffic in self.traffic])
        return float((tokens * shares).sum() / tokens.sum())

    def answer(self, arm: Arm) -> Answer:
        """Serve the traffic again with an arm; what it learns it keeps from pass to pass."""
        runs = self._serve(arm, self.traffic, self.times)
        steps = sum(run.totals.steps for run in runs)
        seen = sum(measured_share(run, self.measured) * run.totals.steps for run in runs)
        answer = Answer(arm.name, _pair(runs, self._again), runs, seen / steps)
        drawn, drawn_again = [], []
        if self.record_share > 0:
            drawn = [speeds_of(run) for run in self._serve(arm, self._drawn, self.times)]
            drawn_again = self._serve_again(self._drawn, self.times)
            answer.renewal = Pair(_sum(drawn), _sum(drawn_again))
        if arm.name == self.policy:
            return answer
        mine = [one for one in self.passes if arm_of(one.policy) == arm.name and one.whole]
        both, met = [], []
        for index, base in enumerate(self.base):
            # A round's arms met the same traffic; each pass is taken once.
            same = next((one for one in mine if one.traffic == base.traffic), None)
            if same is not None:
                mine.remove(same)
                both.append(index)
                met.append(same)
                answer.measured.append(Pair(same.speeds(), base.speeds()))
        if answer.measured:
            answer.tails = _tails([runs[index] for index in both], met)
            others = [one for one in self.passes if arm_of(one.policy) != arm.name]
            times, _measured = learned_time(others, self.engine)
            answer.checked = _pair(runs, self._again, both)
            answer.held_out = _pair(
                self._serve(arm, self.traffic, times),
                self._serve_again(self.traffic, times),
                both,
            )
            if drawn:
                answer.simulated = Pair(
                    _sum(drawn[i] for i in both), _sum(drawn_again[i] for i in both)
                )
        return answer

    def figures(self) -> list[Figure]:
        """Say how well the recorded policy, served again, repeats the record."""
        seen = _sum(one.speeds() for one in self.base)
        steps = sum(len(one.outcomes) for one in self.base)
        requests = sum(len(traffic.workload) for traffic in self.traffic)
        again, n = _sum(self._again), len(self.base)
        name = "counterfactual/recorded"
        return [
            Figure("counterfactual/record_share", self.record_share, n=requests),
            Figure(f"{name}/speed_error", again.tokens_per_s / seen.tokens_per_s - 1, n=n),
            Figure(
                f"{name}/decode_speed_error",
                again.decode_tokens_per_s / seen.decode_tokens_per_s - 1,
                n=n,
            ),
            Figure(f"{name}/steps_error", again.steps / steps - 1, n=n),
        ]

    def _serve(self, arm: Arm, traffic: Sequence[Traffic], times: StepTime) -> list[Run]:
        policy = arm.build()
        return [rerun(one, policy, self.engine, times, arm.config) for one in traffic]

    def _serve_again(self, traffic: Sequence[Traffic], times: StepTime) -> list[Speeds]:
        """Serve with the recorded policy, each pass from the state that it began with.

        Where the policy cannot be built here, its measured speeds are what is compared with.
        """
        runs = []
        for one, requests in zip(self.base, traffic, strict=True):
            try:
                config = ControlConfig.read(one.config)
                policy = arm_policy(arm_of(one.policy), config, self.engine.capabilities)
                policy.load(one.state)
            except (ValueError, KeyError):
                return [each.speeds() for each in self.base]
            runs.append(speeds_of(rerun(requests, policy, self.engine, times, config)))
        return runs


def arm_of(policy: str) -> str:
    """Return the arm that a policy of a trace is.

    >>> arm_of("static:3"), arm_of("adaptive")
    ('k3', 'adaptive')
    """
    return f"k{policy.removeprefix('static:')}" if policy.startswith("static:") else policy


def _tails(runs: Sequence[Run], passes: Sequence[Pass]) -> list[Tail]:
    """Return the tails of runs and of the measured passes beside them, closed and open apart."""
    tails = []
    for closed, loop in ((True, "closed"), (False, "open")):
        chosen = [(r, p) for r, p in zip(runs, passes, strict=True) if p.closed is closed]
        seen = [q.tpot_s for _, one in chosen for q in one.served if q.tpot_s is not None]
        if seen:
            predicted = np.concatenate([run.tpot_s for run, _ in chosen])
            tails.append(
                Tail(loop, _quantile(predicted, 0.99), _quantile(np.array(seen), 0.99), len(seen))
            )
    return tails


def _pair(
    runs: Sequence[Run], again: Sequence[Speeds], passes: Iterable[int] | None = None
) -> Pair:
    """Return an arm beside the recorded policy, over all passes or some."""
    chosen = range(len(runs)) if passes is None else list(passes)
    return Pair(_sum(speeds_of(runs[i]) for i in chosen), _sum(again[i] for i in chosen))


def _recorded_passes(passes: Sequence[Pass], recorded: str | None) -> list[Pass]:
    """Return the passes whose traffic is served again; those that are whole where there are any."""
    usable = [one for one in passes if one.served]
    usable = [one for one in usable if one.whole] or usable
    if not usable:
        raise ValueError("a trace must hold a request that ended, got none")
    arms = [arm_of(one.policy) for one in usable]
    if recorded is None:
        requests = {arm: 0 for arm in arms}
        for arm, one in zip(arms, usable, strict=True):
            requests[arm] += len(one.served)
        recorded = ADAPTIVE if ADAPTIVE in requests else max(requests, key=requests.__getitem__)
    if recorded not in arms:
        raise ValueError(
            f"the recorded arm must be one of {', '.join(sorted(set(arms)))}, got {recorded!r}"
        )
    return [one for arm, one in zip(arms, usable, strict=True) if arm == recorded]


def _ratio(pair: Pair) -> float:
    return pair.ratio


def _decode_ratio(pair: Pair) -> float:
    return pair.decode_ratio


def _pooled(pairs: Sequence[Pair]) -> Pair:
    return Pair(_sum(pair.arm for pair in pairs), _sum(pair.base for pair in pairs))


def _sum(speeds: Iterable[Speeds]) -> Speeds:
    return sum(speeds, start=Speeds())


def _quantile(values: FloatArray, share: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if finite.size else float("nan")
