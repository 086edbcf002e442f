"""Our policy, told of every true change-point: the yardstick of recalibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from acclimate.controller.adaptive import AdaptivePolicy
from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.experiments.peers.change_points import ChangePoints
from acclimate.predictors.acceptance_mix import AcceptanceMix

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth


class Clairvoyant(AdaptivePolicy):
    """`AdaptivePolicy` that restarts its acceptance learning at each true change-point.

    Nothing else differs: after a restart it predicts from its prior, as a fresh policy would, while
    latency and price, which did not change, stay. What it wins over `AdaptivePolicy` is what
    noticing the change costs; what it loses is what the past was still worth.

    Parameters
    ----------
    config, capabilities
        As of `AdaptivePolicy`.
    change_points_ns
        Times of the true changes on the loop's clock.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> Clairvoyant(ControlConfig(), engine, (5, 3)).changes.ahead
    [3, 5]
    """

    FOLLOWS: ClassVar[str] = "adaptive, told the true change-points"
    name = "clairvoyant"

    def __init__(
        self,
        config: ControlConfig,
        capabilities: Capabilities,
        change_points_ns: tuple[int, ...] = (),
    ) -> None:
        super().__init__(config, capabilities)
        self.changes = ChangePoints(change_points_ns)

    def plan(self, context: StepContext) -> StepPlan:
        """Restart if a change-point has passed since the last step, then decide."""
        if self.changes.reached(context.now_ns):
            self._restart()
        return super().plan(context)

    def state(self) -> dict[str, Any]:
        """Return the policy's state and the change-points that lie ahead."""
        return {**super().state(), "ahead": self.changes.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        self.changes.load(state["ahead"])

    def _restart(self) -> None:
        """Put learners without evidence in the old ones' place; slots and requests stay open."""
        old = self.beliefs.acceptance
        fresh = AcceptanceMix(old.n_slots, old.max_depth)
        fresh.reserve(self.beliefs.rows.capacity)
        for slot in self.beliefs.slots.open_slots():
            tenant = int(old.model.tenants.tenant[slot])
            fresh.open_slot(slot, int(old.table.pool[slot]), tenant)
        for row, slot in enumerate(old.model.slot_of.tolist()):
            fresh.open_request(row, slot)
        old.load(fresh.state())
        self.beliefs.watch.anew()


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> Clairvoyant:
    """Return the policy, told the truth's change-points; without a truth there are none ahead."""
    return Clairvoyant(config, capabilities, () if truth is None else tuple(truth.change_points_ns))
