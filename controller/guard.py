"""Says when the engine's own rule takes over, and when the policy may come back."""

from __future__ import annotations

import numpy as np

from acclimate.controller.config import GuardConfig
from acclimate.controller.reasons import Stock
from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.controller.select_kernels import lens_fit
from acclimate.controller.trees import kept_fault

_SECOND_NS = 1_000_000_000
_FORGIVE_NS = 3_600 * _SECOND_NS


class Guard:
    """Late returns cost one step, faults a back-off that doubles, too many faults need a reload.

    Trips are forgiven after an hour without one: a fault a month must not switch off for good.

    Parameters
    ----------
    config
        Limits and back-off.

    Examples
    --------
    >>> guard = Guard(GuardConfig())
    >>> guard.trip(Stock.ERROR, now_ns=0)
    >>> guard.stock(now_ns=9_999_999_999), guard.stock(now_ns=10_000_000_000)
    (<Stock.ERROR: 'error'>, None)
    """

    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.trips = 0
        self._late_pending = False
        self._stock: Stock | None = None
        self._until_ns = 0
        self._last_trip_ns = 0

    @property
    def tripped(self) -> bool:
        """Whether a fault holds the policy back (a late step does not count)."""
        return self._stock is not None

    def is_late(self, duration_ns: int) -> bool:
        """Whether a call that took ``duration_ns`` returned late."""
        return duration_ns > self.config.late_ms * 1e6

    def late(self) -> None:
        """Note a late return: the next step is stock."""
        self._late_pending = True

    def trip(self, stock: Stock, now_ns: int) -> None:
        """Note a fault: stock for the back-off, or until a reload."""
        if self.trips and now_ns - self._last_trip_ns > _FORGIVE_NS:
            self.trips = 0
        backoff_ns = int(self.config.backoff_s * _SECOND_NS) << self.trips
        self.trips += 1
        self._last_trip_ns = now_ns
        self._until_ns = now_ns + backoff_ns
        self._stock = Stock.DISABLED if self.trips >= self.config.max_trips else stock

    def stock(self, now_ns: int) -> Stock | None:
        """Return why this step is stock, or None; a pending late step is consumed."""
        if self._stock is not None:
            if self._stock is Stock.DISABLED or now_ns < self._until_ns:
                return self._stock
            self._stock = None
        if self._late_pending:
            self._late_pending = False
            return Stock.LATE
        return None

    def reset(self, config: GuardConfig) -> None:
        """Start over, as after a reload."""
        self.config = config
        self.trips = 0
        self._stock = None
        self._late_pending = False


def plan_fault(plan: StepPlan, context: StepContext, capabilities: Capabilities) -> str | None:
    """Return what is wrong with a plan, or None."""
    if plan.step != context.step:
        return f"plan.step must be {context.step}, got {plan.step}"
    if not 0 <= plan.draft_depth <= capabilities.max_depth:
        return f"draft_depth must be in [0, {capabilities.max_depth}], got {plan.draft_depth}"
    if not 0 <= plan.depth <= capabilities.max_depth:
        return f"depth must be in [0, {capabilities.max_depth}], got {plan.depth}"
    lens = plan.verify_lens
    if lens.shape != context.drafts.shape or lens.dtype != np.int64:
        return f"verify_lens must be {context.drafts.shape[0]} int64, got {lens.dtype}{lens.shape}"
    cap = capabilities.max_depth if plan.explored else plan.depth
    if not lens_fit(lens, context.drafts, cap):
        return "verify_lens must be in [0, depth] and at most the drafts at hand"
    if not 1 <= plan.draft_width <= capabilities.max_width:
        return f"draft_width must be in [1, {capabilities.max_width}], got {plan.draft_width}"
    if plan.draft_nodes is not None and plan.draft_nodes < 1:
        return f"draft_nodes must be >= 1, got {plan.draft_nodes}"
    if not 0.0 <= plan.draft_floor <= 1.0:
        return f"draft_floor must be in [0, 1], got {plan.draft_floor}"
    return None if plan.kept is None else kept_fault(plan.kept, context.candidates)
