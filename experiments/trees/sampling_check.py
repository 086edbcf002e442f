"""Does the engine draw from the target's law? Counted tokens against laws computed without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import chi2  # type: ignore[import-untyped]

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities, FloatArray, IntArray
from acclimate.experiments.peers.static_tree import StaticTree
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.trees.draft import Grower, NextTokens
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.plain import next_laws
from acclimate.experiments.trees.requests import TreeRequest
from acclimate.experiments.trees.target import TreeTarget
from acclimate.experiments.trees.verification import Residual, residual

_TOKENS = 4  # the first by the prompt, two that are looked at, and room for drafts two deep
_CHUNK = 2_000


def count_pairs(
    model: Any,
    drafter: NextTokens,
    prompt: Sequence[int],
    *,
    draws: int,
    first: int = 0,
    grow: Grower | None,
    depth: int = 2,
    width: int = 3,
    nodes: int = 12,
    batch: int = 128,
    temperature: float = 1.0,
    seed: int = 0,
    left_by: Residual = residual,
) -> IntArray:
    """Return how often the engine wrote each pair of second and third token, shape (vocab, vocab).

    Parameters
    ----------
    model, drafter
        The target and the drafter.
    prompt
        Token ids, the same for all requests.
    draws, first
        Requests, and how many others have drawn before: draws of different requests differ.
    grow
        How trees grow; None: children are drawn by chance.
    depth, width, nodes
        Of the trees, which are verified whole.
    batch
        Requests in service.
    left_by
        For a planted fault.
    """
    engine_of = Capabilities(
        max_depth=depth,
        depths=tuple(range(depth + 1)),
        max_width=width,
        hindsight=grow is not None,
    )
    policy = StaticTree(engine_of, depth=depth, width=width, nodes=nodes)
    loop = ControlLoop(policy, engine_of, ControlConfig(), clock_ns=SimulatedClock())
    capacity = len(prompt) + _TOKENS + nodes + 1
    engine = TreeEngine(
        TreeTarget(model, max_requests=batch, capacity=capacity),
        loop,
        drafter,
        grow=grow,
        nodes=nodes,
        first_number=first + 1,
        seed=seed,
        left_by=left_by,
    )
    vocab = int(model.config.vocab_size)
    counts = np.zeros((vocab, vocab), dtype=np.int64)
    request = TreeRequest(prompt=prompt, max_tokens=_TOKENS, temperature=temperature)
    for begin in range(0, draws, _CHUNK):
        outputs = np.array(engine.run([request] * min(_CHUNK, draws - begin)))
        np.add.at(counts, (outputs[:, 1], outputs[:, 2]), 1)
        engine.finished.clear()
    return counts


def pair_law(model: Any, prompt: Sequence[int], *, temperature: float = 1.0) -> FloatArray:
    """Return the law of the second and third token behind a prompt, by plain passes.

    Shape (vocab, vocab); the first token is summed over.
    """
    vocab = int(model.config.vocab_size)
    every = range(vocab)
    first = next_laws(model, [list(prompt)], temperature=temperature)[0]
    second = next_laws(model, [[*prompt, a] for a in every], temperature=temperature)
    third = next_laws(
        model, [[*prompt, a, b] for a in every for b in every], temperature=temperature
    ).reshape(vocab, vocab, vocab)
    law: FloatArray = np.einsum("a,ab,abc->bc", first, second, third)
    return law


def chi_square_p(counts: IntArray, law: FloatArray, *, least_expected: float = 20.0) -> float:
    """Return P(counts at least this far from a law | they were drawn from it), Pearson's test.

    Parameters
    ----------
    counts, law
        Of one shape; ``law`` adds up to 1.
    least_expected
        Cells with a smaller expected count are taken as one.

    Examples
    --------
    >>> chi_square_p(np.array([500, 500]), np.array([0.5, 0.5]))
    1.0
    >>> chi_square_p(np.array([600, 400]), np.array([0.5, 0.5])) < 1e-9
    True
    """
    seen = counts.ravel().astype(np.float64)
    expected = law.ravel() * seen.sum()
    rare = expected < least_expected
    if rare.any():
        seen = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    positive = expected > 0.0
    if (seen[~positive] > 0).any():
        return 0.0
    distance = float(((seen - expected)[positive] ** 2 / expected[positive]).sum())
    return float(chi2.sf(distance, max(int(positive.sum()) - 1, 1)))


def not_renormalised(target: FloatArray, tokens: IntArray, chances: FloatArray) -> FloatArray:
    """Return [p - q]₊ as it is, the fault that the test must find."""
    left = target.copy()
    left[tokens] = np.maximum(left[tokens] - chances, 0.0)
    return left if left.sum() > 0.0 else target
