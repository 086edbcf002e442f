"""Streams of graded tokens whose acceptance changes once, for a policy to be right again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    int_array,
)
from acclimate.experiments.lab.recovery import Episode, RecoveryMeter, survival_beliefs
from acclimate.experiments.peers.clairvoyant import Clairvoyant

REQUESTS, DEPTH = 8, 5
BEFORE_TOKENS, LIMIT_TOKENS = 2_000, 12_000
LABEL = "stream"
_LOWEST, _HIGHEST, _LEAST_SHIFT = 0.2, 0.95, 0.1
_LIFE_STEPS = 30  # of a request
_STEP_NS = 20_000_000
_FIRE_EVERY_STEPS = 5
_NEVER_A_DAY = 1e-200


@dataclasses.dataclass(frozen=True, slots=True)
class Recovery:
    """What became of one policy on one stream.

    Parameters
    ----------
    tokens
        Graded since the change until beliefs were right; the limit where they never were.
    noticed
        The same until the first alarm.
    error
        Largest error of any position's survival at `recovery.CURVE_TOKENS` after the change.
    """

    tokens: float
    noticed: float
    error: list[float | None]


def draw_change(rng: np.random.Generator) -> tuple[float, float]:
    """Return the chance of a draft before and after a change.

    >>> before, after = draw_change(np.random.default_rng(0))
    >>> abs(before - after) >= 0.1
    True
    """
    while True:
        before, after = rng.uniform(_LOWEST, _HIGHEST, 2).tolist()
        if abs(before - after) >= _LEAST_SHIFT:
            return before, after


def arms() -> dict[str, Callable[[Capabilities], Policy]]:
    """Return who is judged: ours, told the change, without any alarm, with one all the time."""
    config = ControlConfig()
    deaf = ControlConfig.read({"learn": {"false_alarms_per_day": _NEVER_A_DAY}})
    return {
        "adaptive": lambda engine: AdaptivePolicy(config, engine),
        "clairvoyant": lambda engine: Clairvoyant(config, engine),
        "do_nothing": lambda engine: AdaptivePolicy(deaf, engine),
        "always_fire": lambda engine: _AlwaysFires(config, engine),
    }


def recover(
    build: Callable[[Capabilities], Policy], before: float, after: float, seed: int
) -> Recovery:
    """Serve requests whose drafts are right with one chance, then with another.

    Every request verifies a full draft in every step. Streams of one seed are alike.
    """
    engine = Capabilities(max_depth=DEPTH, depths=tuple(range(DEPTH + 1)), hindsight=True)
    policy, rng = build(engine), np.random.default_rng(seed)
    law = [np.cumprod(np.full(DEPTH, q)) for q in (before, after)]
    stream = _Stream(policy, rng)
    graded = 0
    while graded < BEFORE_TOKENS:
        graded += stream.step(before)
    changed_s = stream.now_ns / 1e9
    meter = RecoveryMeter(
        [LABEL],
        int_array([0]),
        lambda now_s: law[1][None, :],
        [Episode(label=LABEL, begin_s=changed_s, end_s=changed_s)],
        DEPTH,
    )
    if isinstance(policy, Clairvoyant):
        policy.changes.ahead = [stream.now_ns]
        policy.plan(stream.nothing())
    episode = meter.episodes[0]
    while episode.graded < LIMIT_TOKENS and (
        episode.recovered is None or episode.noticed is None or None in meter.error_curve()
    ):
        fresh = stream.step(after)
        meter.notice(stream.alarms, stream.now_ns / 1e9)
        meter.learn(survival_beliefs(policy, DEPTH), int_array([fresh]), stream.now_ns / 1e9)
    return Recovery(
        tokens=LIMIT_TOKENS if episode.recovered is None else episode.recovered,
        noticed=LIMIT_TOKENS if episode.noticed is None else episode.noticed,
        error=meter.error_curve(),
    )


class _AlwaysFires(AdaptivePolicy):
    """Takes every few steps for a change."""

    def observe(self, outcome: StepOutcome) -> list:  # type: ignore[type-arg]
        if outcome.step % _FIRE_EVERY_STEPS == 0:
            for slot in self.beliefs.slots.open_slots():
                self.beliefs.acceptance.doubt(slot)
        return list(super().observe(outcome))


class _Stream:
    """Requests that come and go, and the outcomes of their steps."""

    def __init__(self, policy: Policy, rng: np.random.Generator) -> None:
        self.policy, self.rng = policy, rng
        self.now_ns, self.number = 0, 0
        self.alarms: list = []  # type: ignore[type-arg]
        self._next = 0
        self._requests = [self._admit() for _ in range(REQUESTS)]

    def step(self, chance: float) -> int:
        """Verify every request's draft, let the policy learn; return the graded tokens."""
        self.number += 1
        self.now_ns += _STEP_NS
        for place in range(REQUESTS):
            if (self.number + place * _LIFE_STEPS // REQUESTS) % _LIFE_STEPS == 0:
                self.policy.forget(self._requests[place])
                self._requests[place] = self._admit()
        right = np.cumprod(self.rng.random((REQUESTS, DEPTH)) < chance, axis=1).sum(axis=1)
        graded = np.minimum(right + 1, DEPTH)
        requests = int_array(self._requests)
        all_of = np.full(REQUESTS, DEPTH)
        self.alarms = list(
            self.policy.observe(
                StepOutcome(
                    step=self.number,
                    now_ns=self.now_ns,
                    latency_ns=_STEP_NS,
                    decode_requests=REQUESTS,
                    verified_tokens=REQUESTS * DEPTH,
                    prefill_tokens=0,
                    context_tokens=100 * REQUESTS,
                    sampled_rows=0,
                    draft_depth=DEPTH,
                    requests=requests,
                    committed=right + 1,
                    drafts=DraftOutcomes(
                        request=requests,
                        drafted_by=np.full(REQUESTS, self.number - 1),
                        verified_by=np.full(REQUESTS, self.number),
                        proposed=all_of,
                        verified=all_of,
                        accepted=right,
                        start=np.zeros(REQUESTS, dtype=np.int64),
                        graded=graded,
                        matched=right,
                        fresh=graded,
                    ),
                )
            )
        )
        return int(graded.sum())

    def nothing(self) -> StepContext:
        """Return a step without requests."""
        none = int_array()
        return StepContext(
            step=self.number, now_ns=self.now_ns, waiting_prompts=0, prefill_forecast_tokens=0,
            requests=none, drafts=none, committed=none, context_tokens=none, tokens_left=none,
        )  # fmt: skip

    def _admit(self) -> int:
        self._next += 1
        self.policy.admit(
            RequestInfo(request=self._next, prompt_tokens=100, max_tokens=500, domain=LABEL)
        )
        return self._next
