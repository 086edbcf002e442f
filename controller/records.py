"""The records that pass between an engine, the control loop and a policy.

Arrays are read-only by convention: who receives a record must not write to it, since the trace
writer encodes it later, in another thread. All arrays over requests in one record share one order.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def int_array(values: Any = ()) -> IntArray:
    """Return ``values`` as an int64 array."""
    return np.asarray(values, dtype=np.int64)


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine lets a policy choose.

    Parameters
    ----------
    max_depth
        The engine's ``num_speculative_tokens``; every depth is in ``[0, max_depth]``.
    depths
        Allowed draft depths, ascending; the last is at most ``max_depth``.
    max_width
        Children per tree level; 1 on a chain engine.
    per_request
        Whether requests of one step may have different verify lengths.
    uniform_only
        Every verify length of a step is the step's cap, or all drafts at hand if fewer.
    honours_depth
        Whether the drafter makes as many tokens as asked. If not, only verify lengths act.
    free_drafts
        Whether proposing costs (nearly) nothing, as with n-gram lookup: then the draft depth stays
        at its maximum, and the fate of unverified drafts is known in hindsight.
    hindsight
        Whether draft token ids are visible, so that unverified drafts can be graded later.
    asynchronous
        Whether outcomes arrive one step late.
    capture_sizes
        Token counts that the engine pads a step to, ascending (its CUDA graphs); empty where it does
        not pad, or they are unknown.

    Examples
    --------
    >>> Capabilities(max_depth=4, depths=(0, 1, 2, 4)).max_width
    1
    """

    max_depth: int
    depths: tuple[int, ...]
    max_width: int = 1
    per_request: bool = True
    uniform_only: bool = False
    honours_depth: bool = True
    free_drafts: bool = False
    hindsight: bool = False
    asynchronous: bool = False
    capture_sizes: tuple[int, ...] = ()

    @property
    def asks_for_depth(self) -> bool:
        """Whether the draft depth is a decision: it is honoured, and drafting has a price."""
        return self.honours_depth and not self.free_drafts

    def __post_init__(self) -> None:
        if self.max_depth < 0:
            raise ValueError(f"max_depth must be >= 0, got {self.max_depth}")
        ascending = all(a < b for a, b in zip(self.depths, self.depths[1:], strict=False))
        if not self.depths or not ascending or self.depths[0] < 0:
            raise ValueError(f"depths must be ascending and >= 0, got {self.depths}")
        if self.depths[-1] > self.max_depth:
            raise ValueError(
                f"depths must not exceed max_depth {self.max_depth}, got {self.depths}"
            )


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Latency targets of one request, in seconds; None where there is no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a request when it arrives.

    ``request`` is a number that is unique for the life of the loop; engine ids and text stay
    outside. ``sampled`` says whether its tokens are drawn at a temperature above zero. ``priority``
    is the engine's: lower is sooner. ``slo_class`` is the class it was granted, ``importance`` what
    one of its tokens counts, against 1.
    """

    request: int
    prompt_tokens: int
    max_tokens: int
    trust_domain: str = ""
    tenant: str = ""
    adapter: str = ""
    domain: str = ""
    priority: int = 0
    sampled: bool = False
    grammar: bool = False
    arrival_ns: int | None = None
    slo: Slo | None = None
    slo_class: str = ""
    importance: float = 1.0


class Candidates(msgspec.Struct, frozen=True):
    """Draft tokens that could be verified, as flat arrays of one length.

    A chain is the special case ``parent = previous``. The same arrays carry trees.

    Parameters
    ----------
    request
        Index into the context's requests.
    parent
        Index of the parent candidate, -1 for a child of the last committed token.
    depth
        1 for a child of the root.
    survival
        P(the whole path up to and including this token is accepted); never rises along a path.
    confidence
        How sure the drafter says it is of each token; None where it does not say.
    """

    request: IntArray
    parent: IntArray
    depth: IntArray
    survival: FloatArray
    confidence: FloatArray | None = None


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine knows when it is about to schedule one step.

    Parameters
    ----------
    step
        Number of this step; plans and outcomes name it.
    now_ns
        The loop's clock.
    waiting_prompts
        Requests that wait for their first prefill.
    prefill_forecast_tokens
        Prompt tokens expected in this step (the engine decides only later).
    requests
        Shape (n,): numbers of the requests that decode in this step.
    drafts
        Shape (n,): draft tokens at hand, proposed in an earlier step; at most ``tokens_left - 1``,
        since the bonus token comes on top.
    committed
        Shape (n,): output tokens so far.
    context_tokens
        Shape (n,): tokens attended to (prompt and output).
    tokens_left
        Shape (n,): output tokens until the request's limit.
    candidates
        For tree engines, or where the drafter exposes confidence; None on a plain chain.
    """

    step: int
    now_ns: int
    waiting_prompts: int
    prefill_forecast_tokens: int
    requests: IntArray
    drafts: IntArray
    committed: IntArray
    context_tokens: IntArray
    tokens_left: IntArray
    candidates: Candidates | None = None


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do in one step.

    ``draft_depth`` is drafted in this step, paid in this step and verified in the next.
    ``verify_lens`` concern drafts made earlier and are verified now.

    Parameters
    ----------
    depth
        The cap that dwell and switching concern: no verify length exceeds it, save in a probe.
    reason
        Why this depth, a word of `acclimate.controller.reasons.Reason`.
    explored, propensity
        Whether this plan was drawn at random rather than chosen, and with what probability
        the plan that was taken would be taken.
    price_tokens_per_s
        The price of time; 0 where none was needed.
    predicted_tokens, predicted_latency_ns
        Expected committed tokens and duration of the step; None where unknown.
    draft_width
        Children per node to draft in this step; 1 on a chain engine.
    draft_nodes
        Nodes per request to draft in this step, on an engine of trees; None: as many as it does.
    draft_floor
        On an engine of trees, the least path survival by the drafter's own word, in [0, 1], that is
        worth a node; a request's likeliest first token is drafted in any case.
    kept
        For trees: indices of the candidates to verify, ascending, parents with their children.
        ``verify_lens`` is then how deep each request's part of them is. None: the chain of first
        children, as deep as ``verify_lens``.
    """

    step: int
    draft_depth: int
    verify_lens: IntArray
    depth: int
    reason: str
    explored: bool = False
    propensity: float = 1.0
    price_tokens_per_s: float = 0.0
    predicted_tokens: float | None = None
    predicted_latency_ns: int | None = None
    draft_width: int = 1
    kept: IntArray | None = None
    draft_nodes: int | None = None
    draft_floor: float = 0.0


class DraftOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of drafts in one step: counts, one row per draft, never token ids.

    The first rows are the step's decode requests in the plan's order (a row without a draft has
    ``proposed = 0``). Further rows are older drafts that committed tokens have graded meanwhile.

    Parameters
    ----------
    request
        Number of the request.
    drafted_by, verified_by
        The steps whose plans drafted and verified it; -1 for none.
    proposed
        Tokens the drafter proposed.
    verified, accepted
        Tokens verified in this step, and of these accepted (before stop checks).
    start, graded, matched
        Positions ``start + 1 … start + graded`` became known in this step; the first ``matched``
        of them were right, and ``graded - matched`` is 0 or 1. For a verified draft ``start`` is 0
        and hindsight beyond the verified part is included.
    fresh
        How many of the graded tokens, counted from the end, had graded no draft before.
    """

    request: IntArray
    drafted_by: IntArray
    verified_by: IntArray
    proposed: IntArray
    verified: IntArray
    accepted: IntArray
    start: IntArray
    graded: IntArray
    matched: IntArray
    fresh: IntArray


class NodeOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the nodes of draft trees in one step, as flat arrays over its candidates.

    Parameters
    ----------
    request
        Index into the outcome's requests.
    parent, depth
        As in `Candidates`.
    confidence
        The drafter's P(token | its parent), as in the candidates.
    verified
        1 for a node that was verified, else 0.
    graded, accepted
        1 where the fate of a node became known: its parent is on the path that was committed; and
        where the node is on that path itself. Unverified nodes are graded in hindsight, where their
        tokens do not hang on chance.
    """

    request: IntArray
    parent: IntArray
    depth: IntArray
    confidence: FloatArray
    verified: IntArray
    graded: IntArray
    accepted: IntArray


class StepOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a step.

    Parameters
    ----------
    step
        The step that was scheduled, verified and drafted.
    latency_ns
        Wall time that the step took from the engine's life; None where it says nothing (idle gap).
    decode_requests, verified_tokens, prefill_tokens, context_tokens, sampled_rows
        The step's make-up as it was executed.
    draft_depth
        Depth that was drafted in this step.
    requests, committed
        Shape (n,): decode requests, and tokens each of them committed (after stop checks).
    first_tokens
        Requests that got their first token in this step (their prefill ended).
    exempt
        The drafts verified here were no drafts (see the engine's notes): nothing is graded.
    stock
        The engine's own rule acted, not a plan.
    nodes
        What became of every candidate, on an engine of trees; ``drafts`` is then about the chains of
        first children. None on a chain engine.
    """

    step: int
    now_ns: int
    latency_ns: int | None
    decode_requests: int
    verified_tokens: int
    prefill_tokens: int
    context_tokens: int
    sampled_rows: int
    draft_depth: int
    requests: IntArray
    committed: IntArray
    drafts: DraftOutcomes
    first_tokens: int = 0
    exempt: bool = False
    stock: bool = False
    nodes: NodeOutcomes | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A declared change-point: what changed (``draft``, ``model``, ``engine``, ``adapter``)."""

    kind: str
    detail: str = ""
