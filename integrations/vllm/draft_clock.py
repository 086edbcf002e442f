"""Times how long an in-process engine drafts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acclimate.integrations.vllm.launch import Engine


class DraftClock:
    """Counts the steps in which an engine drafted, and adds up the time that this took.

    Parameters
    ----------
    engine
        In this process; one that does not speculate never drafts.
    clock_ns
        A clock in nanoseconds.
    """

    def __init__(
        self, engine: Engine, *, clock_ns: Callable[[], int] = time.perf_counter_ns
    ) -> None:
        self.calls = 0
        self.time_ns = 0
        self._clock_ns = clock_ns
        core = engine.llm.llm_engine.engine_core.engine_core
        runner = core.model_executor.driver_worker.worker.model_runner
        draft = getattr(runner, "propose_draft_token_ids", None)
        if draft is not None:
            runner.propose_draft_token_ids = self._timed(draft)

    def restart(self) -> None:
        """Count from zero again."""
        self.calls = self.time_ns = 0

    def _timed(self, draft: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begun_ns = self._clock_ns()
            result = draft(*args, **kwargs)
            self.time_ns += self._clock_ns() - begun_ns
            self.calls += 1
            return result

        return timed
