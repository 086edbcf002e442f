"""How good a plan's shape is: expected tokens per millisecond, against the best that there is."""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import Capabilities, FloatArray, IntArray, StepContext, StepPlan
from acclimate.experiments.simulation.step_time import StepMakeUp
from acclimate.experiments.simulation.truth import Truth


def shape_share(
    plan: StepPlan, context: StepContext, capabilities: Capabilities, truth: Truth
) -> float:
    """Return the true pace of a plan over that of the best shape for the same requests.

    The pace is what the requests are expected to commit over what the step takes, drafting for the
    next step included. A request near its end has fewer drafts at hand than it would verify, so
    that even an oracle stays a little below 1.
    """
    n = context.requests.shape[0]
    survival = truth.survival(context.requests, context.now_ns)
    reach = truth.reach(context.requests, context.now_ns)
    context_tokens = int(context.context_tokens.sum())
    curve = truth.step_time.curve(
        StepMakeUp(n, n * capabilities.max_depth, context_tokens=context_tokens)
    )
    depths = capabilities.depths if capabilities.asks_for_depth else (capabilities.max_depth,)
    drafting_ms = _drafting(truth, n, context_tokens, (*depths, plan.draft_depth))
    if not capabilities.asks_for_depth:
        drafting_ms = np.zeros_like(drafting_ms)
    inside = np.arange(survival.shape[1]) < plan.verify_lens[:, None]
    verified = int(plan.verify_lens.sum())
    pace = (n + float((survival * inside).sum())) / (float(curve[verified]) + drafting_ms[-1])
    best = best_pace(
        survival, reach, depths, curve, drafting_ms[:-1], uniform=capabilities.uniform_only
    )
    return float(pace / best)


def best_pace(
    survival: FloatArray,
    reach: FloatArray,
    depths: tuple[int, ...],
    curve_ms: FloatArray,
    drafting_ms: FloatArray,
    *,
    uniform: bool,
) -> float:
    """Return the most expected tokens per millisecond that any depth and verify lengths allow.

    Parameters
    ----------
    survival, reach
        Shape (n, max_depth): of drafts, and P(a draft has at least i tokens).
    depths
        Draft depths to choose from.
    curve_ms
        Shape (n * max_depth + 1,): a step with 0, 1, … verified drafts.
    drafting_ms
        Shape (len(depths),): drafting each of them.
    uniform
        Whether all requests verify alike.

    Examples
    --------
    >>> survival, curve = np.array([[0.9, 0.1]]), np.array([10.0, 11.0, 12.0])
    >>> best = best_pace(
    ...     survival, np.ones((1, 2)), (0, 1, 2), curve, np.zeros(3), uniform=True)
    >>> round(best, 4), round(1.9 / 11.0, 4)
    (0.1727, 0.1727)
    """
    n, most = survival.shape
    at: IntArray = np.array(depths, dtype=np.int64)
    expected = survival * reach
    if uniform:
        earned = np.concatenate([[0.0], expected.sum(axis=0).cumsum()])[at]
        verified = np.concatenate([[0.0], reach.sum(axis=0).cumsum()])[at]
        return float(((n + earned) / (_at(curve_ms, verified) + drafting_ms)).max())
    order = np.argsort(-survival, axis=None, kind="stable")
    inside = (order % most) < at[:, None]
    earned = (inside * expected.ravel()[order]).cumsum(axis=1)
    verified = (inside * reach.ravel()[order]).cumsum(axis=1)
    paces = (n + earned) / (_at(curve_ms, verified) + drafting_ms[:, None])
    nothing = n / (curve_ms[0] + drafting_ms)
    return float(max(paces.max(), nothing.max()))


def _at(curve_ms: FloatArray, verified: FloatArray) -> FloatArray:
    whole = np.minimum(np.rint(verified).astype(np.int64), curve_ms.shape[0] - 1)
    ms: FloatArray = curve_ms[whole]
    return ms


def _drafting(truth: Truth, n: int, context_tokens: int, depths: tuple[int, ...]) -> FloatArray:
    """Return what drafting each depth adds to a step, in milliseconds."""
    of_depth = {
        depth: truth.step_time.step_ms(
            StepMakeUp(n, 0, context_tokens=context_tokens, draft_depth=depth)
        )
        for depth in {0, *depths}
    }
    return np.array([max(of_depth[depth] - of_depth[0], 0.0) for depth in depths])
