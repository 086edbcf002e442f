"""The engine's own scheduler with an `EngineBridge` at its joints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acclimate.integrations.runtime import Runtime
from acclimate.integrations.vllm.bridge import EngineBridge

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Base
else:
    _Base = object


class SchedulerHooks(_Base):
    """Methods that go in front of an engine's scheduler class; see `adaptive_scheduler`.

    Every method calls the engine's own with whatever it was given. A fault of ours never leaves
    it: the bridge is then bypassed for good and the class is the stock scheduler.
    """

    acclimate: EngineBridge | None = None
    dynamic_sd_lookup: list[int] | None
    acclimate_runtime: Runtime | None = None

    def attach_bridge(self, bridge: EngineBridge, runtime: Runtime | None = None) -> None:
        """Let ``bridge`` act from now on; ``runtime`` is closed when the engine shuts down."""
        if self.dynamic_sd_lookup is None:
            # As without a lookup, except that new requests are not padded with drafts.
            self.dynamic_sd_lookup = [self.num_spec_tokens] * (self.max_num_running_reqs + 1)
        self.acclimate_runtime = runtime
        self.acclimate = bridge

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Read the request's metadata."""
        result = super().add_request(request, *args, **kwargs)
        bridge = self._bridge()
        if bridge is not None:
            try:
                # The scheduler keeps its own object when a session goes on.
                bridge.admit(self.requests.get(request.request_id, request))
            except Exception as error:
                bridge.fail("admit", error)
        return result

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Plan the step and cut drafts before the engine schedules them."""
        bridge = self._bridge()
        if bridge is not None:
            try:
                # A session whose client has not sent its next turn waits for nothing of ours.
                waiting = len(self.waiting) + len(self.kv_holding_waiting)
                bridge.begin(
                    self.running,
                    self.waiting,
                    waiting_prompts=waiting - self.num_waiting_for_streaming_input,
                    token_budget=self.max_num_scheduled_tokens,
                    seats=self.max_num_active_reqs,
                )
            except Exception as error:
                bridge.fail("begin", error)
        output = super().schedule(*args, **kwargs)
        bridge = self._bridge()
        if bridge is not None:
            try:
                bridge.scheduled(output, self.requests)
            except Exception as error:
                bridge.fail("scheduled", error)
        return output

    def _update_after_schedule(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Set the draft depth, before an asynchronous scheduler lays out its placeholders."""
        bridge = self._bridge()
        if bridge is not None:
            try:
                depth = bridge.depth()
                if depth is not None:
                    scheduler_output.num_spec_tokens_to_schedule = depth
            except Exception as error:
                bridge.fail("depth", error)
        return super()._update_after_schedule(scheduler_output, *args, **kwargs)

    def update_from_output(
        self, scheduler_output: Any, model_runner_output: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Compare what was planned with what came of it."""
        bridge = self._bridge()
        if bridge is not None:
            try:
                bridge.sampled(scheduler_output, model_runner_output)
            except Exception as error:
                bridge.fail("sampled", error)
        result = super().update_from_output(scheduler_output, model_runner_output, *args, **kwargs)
        bridge = self._bridge()
        if bridge is not None:
            try:
                bridge.finish(more_work=bool(self.running or self.waiting))
            except Exception as error:
                bridge.fail("finish", error)
        return result

    def update_draft_token_ids_in_output(
        self, draft_token_ids: Any, scheduler_output: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Copy the ids of whole drafts before the engine cuts them to what is verified."""
        bridge = self._bridge()
        copies: dict[str, list[int]] = {}
        if bridge is not None:
            try:
                # Beyond what is verified nobody checked the grammar: such drafts stay ungraded.
                copies = {
                    request_id: list(ids)
                    for request_id, ids in zip(
                        draft_token_ids.req_ids, draft_token_ids.draft_token_ids, strict=False
                    )
                    if (request := self.requests.get(request_id)) is not None
                    and not request.use_structured_output
                }
            except Exception as error:
                bridge.fail("ids_arrived", error)
        result = super().update_draft_token_ids_in_output(
            draft_token_ids, scheduler_output, *args, **kwargs
        )
        bridge = self._bridge()
        if bridge is not None:
            try:
                bridge.ids_arrived(scheduler_output, copies)
            except Exception as error:
                bridge.fail("ids_arrived", error)
        return result

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Drop what is in flight of a request that loses its place."""
        result = super()._preempt_request(request, *args, **kwargs)
        bridge = self._bridge()
        if bridge is not None:
            try:
                bridge.preempt(request.request_id)
            except Exception as error:
                bridge.fail("preempt", error)
        return result

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Forget a request that ended."""
        result = super()._free_request(request, *args, **kwargs)
        bridge = self._bridge()
        if bridge is not None:
            try:
                bridge.free(request)
            except Exception as error:
                bridge.fail("free", error)
        return result

    def shutdown(self, *args: Any, **kwargs: Any) -> Any:
        """Close the sinks, and show no state any more."""
        if self.acclimate is not None:
            self.acclimate.close()
        runtime, self.acclimate_runtime = self.acclimate_runtime, None
        if runtime is not None:
            try:
                runtime.close()
            except Exception as error:
                if self.acclimate is not None:
                    self.acclimate.fail("shutdown", error)
        return super().shutdown(*args, **kwargs)

    def _bridge(self) -> EngineBridge | None:
        bridge = self.acclimate
        return None if bridge is None or bridge.failed else bridge


def adaptive_scheduler(base: type[Any]) -> type[Any]:
    """Return ``base`` with `SchedulerHooks` in front.

    Parameters
    ----------
    base
        The engine's ``Scheduler``, or ``AsyncScheduler`` where the engine schedules ahead: the
        wrong one turns speculation off without a word.

    Examples
    --------
    >>> class Stock: ...
    >>> adaptive_scheduler(Stock).__name__
    'AdaptiveStock'
    """
    return type(f"Adaptive{base.__name__}", (SchedulerHooks, base), {"__module__": __name__})
