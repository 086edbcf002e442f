"""TurboSpec: the depth of largest predicted goodput, from one acceptance rate for all traffic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, FloatArray, StepContext, StepOutcome
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.base import DepthPeer, moved, verified_drafts
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.predictors.numerics import load_arrays, save_arrays

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

START_ACCEPTANCE = 0.7
EMA_WEIGHT = 0.15
INTERVAL_STEPS = 20
_RIDGE = 1e-6
_PROFILED_REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class TurboSpec(DepthPeer):
    """One acceptance rate alpha for all requests and positions; latency linear in tokens.

    A step of depth k is expected to commit n·(1 - alpha^(k+1))/(1 - alpha) tokens, in c₀ + c₁·(tokens
    in the batch) + c₂·(context tokens) + c₃·(tokens drafted) milliseconds. Every 20 steps the depth
    of the largest quotient is taken, 0 included. alpha moves by 0.15 towards each step's share of
    accepted among judged drafts; at depth 0 it stays, so that an alpha that fell too low is never
    corrected unless the load makes speculation look worth while again.

    The linear fit is offline in the paper: with ``profile`` it is made once, at start-up. Without
    one it is made from the steps served.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    profile
        Step times for the offline fit; None: fitted while serving.
    weight, interval_steps
        How far alpha moves with a step, and steps between decisions.

    Examples
    --------
    >>> peer = TurboSpec(Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5)))
    >>> peer.depth, round(peer.expected_tokens(requests=2, depth=2), 2)
    (5, 4.38)
    """

    FOLLOWS: ClassVar[str] = "TurboSpec, arXiv 2406.14066v3"
    name = "turbospec"

    def __init__(
        self,
        capabilities: Capabilities,
        profile: StepTime | None = None,
        *,
        weight: float = EMA_WEIGHT,
        interval_steps: int = INTERVAL_STEPS,
    ) -> None:
        super().__init__(capabilities, capabilities.max_depth)
        self.weight, self.interval_steps = weight, interval_steps
        self.acceptance = START_ACCEPTANCE
        self.gram = _RIDGE * np.eye(4)
        self.moment = np.zeros(4)
        self._profiled = profile is not None
        self._steps = 0
        if profile is not None:
            self._fit(profile)

    def choose(self, context: StepContext) -> int:
        """Every 20 steps, take the depth of the largest goodput."""
        fitted = self.gram[0, 0] > 1.0
        if self._steps % self.interval_steps or not fitted:
            return self.depth
        n = context.requests.shape[0]
        coefficients = np.linalg.solve(self.gram, self.moment)
        context_tokens = int(context.context_tokens.sum())
        best, best_goodput = self.depth, 0.0
        for depth in range(self.capabilities.max_depth + 1):
            ms = float(coefficients @ _features(n * (depth + 1), context_tokens, n * depth))
            goodput = self.expected_tokens(n, depth) / max(ms, 1e-3)
            if goodput > best_goodput * (1.0 + 1e-9):
                best, best_goodput = depth, goodput
        return best

    def expected_tokens(self, requests: int, depth: int) -> float:
        """Return the tokens that a step is expected to commit."""
        powers = self.acceptance ** np.arange(depth + 1)
        return requests * float(powers.sum())

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Move the acceptance rate, and fit the latency if there was no profile."""
        self._steps += 1
        _, verified, accepted = verified_drafts(outcome)
        judged = int(np.minimum(accepted + 1, verified).sum())
        if judged:
            self.acceptance = moved(self.acceptance, int(accepted.sum()) / judged, self.weight)
        pure = outcome.prefill_tokens == 0 and outcome.decode_requests > 0
        if not self._profiled and pure and outcome.latency_ns:
            n = outcome.decode_requests
            x = _features(
                n + outcome.verified_tokens, outcome.context_tokens, n * outcome.draft_depth
            )
            self._learn(x, outcome.latency_ns / 1e6)
        return ()

    def state(self) -> dict[str, Any]:
        """Return acceptance, the fit's sums and the steps."""
        return {
            **super().state(),
            **save_arrays(self, ("gram", "moment")),
            "acceptance": self.acceptance,
            "profiled": self._profiled,
            "steps": self._steps,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        load_arrays(self, ("gram", "moment"), state)
        self.acceptance = float(state["acceptance"])
        self._profiled = bool(state["profiled"])
        self._steps = int(state["steps"])

    def _fit(self, profile: StepTime) -> None:
        for n in _PROFILED_REQUESTS:
            for depth in range(self.capabilities.max_depth + 1):
                for context_tokens in (0, 1000 * n):
                    ms = profile.step_ms(
                        StepMakeUp(n, n * depth, context_tokens=context_tokens, draft_depth=depth)
                    )
                    self._learn(_features(n * (depth + 1), context_tokens, n * depth), ms)

    def _learn(self, x: FloatArray, ms: float) -> None:
        self.gram += np.outer(x, x)
        self.moment += x * ms


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> TurboSpec:
    """Return the peer, its latency fitted to the true step time if that is known."""
    return TurboSpec(capabilities, truth.step_time if truth is not None else None)


def _features(tokens: int, context_tokens: int, drafted: int) -> FloatArray:
    """Return the latency fit's features; context in thousands, to keep the sums well scaled."""
    return np.array([1.0, tokens, context_tokens / 1000.0, drafted])
