"""A toy engine for policies: closed loop, known acceptance, known latency, its own clock."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from acclimate.controller.policy import Policy
from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    RequestInfo,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.controller.reports import Alarm

Acceptance = Callable[[int], tuple[float, ...]]
"""Conditional acceptance per position as a function of the step."""


@dataclasses.dataclass
class Tally:
    """What happened in a run."""

    tokens: int = 0
    milliseconds: float = 0.0
    depth: list[int] = dataclasses.field(default_factory=list)
    verified: list[int] = dataclasses.field(default_factory=list)
    plans: list[StepPlan] = dataclasses.field(default_factory=list)
    alarms: list[Alarm] = dataclasses.field(default_factory=list)

    @property
    def rate(self) -> float:
        """Tokens per millisecond."""
        return self.tokens / self.milliseconds

    @property
    def switches(self) -> int:
        """Changes of the planned depth."""
        held = [plan.depth for plan in self.plans]
        return sum(a != b for a, b in itertools.pairwise(held))


class ToyEngine:
    """Runs a policy at given batch sizes.

    ``latency_ms(n, m, d)`` is the step's duration for n requests, m verified and d drafted tokens;
    ``noise`` its relative scatter. Drafts come as the previous step's depth asked, or always
    ``max_depth`` where drafting is free; ``length`` draws how many are found. ``about`` gives more
    of what is known of each request, by its number, and ``acceptance_of`` its own acceptance; then
    the policy is also told when one ends.
    """

    def __init__(
        self,
        policy: Policy,
        capabilities: Capabilities,
        acceptance: Acceptance,
        latency_ms: Callable[[int, int, int], float],
        *,
        seed: int = 0,
        noise: float = 0.02,
        tokens_per_request: int = 120,
        length: Callable[[np.random.Generator], int] | None = None,
        about: Callable[[int], dict[str, Any]] | None = None,
        acceptance_of: Callable[[int], tuple[float, ...]] | None = None,
    ) -> None:
        self.policy = policy
        self.capabilities = capabilities
        self.acceptance = acceptance
        self.latency_ms = latency_ms
        self.rng = np.random.default_rng(seed)
        self.noise = noise
        self.length = length
        self.about = about
        self.acceptance_of = acceptance_of
        self.tokens_per_request = tokens_per_request
        self.now_ns = 0
        self.step = 0
        self.begun_ns: dict[int, int] = {}
        self.seconds: dict[int, float] = {}  # from the first token on, of requests that ended
        self._next = 0
        self._alive: list[int] = []
        self._committed: dict[int, int] = {}
        self._drafts: dict[int, int] = {}

    def run(self, batch: int | Callable[[int], int], steps: int) -> Tally:
        """Run some steps at a batch size, or at ``batch(step)``."""
        tally = Tally()
        for _ in range(steps):
            self._fill(batch if isinstance(batch, int) else batch(self.step))
            self._one_step(tally)
        return tally

    def _fill(self, batch: int) -> None:
        ended = [r for r in self._alive if self._committed[r] >= self.tokens_per_request]
        for request in ended:
            if self.about is not None:
                self.policy.forget(request)
            self.seconds[request] = (self.now_ns - self.begun_ns[request]) / 1e9
        self._alive = [r for r in self._alive if self._committed[r] < self.tokens_per_request]
        while len(self._alive) < batch:
            self._next += 1
            known = {
                "prompt_tokens": 20, "max_tokens": 10_000, "domain": "toy",
                "arrival_ns": self.now_ns,
                **(self.about(self._next) if self.about else {}),
            }  # fmt: skip
            self.policy.admit(RequestInfo(request=self._next, **known))
            self.begun_ns[self._next] = self.now_ns
            self._alive.append(self._next)
            self._committed[self._next] = 1
            self._drafts[self._next] = 0

    def _one_step(self, tally: Tally) -> None:
        self.step += 1
        running = self._alive
        n = len(running)
        drafts = int_array([self._drafts[r] for r in running])
        context = StepContext(
            step=self.step,
            now_ns=self.now_ns,
            waiting_prompts=0,
            prefill_forecast_tokens=0,
            requests=int_array(running),
            drafts=drafts,
            committed=int_array([self._committed[r] for r in running]),
            context_tokens=int_array([20 + self._committed[r] for r in running]),
            tokens_left=int_array([10_000] * n),
        )
        plan = self.policy.plan(context)
        q = self.acceptance(self.step)
        lens = plan.verify_lens
        asked = plan.draft_depth
        if self.acceptance_of is not None:
            q = [self.acceptance_of(r) for r in running]
        fate = self.rng.random((n, self.capabilities.max_depth)) < np.array(q)
        runs = np.where(fate.all(axis=1), fate.shape[1], np.argmin(fate, axis=1))
        accepted = np.minimum(runs, lens)
        if self.capabilities.hindsight:
            matched = np.minimum(runs, drafts)
            graded = np.minimum(matched + 1, drafts)
        else:
            matched = accepted
            graded = np.minimum(accepted + 1, lens)
        m = int(lens.sum())
        ms = self.latency_ms(n, m, asked) * float(np.exp(self.noise * self.rng.normal()))
        self.now_ns += int(1e6 * ms)
        for index, request in enumerate(running):
            self._committed[request] += int(accepted[index]) + 1
            found = asked if not self.capabilities.free_drafts else self.capabilities.max_depth
            self._drafts[request] = min(found, self.length(self.rng)) if self.length else found
        tally.alarms += self.policy.observe(
            StepOutcome(
                step=self.step,
                now_ns=self.now_ns,
                latency_ns=int(1e6 * ms),
                decode_requests=n,
                verified_tokens=m,
                prefill_tokens=0,
                context_tokens=int(context.context_tokens.sum()),
                sampled_rows=0,
                draft_depth=asked,
                requests=context.requests,
                committed=accepted + 1,
                drafts=DraftOutcomes(
                    request=context.requests,
                    drafted_by=int_array([self.step - 1] * n),
                    verified_by=int_array([self.step] * n),
                    proposed=drafts,
                    verified=lens,
                    accepted=accepted,
                    start=int_array([0] * n),
                    graded=graded,
                    matched=matched,
                    fresh=graded,
                ),
            )
        )
        tally.tokens += int(accepted.sum()) + n
        tally.milliseconds += ms
        tally.depth.append(plan.depth)
        tally.verified.append(m)
        tally.plans.append(plan)
