"""Chooses which draft tokens to verify: the best prefix of candidates at the price of time."""

from __future__ import annotations

import dataclasses

import numpy as np

from acclimate.controller.records import Candidates, FloatArray, IntArray
from acclimate.controller.select_kernels import best_prefix, chains, choose, count_by_request


def chain_candidates(survival: FloatArray, drafts: IntArray) -> Candidates:
    """Return the candidates of chains, position by position.

    Parameters
    ----------
    survival
        Shape (n, max_depth): P(the first i drafts of request r are all accepted).
    drafts
        Shape (n,): drafts at hand, at most ``max_depth``.

    Examples
    --------
    >>> chain = chain_candidates(np.array([[0.9, 0.8], [0.5, 0.2]]), np.array([2, 1]))
    >>> chain.request.tolist(), chain.parent.tolist(), chain.depth.tolist()
    ([0, 1, 0], [-1, -1, 0], [1, 1, 2])
    """
    about, survives = chains(survival, drafts)
    return Candidates(about[0], about[1], about[2], survives)


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """All candidates by worth, and how many of them to verify.

    Parameters
    ----------
    order
        Shape (m,): candidates, best first; the first ``count`` are chosen.
    earned
        Shape (m + 1,): worth of the best 0, 1, … m.
    gains
        Shape (m + 1,): the objective above that of verifying nothing, in tokens.
    count
        How many are chosen.
    """

    order: IntArray
    earned: FloatArray
    gains: FloatArray
    count: int

    def worth(self, count: int) -> float:
        """Return the worth of the best ``count`` candidates."""
        return float(self.earned[count])


def select(worth: FloatArray, milliseconds: FloatArray, price_tokens_per_ms: float) -> Selection:
    """Choose how many of the best candidates to verify: maximise worth - price · milliseconds.

    Worth never rises along a path, so that the best m candidates are, for every m, a prefix of
    each chain and a connected tree. Every m is examined: step latency has cliffs.

    Parameters
    ----------
    worth
        Shape (m,): weighted survival of each candidate, parents before children.
    milliseconds
        Shape (m + 1,): duration of the step with 0, 1, … m verified drafts.
    price_tokens_per_ms
        Tokens that a millisecond could earn elsewhere.

    Examples
    --------
    >>> select(np.array([0.9, 0.4, 0.1]), np.array([10.0, 10.5, 11.0, 11.5]), 0.5).count
    2
    """
    order, sums, count = best_prefix(worth, milliseconds, price_tokens_per_ms)
    return Selection(order, sums[0], sums[1], count)


@dataclasses.dataclass(frozen=True, slots=True)
class ChainChoice:
    """What to verify of a step's chains, in one go.

    Parameters
    ----------
    candidates
        As `chain_candidates` gives them, with unshaded survival.
    selection
        By shaded survival.
    lens
        Shape (n,): how many drafts of each request are chosen.
    believed
        Shape (m,): shaded survival of the candidates, without weights.
    """

    candidates: Candidates
    selection: Selection
    lens: IntArray
    believed: FloatArray

    def tokens(self, count: int) -> float:
        """Return the drafts that are expected to be accepted of the best ``count``."""
        return float(self.believed[self.selection.order[:count]].sum())


UNWEIGHTED = np.zeros(0)
"""Weights of requests whose tokens are all worth the same."""


def choose_chains(
    survival: FloatArray,
    shade: FloatArray,
    slots: IntArray,
    drafts: IntArray,
    milliseconds: FloatArray,
    price_tokens_per_ms: float,
    weights: FloatArray = UNWEIGHTED,
) -> ChainChoice:
    """Do what `chain_candidates`, `select` and `verify_lens` do, in one compiled call.

    Parameters
    ----------
    survival
        Shape (n, max_depth).
    shade
        Shape (n_slots,): factor on the survival of a slot's requests.
    slots, drafts
        Shape (n,): each request's slot, and its drafts at hand.
    milliseconds
        Duration of the step with 0, 1, … verified drafts, for all drafts at hand at least.
    price_tokens_per_ms
        Tokens that a millisecond could earn elsewhere.
    weights
        Shape (n,): what a token of each request is worth; by default 1.

    Examples
    --------
    >>> choice = choose_chains(
    ...     np.array([[0.9, 0.8], [0.5, 0.2]]), np.ones(1), np.array([0, 0]), np.array([2, 1]),
    ...     np.array([10.0, 11.0, 12.0, 13.0]), 0.6)
    >>> choice.selection.count, choice.lens.tolist()
    (2, [2, 0])
    """
    about, survives, believed, sums, order, count, lens = choose(
        survival, shade, slots, drafts, milliseconds, price_tokens_per_ms, weights
    )
    candidates = Candidates(about[0], about[1], about[2], survives)
    return ChainChoice(candidates, Selection(order, sums[0], sums[1], count), lens, believed)


def verify_lens(
    candidates: Candidates, selection: Selection, count: int, n_requests: int
) -> IntArray:
    """Return how many of the best ``count`` candidates belong to each request, shape (n,)."""
    return count_by_request(candidates.request, selection.order, count, n_requests)


def depth_values(
    worth: FloatArray,
    reach: FloatArray,
    depths: tuple[int, ...],
    milliseconds: FloatArray,
    drafting_ms: FloatArray,
    price_tokens_per_ms: float,
    *,
    uniform: bool,
) -> FloatArray:
    """Return the objective of each draft depth, in tokens: what its drafts will be worth.

    Parameters
    ----------
    worth, reach
        Shape (n, max_depth): weighted survival of a draft, and P(the draft is that long).
    depths
        Depths to compare, ascending.
    milliseconds
        Duration of a step with 0, 1, … verified drafts.
    drafting_ms
        Shape (len(depths),): duration of drafting.
    price_tokens_per_ms
        The price of time.
    uniform
        Whether all requests verify alike; otherwise each depth verifies its best candidates.

    Examples
    --------
    >>> worth = np.array([[0.9, 0.5]])
    >>> depth_values(worth, np.ones((1, 2)), (0, 1, 2), np.array([10.0, 11.0, 12.0]),
    ...              np.zeros(3), 0.6, uniform=True).round(1).tolist()
    [0.0, 0.3, 0.2]
    """
    expected, length = worth * reach, reach
    values: FloatArray = -price_tokens_per_ms * drafting_ms
    if uniform:
        earned = np.concatenate(([0.0], expected.sum(axis=0).cumsum()))[list(depths)]
        verified = np.concatenate(([0.0], length.sum(axis=0).cumsum()))[list(depths)]
        values = values + earned - price_tokens_per_ms * _extra(milliseconds, verified)
        return values
    order = np.argsort(-worth, axis=None, kind="stable")
    position = order % worth.shape[1]
    inside = position < np.array(depths)[:, None]
    earned = (inside * expected.ravel()[order]).cumsum(axis=1)
    verified = (inside * length.ravel()[order]).cumsum(axis=1)
    gains = earned - price_tokens_per_ms * _extra(milliseconds, verified)
    values = values + np.maximum(gains.max(axis=1), 0.0)
    return values


def _extra(milliseconds: FloatArray, verified: FloatArray) -> FloatArray:
    """Return the time beyond a step without drafts, at expected numbers of verified drafts."""
    last = milliseconds.shape[0] - 1
    whole = np.minimum(np.rint(verified).astype(np.int64), last)
    extra: FloatArray = milliseconds[whole] - milliseconds[0]
    return extra
