"""The oracle: our objective with the true acceptance and the true step time, nothing learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.optimize import brentq  # type: ignore[import-untyped]

from acclimate.controller.config import ControlConfig
from acclimate.controller.price import PriceOfTime
from acclimate.controller.reasons import Reason
from acclimate.controller.records import Capabilities, FloatArray, IntArray, StepContext, StepPlan
from acclimate.controller.select import choose_chains, depth_values
from acclimate.controller.select_kernels import first_best
from acclimate.experiments.peers.base import Peer
from acclimate.experiments.simulation.step_time import StepMakeUp

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

_MAX_REQUESTS = 512


class Oracle(Peer):
    """Chooses per step what maximises tokens at the price of time, knowing q and T.

    The price is exact: the λ at which the best depth of a step of these requests gains nothing
    more, n + max value(λ) = λ·T(0), hence the largest tokens per millisecond that their expected
    drafts allow (Dinkelbach). It looks one step ahead, not further: a policy that lets one request
    run ahead to shrink the batch sooner is outside its class.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    truth
        True survival, reach of drafts, and step time.
    """

    FOLLOWS: ClassVar[str] = "price of time with true acceptance and step time"
    name = "oracle"

    def __init__(self, capabilities: Capabilities, truth: Truth) -> None:
        super().__init__(capabilities)
        self._truth = truth
        self._price = PriceOfTime(_MAX_REQUESTS, window_s=1.0)

    def plan(self, context: StepContext) -> StepPlan:
        """Price the step, choose verify lengths, and the depth to draft for the next."""
        n = context.requests.shape[0]
        if n == 0:
            nothing = np.zeros(0, dtype=np.int64)
            return self.make_plan(context, 0, nothing, Reason.IDLE, drafted=0)
        survival = self._truth.survival(context.requests, context.now_ns)
        reach = self._truth.reach(context.requests, context.now_ns)
        context_tokens = int(context.context_tokens.sum())
        curve = self._curve(n, context_tokens, 0)
        drafting_ms = self._drafting(n, context_tokens)
        rate = self.best_rate(survival, reach, curve, drafting_ms)
        price = self._price.tokens_per_ms(n, rate, context.waiting_prompts)
        values = self._values(survival, reach, curve, drafting_ms, price)
        drafted = self.capabilities.depths[first_best(values)]
        if context.prefill_forecast_tokens:
            curve = self._curve(n, context_tokens, context.prefill_forecast_tokens)
        lens = self._lens(survival, context.drafts, curve, price)
        depth = int(lens.max())
        if self.capabilities.asks_for_depth:
            depth = max(depth, drafted)
        return self.make_plan(context, depth, lens, Reason.PRICE, drafted=drafted)

    def best_rate(
        self, survival: FloatArray, reach: FloatArray, curve: FloatArray, drafting_ms: FloatArray
    ) -> float:
        """Return the largest expected tokens per millisecond of a step of these requests.

        Parameters
        ----------
        survival, reach
            Shape (n, max_depth).
        curve
            Shape (n * max_depth + 1,): milliseconds with 0, 1, … verified drafts.
        drafting_ms
            Shape (len(depths),): milliseconds of drafting each allowed depth.
        """
        n, most = survival.shape
        base_ms = float(curve[0])

        def surplus(rate: float) -> float:
            values = self._values(survival, reach, curve, drafting_ms, rate)
            return float(n + values.max() - rate * base_ms)

        slowest_ms = float(curve.max() + drafting_ms.max())
        low, high = 0.5 * n / slowest_ms, 2.0 * n * (1 + most) / float(curve.min())
        return float(brentq(surplus, low, high, rtol=1e-9))

    def state(self) -> dict[str, Any]:
        """Return nothing: nothing is learned."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Nothing to continue from."""

    def _values(
        self,
        survival: FloatArray,
        reach: FloatArray,
        curve: FloatArray,
        drafting_ms: FloatArray,
        price: float,
    ) -> FloatArray:
        return depth_values(
            survival,
            reach,
            self.capabilities.depths,
            curve,
            drafting_ms,
            price,
            uniform=self.capabilities.uniform_only,
        )

    def _lens(
        self, survival: FloatArray, drafts: IntArray, curve: FloatArray, price: float
    ) -> IntArray:
        n, most = survival.shape
        if self.capabilities.uniform_only:
            at_hand = (np.arange(most) < drafts[:, None]).astype(np.float64)
            every = tuple(range(most + 1))
            values = depth_values(
                survival, at_hand, every, curve, np.zeros(most + 1), price, uniform=True
            )
            return np.minimum(drafts, first_best(values))
        whole = np.ascontiguousarray(survival)
        one_slot = np.zeros(n, dtype=np.int64)
        return choose_chains(whole, np.ones(1), one_slot, drafts, curve, price).lens

    def _curve(self, requests: int, context_tokens: int, prefill_tokens: int) -> FloatArray:
        return self._truth.step_time.curve(
            StepMakeUp(
                requests,
                requests * self.capabilities.max_depth,
                prefill_tokens=prefill_tokens,
                context_tokens=context_tokens,
            )
        )

    def _drafting(self, requests: int, context_tokens: int) -> FloatArray:
        """Return what drafting each allowed depth adds to a step, 0 where it is no choice."""
        depths = self.capabilities.depths
        if not self.capabilities.asks_for_depth:
            return np.zeros(len(depths))
        plain, *drafted = (
            self._truth.step_time.step_ms(
                StepMakeUp(requests, 0, context_tokens=context_tokens, draft_depth=depth)
            )
            for depth in (0, *depths)
        )
        return np.array([max(ms - plain, 0.0) for ms in drafted])


def build(config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None) -> Oracle:
    """Return the oracle of a truth.

    Raises
    ------
    ValueError
        There is no truth to know.
    """
    if truth is None:
        raise ValueError("oracle must be given the truth, which only a simulation has, got None")
    return Oracle(capabilities, truth)
