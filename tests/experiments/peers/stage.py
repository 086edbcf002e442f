"""Contexts, outcomes and a known truth to put peers into."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import (
    Capabilities,
    DraftOutcomes,
    FloatArray,
    IntArray,
    RequestInfo,
    Slo,
    StepContext,
    StepOutcome,
    StepPlan,
    int_array,
)
from acclimate.experiments.simulation.step_time import StepTime
from acclimate.experiments.simulation.table_time import TableTime

MODEL_DRAFTER = Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5))
NGRAM = Capabilities(max_depth=5, depths=(0, 1, 2, 3, 4, 5), free_drafts=True, hindsight=True)
UNIFORM = Capabilities(max_depth=5, depths=(0, 2, 5), per_request=False, uniform_only=True)
COARSE = Capabilities(max_depth=5, depths=(2, 5), asynchronous=True)
ENGINES = (MODEL_DRAFTER, NGRAM, UNIFORM, COARSE)

# facts.md F2: ms per step of Llama-3.1-8B with an EAGLE head, and three survivals with best depths.
F2 = {
    1: (6.52, 7.37, 8.84, 10.33),
    4: (6.60, 7.47, 8.98, 10.40),
    16: (6.90, 7.85, 9.52, 11.20),
    64: (7.77, 9.66, 13.50, 16.83),
    256: (14.49, 27.14, 41.85, 57.40),
}
F2_DEPTHS = (0, 1, 3, 5)


def f2_time() -> TableTime:
    """Return the table of F2 as a step time."""
    rows = [(n, k, ms) for n, row in F2.items() for k, ms in zip(F2_DEPTHS, row, strict=True)]
    batch, depth, ms = (list(column) for column in zip(*rows, strict=True))
    return TableTime(batch, depth, ms)


@dataclasses.dataclass
class KnownTruth:
    """A truth that is the same for all requests and times."""

    known_survival: Sequence[float]
    step_time: StepTime = dataclasses.field(default_factory=f2_time)
    change_points_ns: tuple[int, ...] = ()

    def survival(self, requests: IntArray, now_ns: int) -> FloatArray:
        """Return the known survival for each request."""
        return np.tile(np.array(self.known_survival), (requests.shape[0], 1))

    def reach(self, requests: IntArray, now_ns: int) -> FloatArray:
        """Return that every draft is as long as asked."""
        return np.ones((requests.shape[0], len(self.known_survival)))

    def acceptance(self, requests: IntArray, confidence: FloatArray, now_ns: int) -> FloatArray:
        """Return the known acceptance, whatever the drafter says."""
        survival = np.array([1.0, *self.known_survival])
        return np.tile(survival[1:] / survival[:-1], (requests.shape[0], 1))


def request(number: int, *, prompt_tokens: int = 20, slo: Slo | None = None) -> RequestInfo:
    """Return a request."""
    return RequestInfo(
        request=number, prompt_tokens=prompt_tokens, max_tokens=10_000, domain="toy", slo=slo
    )


def context(
    drafts: Sequence[int],
    *,
    step: int = 1,
    now_ns: int = 0,
    prefill_tokens: int = 0,
    committed: Sequence[int] | None = None,
) -> StepContext:
    """Return a context of requests 1, 2, … with so many drafts at hand."""
    n = len(drafts)
    tokens = int_array([10] * n if committed is None else committed)
    return StepContext(
        step=step,
        now_ns=now_ns,
        waiting_prompts=0,
        prefill_forecast_tokens=prefill_tokens,
        requests=int_array(range(1, n + 1)),
        drafts=int_array(drafts),
        committed=tokens,
        context_tokens=20 + tokens,
        tokens_left=int_array([1_000] * n),
    )


def outcome(
    plan: StepPlan, at: StepContext, runs: Sequence[int], *, latency_ms: float = 10.0
) -> StepOutcome:
    """Return what comes of a plan if the first ``runs`` drafts of each request are right."""
    n = at.requests.shape[0]
    accepted = np.minimum(int_array(runs), plan.verify_lens)
    graded = np.minimum(accepted + 1, plan.verify_lens)
    return StepOutcome(
        step=plan.step,
        now_ns=at.now_ns + int(1e6 * latency_ms),
        latency_ns=int(1e6 * latency_ms),
        decode_requests=n,
        verified_tokens=int(plan.verify_lens.sum()),
        prefill_tokens=0,
        context_tokens=int(at.context_tokens.sum()),
        sampled_rows=0,
        draft_depth=plan.draft_depth,
        requests=at.requests,
        committed=accepted + 1,
        drafts=DraftOutcomes(
            request=at.requests,
            drafted_by=int_array([plan.step - 1] * n),
            verified_by=int_array([plan.step] * n),
            proposed=at.drafts,
            verified=plan.verify_lens,
            accepted=accepted,
            start=int_array([0] * n),
            graded=graded,
            matched=accepted,
            fresh=graded,
        ),
    )
