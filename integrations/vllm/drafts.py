"""Drafts that say how sure their drafter is of each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.records import Candidates, FloatArray, IntArray
from acclimate.controller.select import chain_candidates


class SureDraft(list[int]):
    """Draft token ids, and P(each is right | those before it are).

    An engine that drafts before it schedules hands this very list, or a pickled copy, to its
    scheduler; that it is more than a list is nothing to the engine.

    Parameters
    ----------
    ids
        Draft token ids.
    confidence
        Shape (len(ids),), in [0, 1].

    Examples
    --------
    >>> import pickle
    >>> draft = pickle.loads(pickle.dumps(SureDraft([7, 9], np.array([0.5, 0.25]))))
    >>> draft, draft.confidence.tolist()
    ([7, 9], [0.5, 0.25])
    """

    confidence: FloatArray

    def __init__(self, ids: Sequence[int] = (), confidence: FloatArray | None = None) -> None:
        super().__init__(ids)
        self.confidence = np.zeros(len(self)) if confidence is None else confidence


def sure_candidates(proposals: Sequence[Any], drafts: IntArray, depth: int) -> Candidates | None:
    """Return the drafts at hand as candidates, None where some draft says nothing of itself.

    A drafter that never says anything costs one look at its first draft.

    Parameters
    ----------
    proposals
        The n requests' drafts; an empty one needs to say nothing.
    drafts
        Shape (n,): tokens of each draft that count.
    depth
        Tokens of a draft at most.

    Examples
    --------
    >>> found = sure_candidates([SureDraft([7, 9], np.array([0.5, 0.25])), []], np.array([2, 0]), 4)
    >>> found.depth.tolist(), found.survival.tolist(), found.confidence.tolist()
    ([1, 2], [0.5, 0.125], [0.5, 0.25])
    """
    if type(next(filter(None, proposals), None)) is not SureDraft:
        return None
    sure = np.zeros((len(proposals), depth))
    for row, proposal in enumerate(proposals):
        if type(proposal) is SureDraft:
            own = proposal.confidence[:depth]
            sure[row, : own.shape[0]] = own
        elif proposal:
            return None
    survival: FloatArray = np.cumprod(sure, axis=1, dtype=np.float64)
    chain = chain_candidates(survival, drafts)
    alone = chain_candidates(sure, drafts)
    return Candidates(chain.request, chain.parent, chain.depth, chain.survival, alone.survival)
