"""Does an estimate from verified tokens cover the truth where the policy chose what to verify?"""

from __future__ import annotations

import dataclasses

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.figures import Figure
from acclimate.predictors.censored_survival import CensoredSurvival

DEPTH, SHALLOW = 5, 2
POSITIONS = (4, 5)
_INTERCEPTS = np.array([1.6, 1.3, 1.1, 0.9, 0.7])
_SLOPE = 1.0
_OFTEN, _SELDOM = 0.9, 0.1
_NODES = 80
LABELS = ("", "_hindsight", "_uncorrected")
"""Suffixes of figures: verified tokens alone; with hindsight; verified tokens without weights."""


@dataclasses.dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of drafts, shapes (n,): how many would be accepted, the depth, and P(depth = 5 | x)."""

    run: IntArray
    depth: IntArray
    deep: FloatArray


def true_survival() -> FloatArray:
    """Return the marginal S_1 … S_5 over x ~ N(0, 1), by quadrature.

    >>> true_survival().round(3).tolist()
    [0.793, 0.618, 0.48, 0.371, 0.284]
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    q = _acceptance(nodes)
    survival: FloatArray = (weights / weights.sum()) @ np.cumprod(q, axis=1)
    return survival


def draw_blocks(n: int, rng: np.random.Generator) -> Blocks:
    """Draw blocks: x ~ N(0, 1), q_i = sigmoid(a_i + b·x), deep in 9 of 10 where x > 0, else 1."""
    x = rng.standard_normal(n)
    right = rng.random((n, DEPTH)) < _acceptance(x)
    run = np.where(right.all(axis=1), DEPTH, right.argmin(axis=1))
    deep = np.where(x > 0.0, _OFTEN, _SELDOM)
    depth = np.where(rng.random(n) < deep, DEPTH, SHALLOW)
    return Blocks(run, depth, deep)


def estimate(blocks: Blocks, tokens: int, labels: str) -> CensoredSurvival:
    """Learn from the first ``tokens`` tokens that verification grades, with the labels named."""
    verified = np.minimum(blocks.run + 1, blocks.depth)
    n = int(np.searchsorted(np.cumsum(verified), tokens, side="right"))
    run, depth, deep = blocks.run[:n], blocks.depth[:n], blocks.deep[:n]
    propensity = np.ones((n, DEPTH))
    if labels == "_hindsight":
        depth = np.full(n, DEPTH)
    elif labels == "":
        propensity[:, SHALLOW:] = deep[:, None]
    model = CensoredSurvival(DEPTH)
    model.learn(np.minimum(run + 1, depth), np.minimum(run, depth), propensity)
    return model


def censoring_figures(*, seeds: int, tokens: int, seed: int) -> list[Figure]:
    """Return coverage of the truth and mean width of 95 % intervals at positions 4 and 5.

    Parameters
    ----------
    seeds
        Independent streams.
    tokens
        Verified tokens in each; hindsight grades more of the same blocks.
    seed
        The first stream's; they count up.
    """
    truth = true_survival()
    covered = np.zeros((seeds, len(LABELS), DEPTH))
    width, error = np.zeros_like(covered), np.zeros_like(covered)
    for s in range(seeds):
        blocks = draw_blocks(tokens, np.random.default_rng([seed, s]))
        for k, labels in enumerate(LABELS):
            model = estimate(blocks, tokens, labels)
            low, high = model.interval()
            covered[s, k] = (low <= truth) & (truth <= high)
            width[s, k] = high - low
            error[s, k] = model.survival - truth
    figures = []
    for position in POSITIONS:
        name = f"censoring/position{position}"
        figures.append(Figure(f"{name}/truth", float(truth[position - 1]), n=1))
        for k, labels in enumerate(LABELS):
            of = (slice(None), k, position - 1)
            figures += [
                _share(f"{name}/coverage{labels}", covered[of]),
                _mean(f"{name}/width{labels}", width[of]),
                _mean(f"{name}/bias{labels}", error[of]),
            ]
    return figures


def _acceptance(x: FloatArray) -> FloatArray:
    q: FloatArray = 1.0 / (1.0 + np.exp(-(_INTERCEPTS + _SLOPE * x[:, None])))
    return q


def _share(name: str, hits: FloatArray) -> Figure:
    """Return a share with its Wilson interval."""
    from scipy.stats import binomtest  # type: ignore[import-untyped]

    interval = binomtest(int(hits.sum()), hits.size).proportion_ci(method="wilson")
    return Figure(name, float(hits.mean()), float(interval.low), float(interval.high), n=hits.size)


def _mean(name: str, values: FloatArray) -> Figure:
    half = 1.96 * float(values.std(ddof=1)) / values.size**0.5 if values.size > 1 else None
    mean = float(values.mean())
    if half is None:
        return Figure(name, mean, n=1)
    return Figure(name, mean, mean - half, mean + half, n=values.size)
