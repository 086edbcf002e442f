"""vLLM's dynamic speculative decoding: a depth per batch size, from a table that a user writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from acclimate.controller.config import ControlConfig
from acclimate.controller.records import Capabilities, RequestInfo, StepContext
from acclimate.experiments.peers.base import DepthPeer

if TYPE_CHECKING:
    from acclimate.experiments.simulation.truth import Truth

Schedule = Sequence[tuple[int, int, int]]


class VllmDynamic(DepthPeer):
    """The depth that ``num_speculative_tokens_per_batch_size`` gives the step's batch size.

    Entries are (first, last, depth) with both ends inside the range; a batch size in a gap, or
    beyond the last range, inherits the depth before it; depths above the engine's are cut. Nothing
    is learned. The engine counts *all* requests that a step schedules, those in prefill included,
    so that a prompt that joins can move the batch across a boundary and back.

    How many prompts a step will prefill is known only afterwards; it is taken from the forecast of
    prefill tokens and the prompts that have arrived, in their order.

    Parameters
    ----------
    capabilities
        What the engine lets a policy choose.
    schedule
        Ranges from batch size 1 up, without overlap. vLLM has no default; ours halves the depth
        as the batch grows.

    Raises
    ------
    ValueError
        The schedule is empty, overlaps, starts above 1 or holds a negative number.

    Examples
    --------
    >>> engine = Capabilities(max_depth=4, depths=(0, 1, 2, 3, 4))
    >>> peer = VllmDynamic(engine, [(1, 16, 3), (32, 128, 2)])
    >>> [peer.scheduled_depth(batch) for batch in (1, 16, 17, 31, 32, 999)]
    [3, 3, 3, 3, 2, 2]
    """

    FOLLOWS: ClassVar[str] = "vLLM 0.32.0 num_speculative_tokens_per_batch_size"
    name = "vllm_dynamic"

    def __init__(self, capabilities: Capabilities, schedule: Schedule | None = None) -> None:
        if schedule is None:
            most = capabilities.max_depth
            schedule = [(1, 8, most), (9, 32, most // 2), (33, 64, most // 4), (65, 512, 0)]
        self.schedule = _checked(schedule)
        super().__init__(capabilities, self.schedule[0][2])
        self._prompts: dict[int, int] = {}

    def scheduled_depth(self, batch: int) -> int:
        """Return the depth for a batch size, gaps filled from below."""
        depth = self.schedule[0][2]
        for first, _, wanted in self.schedule:
            if batch >= first:
                depth = wanted
        return min(depth, self.capabilities.max_depth)

    def admit(self, request: RequestInfo) -> None:
        """Note a prompt that will need prefill."""
        self._prompts[request.request] = request.prompt_tokens

    def forget(self, request: int) -> None:
        """Drop a request that ended."""
        self._prompts.pop(request, None)

    def choose(self, context: StepContext) -> int:
        """Look up the number of requests that the step will schedule."""
        decoding = context.requests.tolist()
        if self._prompts:
            for request in decoding:
                self._prompts.pop(request, None)
        return self.scheduled_depth(len(decoding) + self._prefills(context))

    def state(self) -> dict[str, Any]:
        """Return the schedule, the prompts that wait, and the depth."""
        return {
            **super().state(),
            "schedule": [list(entry) for entry in self.schedule],
            "prompts": [[request, tokens] for request, tokens in self._prompts.items()],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        super().load(state)
        self.schedule = [(int(a), int(b), int(k)) for a, b, k in state["schedule"]]
        self._prompts = {int(request): int(tokens) for request, tokens in state["prompts"]}

    def _prefills(self, context: StepContext) -> int:
        """Return how many prompts share the forecast prefill tokens, at least 1 if there are any."""
        left = context.prefill_forecast_tokens
        if left <= 0:
            return 0
        count = 0
        for tokens in self._prompts.values():
            if left <= 0:
                break
            count += 1
            left -= tokens
        return max(count, 1)


def build(
    config: ControlConfig, capabilities: Capabilities, truth: Truth | None = None
) -> VllmDynamic:
    """Return the peer with our default schedule."""
    return VllmDynamic(capabilities)


def _checked(schedule: Schedule) -> list[tuple[int, int, int]]:
    entries = sorted((int(first), int(last), int(depth)) for first, last, depth in schedule)
    if not entries or entries[0][0] != 1:
        raise ValueError(f"schedule must start at batch size 1, got {list(schedule)}")
    end = 0
    for first, last, depth in entries:
        if first <= end or last < first or depth < 0:
            raise ValueError(f"schedule must be ranges without overlap, got {(first, last, depth)}")
        end = last
    return entries
