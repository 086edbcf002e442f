"""TensorRT-LLM's thresholds: a depth per batch size, and a gate that closes once and for all."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, StepContext, StepOutcome
from acclimate.controller.reports import Alarm
from acclimate.experiments.peers.base import DepthPeer, PeerReason, verified_drafts

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

EXAMPLE_SCHEDULE: Mapping[int, int] = {4: 4, 8: 2, 32: 1}
"""The documentation's example: up to 4 requests depth 4, up to 8 depth 2, up to 32 depth 1, then 0."""


class TensorRtLlm(DepthPeer):
    """``draft_len_schedule`` with ``acceptance_rate_threshold`` over a window of iterations.

    A key of the schedule is the last batch size that its depth serves; above the last key the
    depth is 0. Each speculating iteration gives one sample, accepted over drafted tokens of the
    batch. Once the window is full, a mean below the threshold switches speculation off, and nothing
    ever switches it on again: not a declared change, not better traffic.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    schedule
        Depth by last batch size; None: the engine's depth for all.
    window, threshold
        Iterations in the mean, and the acceptance rate below which the gate closes. Upstream has
        no defaults; ours are mild. A window of 0: no gate.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> peer = TensorRtLlm(engine, EXAMPLE_SCHEDULE)
    >>> [peer.scheduled_depth(batch) for batch in (1, 4, 5, 8, 9, 32, 33)]
    [4, 4, 2, 2, 1, 1, 0]
    """

    FOLLOWS: ClassVar[str] = "TensorRT-LLM 1.4.0rc4 draft_len_schedule, acceptance_rate_threshold"
    name = "tensorrt_llm"

    def __init__(
        self,
        capabilities: Capabilities,
        schedule: Mapping[int, int] | None = None,
        *,
        window: int = 100,
        threshold: float = 0.2,
    ) -> None:
        if window < 0 or not 0.0 <= threshold <= 1.0:
            raise ValueError(
                f"window must be >= 0 and threshold in [0, 1], got {window}, {threshold}"
            )
        self.schedule = None if schedule is None else dict(sorted(schedule.items()))
        self.window, self.threshold = window, threshold
        self.off = False
        self._rates: deque[float] = deque(maxlen=max(window, 1))
        super().__init__(capabilities, capabilities.max_depth)

    def scheduled_depth(self, batch: int) -> int:
        """Return the depth for a batch size, 0 above the last key."""
        most = self.capabilities.max_depth
        if self.schedule is None:
            return most
        return min(next((d for last, d in self.schedule.items() if batch <= last), 0), most)

    def choose(self, context: StepContext) -> int:
        """Look the batch size up, unless the gate is closed."""
        return 0 if self.off else self.scheduled_depth(context.requests.shape[0])

    def reason(self) -> str:
        """Say so once the gate has closed."""
        return PeerReason.OFF if self.off else PeerReason.RULE

    def observe(self, outcome: StepOutcome) -> Sequence[Alarm]:
        """Add the iteration's acceptance rate, and close the gate if the mean is too low."""
        _, verified, accepted = verified_drafts(outcome)
        if self.window and verified.size and not self.off:
            self._rates.append(int(accepted.sum()) / int(verified.sum()))
            full = len(self._rates) == self.window
            self.off = full and sum(self._rates) / self.window < self.threshold
        return ()

    def state(self) -> dict[str, Any]:
        """Return the gate and its window."""
        return {**super().state(), "off": self.off, "rates": list(self._rates)}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        self.off = bool(state["off"])
        self._rates = deque((float(rate) for rate in state["rates"]), maxlen=max(self.window, 1))


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> TensorRtLlm:
    """Return the peer with the documentation's schedule."""
    return TensorRtLlm(capabilities, EXAMPLE_SCHEDULE)
