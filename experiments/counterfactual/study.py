"""Several policies on one trace's traffic, against the recorded one, and how far to believe it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.experiments.arms import arm_policy
from acclimate.experiments.counterfactual.answer import Answer, Arm, Pair, Tail, finite_quantile
from acclimate.experiments.counterfactual.passes import Pass
from acclimate.experiments.counterfactual.rerun import (
    learned_time,
    measured_share,
    rerun,
    speeds_of,
)
from acclimate.experiments.counterfactual.speeds import Speeds, total_speeds
from acclimate.experiments.counterfactual.traffic import Traffic, traffic_of
from acclimate.experiments.figures import Figure
from acclimate.experiments.run_record import Run
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.integrations.header import EngineHeader

ADAPTIVE = "adaptive"


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
            answer.renewal = Pair(total_speeds(drawn), total_speeds(drawn_again))
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
                    total_speeds(drawn[i] for i in both), total_speeds(drawn_again[i] for i in both)
                )
        return answer

    def figures(self) -> list[Figure]:
        """Say how well the recorded policy, served again, repeats the record."""
        seen = total_speeds(one.speeds() for one in self.base)
        steps = sum(len(one.outcomes) for one in self.base)
        requests = sum(len(traffic.workload) for traffic in self.traffic)
        again, n = total_speeds(self._again), len(self.base)
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
                Tail(
                    loop,
                    finite_quantile(predicted, 0.99),
                    finite_quantile(np.array(seen), 0.99),
                    len(seen),
                )
            )
    return tails


def _pair(
    runs: Sequence[Run], again: Sequence[Speeds], passes: Iterable[int] | None = None
) -> Pair:
    """Return an arm beside the recorded policy, over all passes or some."""
    chosen = range(len(runs)) if passes is None else list(passes)
    return Pair(
        total_speeds(speeds_of(runs[i]) for i in chosen), total_speeds(again[i] for i in chosen)
    )


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
