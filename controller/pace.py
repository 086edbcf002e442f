"""What pace requests would get on an engine at a load that it does not have yet."""

from __future__ import annotations

import dataclasses

import numpy as np

from acclimate.controller.engine_state import EngineState
from acclimate.controller.records import FloatArray


@dataclasses.dataclass(frozen=True, slots=True)
class Crowd:
    """Requests by traffic class, on one engine.

    Parameters
    ----------
    counts
        Shape (c,), not negative; fractions of a request stand for what is expected to come.
    survival
        Shape (c, max_depth): P(the draft tokens up to each position are accepted).
    """

    counts: FloatArray
    survival: FloatArray


def paces_ms(
    engine: EngineState, crowd: Crowd, *, prompt_tokens: float, answer_tokens: float
) -> FloatArray:
    """Return the milliseconds per token that each class of a crowd would get, shape (c,).

    The engine is taken to verify those drafts that make all tokens per second most; where its own
    rule acts instead of a policy, all of them. With T the step's duration, E the tokens that a
    request of the class writes in it, and n requests that bring a prompt of p tokens for every L
    tokens they write, a token takes T/E + n·p·c/L, with c the time that a prompt token adds to a step.

    Parameters
    ----------
    engine
        Its ``joint_ms`` must be known.
    crowd
        Who would be there; one request at least.
    prompt_tokens, answer_tokens
        p and L.

    Raises
    ------
    ValueError
        The engine's step times are not known, or the crowd is empty.

    Examples
    --------
    >>> from acclimate.controller.engine_state import Load, Place
    >>> engine = EngineState(place=Place(engine="a"), load=Load(), max_depth=1, loads=(1, 10),
    ...                      joint_ms=((10.0, 10.0), (10.0, 14.0)))
    >>> crowd = Crowd(np.array([1.0]), np.array([[0.5]]))
    >>> paces_ms(engine, crowd, prompt_tokens=0, answer_tokens=100).round(2).tolist()
    [6.67]
    >>> crowd = Crowd(np.array([9.0, 1.0]), np.array([[0.1], [0.9]]))
    >>> paces_ms(engine, crowd, prompt_tokens=0, answer_tokens=100).round(1).tolist()
    [10.4, 5.5]
    """
    n = float(crowd.counts.sum())
    if not engine.joint_ms or not n:
        raise ValueError(f"step times must be known and requests there, got {n:g} requests")
    depth = min(engine.max_depth, crowd.survival.shape[1])
    survival = crowd.survival[:, :depth]
    weights = np.repeat(crowd.counts, depth)
    order = np.argsort(-survival, axis=None, kind="stable")
    gains = survival.ravel()[order]
    verified = np.concatenate([[0.0], weights[order].cumsum()])
    tokens = n + np.concatenate([[0.0], (weights[order] * gains).cumsum()])
    times = _step_ms(engine, n, verified / n)
    speeds = tokens / times
    best = verified.shape[0] - 1 if engine.blocked_by else int(np.argmax(speeds.round(12)))
    chosen = np.zeros(survival.size)
    chosen[order[:best]] = gains[:best]
    written = 1.0 + chosen.reshape(survival.shape).sum(axis=1)
    stall_ms = n * prompt_tokens * engine.prompt_ms / max(answer_tokens, 1.0)
    paces: FloatArray = times[best] / written + stall_ms
    return paces


def _step_ms(engine: EngineState, requests: float, depth: FloatArray) -> FloatArray:
    """Return the duration of a step in which each request verifies so many drafts on average."""
    known = np.maximum.accumulate(np.array(engine.joint_ms), axis=0)  # more never takes less
    loads = np.array(engine.loads, dtype=np.float64)
    at = int(np.clip(np.searchsorted(loads, requests), 1, max(loads.shape[0] - 1, 1)))
    depths = np.arange(known.shape[1])
    below: FloatArray = np.interp(depth, depths, known[at - 1])
    if loads.shape[0] == 1:
        return below
    above = np.interp(depth, depths, known[at])
    share = max((requests - loads[at - 1]) / (loads[at] - loads[at - 1]), 0.0)
    times: FloatArray = below + share * (above - below)
    return times
