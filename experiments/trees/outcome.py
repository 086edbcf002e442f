"""What came of a step, in the loop's terms: per node, and per chain of first children."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import DraftOutcomes, IntArray, NodeOutcomes
from acclimate.experiments.trees.forest import Forest
from acclimate.experiments.trees.grading import grade_nodes
from acclimate.integrations.vllm.grading import DraftGrader, flat_ids


def node_outcomes(forest: Forest, kept: IntArray, written: Sequence[Sequence[int]]) -> NodeOutcomes:
    """Return what became of every candidate.

    Parameters
    ----------
    forest
        What was at hand.
    kept
        Nodes that were verified.
    written
        Tokens that each request's step wrote, before stops.
    """
    verified = np.zeros(len(forest), dtype=np.int64)
    verified[kept] = 1
    tokens, lens = flat_ids(written)
    graded, accepted = grade_nodes(
        forest.request,
        forest.parent,
        forest.depth,
        forest.tokens,
        verified,
        tokens,
        np.concatenate([[0], np.cumsum(lens)]).astype(np.int64),
        not forest.drawn,
    )
    return NodeOutcomes(
        request=forest.request,
        parent=forest.parent,
        depth=forest.depth,
        confidence=forest.confidence,
        verified=verified,
        graded=graded,
        accepted=accepted,
    )


def chain_outcomes(
    grader: DraftGrader,
    forest: Forest,
    nodes: NodeOutcomes,
    *,
    step: int,
    slots: IntArray,
    numbers: IntArray,
    drafted_by: IntArray,
    committed: Sequence[Sequence[int]],
) -> DraftOutcomes:
    """Return what became of the chains of first children, for learners that know chains alone.

    Parameters
    ----------
    grader
        Keeps chains that later tokens will grade.
    forest, nodes
        What was at hand, and what became of it.
    step, slots, numbers, drafted_by
        As `DraftGrader.grade` takes them.
    committed
        Tokens of each request that stayed.
    """
    n, chain = forest.n_requests, forest.chain()
    of_request, verified = forest.request[chain], nodes.verified[chain]
    hit = verified * nodes.accepted[chain]
    proposed, tried, accepted = (
        np.bincount(of_request, weights=weights, minlength=n).astype(np.int64)
        for weights in (np.ones(chain.shape[0]), verified, hit)
    )
    return grader.grade(
        step=step,
        slots=slots,
        numbers=numbers,
        drafted_by=drafted_by,
        proposed=proposed,
        verified=tried,
        accepted=accepted,
        tokens=flat_ids(committed),
        proposals=None if forest.drawn else (forest.tokens[chain], proposed),
    )
