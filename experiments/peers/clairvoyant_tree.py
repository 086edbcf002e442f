"""Our policy of trees, told of every true change-point: the yardstick of recalibration."""

from __future__ import annotations

from typing import Any, ClassVar

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepPlan
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.peers.change_points import ChangePoints
from acclimate.predictors.draft_calibration import DraftCalibration


class ClairvoyantTree(TreePolicy):
    """`TreePolicy` that starts anew to learn what a drafter is worth at each true change-point.

    Nothing else differs: step times and prices, which did not change, stay.

    Parameters
    ----------
    config, capabilities
        As of `TreePolicy`.
    change_points_ns
        Times of the true changes on the loop's clock.
    """

    FOLLOWS: ClassVar[str] = "adaptive_tree, told the true change-points"
    name = "clairvoyant_tree"

    def __init__(
        self,
        config: ControlConfig,
        capabilities: Capabilities,
        change_points_ns: tuple[int, ...] = (),
    ) -> None:
        super().__init__(config, capabilities)
        self.changes = ChangePoints(change_points_ns)

    def plan(self, context: StepContext) -> StepPlan:
        """Start anew if a change-point has passed since the last step, then decide."""
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
        """Put a calibration without evidence in the old one's place; slots and requests stay open."""
        beliefs = self.beliefs
        slots, depth = beliefs.drafter.n_slots, beliefs.drafter.max_depth
        blank = DraftCalibration(slots, depth).state()
        blank["pool"] = beliefs.drafter.pool.copy()
        beliefs.drafter.load(blank)
        beliefs.drafter.reserve(beliefs.rows.capacity)
        beliefs.drift.restart()
        for slot in range(slots):
            beliefs.memory.open_slot(slot)
            beliefs.paths.open_slot(slot)
            self.audit.open_slot(slot)
