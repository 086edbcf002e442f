"""Marginal survival of draft positions where the depth was chosen by something that matters.

A policy verifies deep where it expects much, so the tokens seen at deep positions are the easy
ones, and their plain mean is too high for the traffic at large. Where each depth was chosen with a
known chance, weights of one over that chance undo the choice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays

_STATE = ("weight", "accepted", "pair_weight", "pair_accepted", "blocks")
_TINY = 1e-12


class CensoredSurvival:
    """Survival S_i = P(the first i drafts are all accepted) over all blocks, with intervals.

    A position's marginal conditional acceptance is a weighted mean over the blocks in which it was
    graded, q_i = Σ y_i/π_i / Σ 1/π_i, where π_i is the logged probability that position i would be
    graded if all before it were accepted; S_i = q_1·…·q_i. This is the Kaplan-Meier estimator with
    inverse-probability-of-censoring weights. The variance of log S_i is that of the sum of its
    blocks' influences Σ_j≤i (y_j - q_j)/(π_j·q_j·Σ 1/π_j): the same block counts at several
    positions, and hard blocks are hard at all of them, so that errors do not simply add up. Blocks
    are taken as independent.

    Hindsight grades a position whatever was verified: its labels have a probability of 1.

    Parameters
    ----------
    max_depth
        Positions.
    window_blocks
        Blocks after which evidence has decayed to 1/e; infinite for none.
    least_propensity
        In (0, 1]: smaller probabilities are taken as this, and counted in `clipped`. It bounds what
        one block can weigh, at the price of a bias where such blocks are many.

    Raises
    ------
    ValueError
        A parameter is out of range.

    Examples
    --------
    Blocks are easy or hard; the third position is verified in nine of ten easy ones, and in one of
    ten hard ones.

    >>> rng = np.random.default_rng(0)
    >>> model = CensoredSurvival(max_depth=3)
    >>> easy = rng.random(20_000) < 0.5
    >>> chance = np.where(easy, 0.9, 0.1)
    >>> depth = np.where(rng.random(easy.size) < chance, 3, 2)
    >>> right = rng.random((easy.size, 3)) < np.where(easy, 0.9, 0.5)[:, None]
    >>> run = np.where(right.all(axis=1), 3, right.argmin(axis=1))
    >>> matched = np.minimum(run, depth)
    >>> propensity = np.stack([np.ones_like(chance), np.ones_like(chance), chance], axis=1)
    >>> model.learn(np.minimum(matched + 1, depth), matched, propensity)
    >>> bool(abs(model.survival[2] - (0.9**3 + 0.5**3) / 2) < 0.02)
    True

    References
    ----------
    Robins, Finkelstein: Correcting for noncompliance and dependent censoring in an AIDS clinical
    trial with inverse probability of censoring weighted (IPCW) log-rank tests. Biometrics 56, 2000.
    """

    def __init__(
        self,
        max_depth: int,
        *,
        window_blocks: float = math.inf,
        least_propensity: float = 0.01,
    ) -> None:
        if max_depth < 1:
            raise ValueError(f"max_depth must be >= 1, got {max_depth}")
        if not window_blocks > 0.0:
            raise ValueError(f"window_blocks must be > 0, got {window_blocks}")
        if not 0.0 < least_propensity <= 1.0:
            raise ValueError(f"least_propensity must be in (0, 1], got {least_propensity}")
        self.max_depth = max_depth
        self.window_blocks = window_blocks
        self.least_propensity = least_propensity
        self.weight = np.zeros(max_depth)
        self.accepted = np.zeros(max_depth)
        # Over blocks that reached position j: w_i·w_j, and of those where j was accepted, i <= j.
        self.pair_weight = np.zeros((max_depth, max_depth))
        self.pair_accepted = np.zeros((max_depth, max_depth))
        self.blocks = np.zeros(1)
        self.clipped = 0
        self.dropped: Counter[str] = Counter()

    @property
    def conditional(self) -> FloatArray:
        """Marginal q_i, shape (max_depth,); NaN where nothing was graded."""
        with np.errstate(invalid="ignore", divide="ignore"):
            q: FloatArray = self.accepted / self.weight
        return q

    @property
    def survival(self) -> FloatArray:
        """S_i, shape (max_depth,), in [0, 1]; NaN from the first position without evidence on."""
        survival: FloatArray = np.cumprod(self.conditional, dtype=np.float64)
        return survival

    def interval(self, sigmas: float = 1.96) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper bounds of S_i, symmetric in log-odds; [0, 1] without evidence.

        Each has shape (max_depth,). Where a position was always, or never, accepted, half a token
        of the other outcome is taken as seen.
        """
        known = self.weight > 0.0
        floor = 0.5 * np.where(known, np.diag(self.pair_weight) / np.maximum(self.weight, _TINY), 1)
        total = np.maximum(self.weight, _TINY)
        q = np.clip(self.accepted, floor, np.maximum(total - floor, floor)) / np.maximum(
            total, 2 * floor
        )
        scale = total * q
        products = np.zeros((self.max_depth, self.max_depth))
        for i in range(self.max_depth):
            for j in range(i, self.max_depth):
                if i == j:
                    seen = self.pair_accepted[i, i] * (1.0 - 2.0 * q[i])
                    product = seen + q[i] ** 2 * self.pair_weight[i, i]
                    product = max(product, 0.5 * q[i] * (1.0 - q[i]) * self.pair_weight[i, i])
                else:
                    gap = self.pair_accepted[i, j] - q[j] * self.pair_weight[i, j]
                    product = (1.0 - q[i]) * gap
                products[i, j] = products[j, i] = product / (scale[i] * scale[j])
        survival = np.cumprod(q)
        variance = np.array([products[: i + 1, : i + 1].sum() for i in range(self.max_depth)])
        spread = np.sqrt(np.maximum(variance, 0.0)) / np.maximum(1.0 - survival, _TINY)
        odds = np.log(survival) - np.log1p(-survival)
        reached = np.logical_and.accumulate(known)
        low = np.where(reached, 1.0 / (1.0 + np.exp(np.minimum(sigmas * spread - odds, 700.0))), 0)
        high = np.where(reached, 1.0 / (1.0 + np.exp(np.maximum(-sigmas * spread - odds, -700))), 1)
        return low, high

    def learn(self, graded: IntArray, matched: IntArray, propensity: FloatArray) -> None:
        """Learn blocks of graded tokens.

        A block that cannot be is dropped, and counted in `dropped` under the name of its fault.

        Parameters
        ----------
        graded, matched
            Shape (n,): positions 1 … ``graded`` became known, the first ``matched`` of them
            accepted; ``graded - matched`` is 0 or 1.
        propensity
            Shape (n, max_depth), in (0, 1]: the probability that each position would be graded if
            all before it were accepted.
        """
        outside = (graded < 0) | (graded > self.max_depth)
        impossible = (matched < 0) | (matched > graded) | (graded - matched > 1)
        reached = np.arange(self.max_depth) < graded[:, None]
        with np.errstate(invalid="ignore"):
            odd = (~((propensity > 0.0) & (propensity <= 1.0)) & reached).any(axis=1)
        faults = outside | impossible | odd
        if faults.any():
            self.dropped["graded out of range"] += int(outside.sum())
            self.dropped["matched out of range"] += int((impossible & ~outside).sum())
            self.dropped["propensity out of range"] += int((odd & ~outside & ~impossible).sum())
            graded, matched, propensity = graded[~faults], matched[~faults], propensity[~faults]
        self.clipped += _learn(
            self.weight,
            self.accepted,
            self.pair_weight,
            self.pair_accepted,
            self.blocks,
            np.ascontiguousarray(graded),
            np.ascontiguousarray(matched),
            np.ascontiguousarray(propensity),
            math.exp(-1.0 / self.window_blocks),
            self.least_propensity,
        )

    def learn_one(self, x: dict[str, Any], y: int) -> None:
        """Learn one block: ``x`` has ``graded`` and ``propensity`` (one or max_depth), y = matched."""
        propensity: float | Sequence[float] = x.get("propensity", 1.0)
        row = np.empty((1, self.max_depth))
        row[0] = propensity
        self.learn(np.array([int(x["graded"])]), np.array([int(y)]), row)

    def predict_one(self, x: dict[str, Any]) -> float:
        """Return S at ``position`` (1 for the first); 0.5 without evidence."""
        position = min(max(int(x.get("position", 1)), 1), self.max_depth)
        survival = float(self.survival[position - 1])
        return survival if math.isfinite(survival) else 0.5

    def state(self) -> dict[str, Any]:
        """Return the sums; estimates after `load` are bitwise the same."""
        return {
            **save_arrays(self, _STATE),
            "clipped": self.clipped,
            "dropped": dict(self.dropped),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state has another depth, or is not finite.
        """
        load_arrays(self, _STATE, state, finite=True)
        self.clipped = int(state["clipped"])
        self.dropped = Counter({str(k): int(v) for k, v in state["dropped"].items()})


@compiled(
    "i8(f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1], i8[::1], i8[::1], f8[:,::1], f8, f8)"
)
def _learn(
    weight: FloatArray,
    accepted: FloatArray,
    pair_weight: FloatArray,
    pair_accepted: FloatArray,
    blocks: FloatArray,
    graded: IntArray,
    matched: IntArray,
    propensity: FloatArray,
    keep: float,
    least: float,
) -> int:
    clipped = 0
    own = np.empty(weight.shape[0])
    for b in range(graded.shape[0]):
        if keep < 1.0:
            weight *= keep
            accepted *= keep
            # Weights enter the variance squared.
            pair_weight *= keep * keep
            pair_accepted *= keep * keep
            blocks[0] *= keep
        blocks[0] += 1.0
        for j in range(graded[b]):
            if propensity[b, j] < least:
                clipped += 1
            own[j] = 1.0 / max(propensity[b, j], least)
            right = 1.0 if j < matched[b] else 0.0
            weight[j] += own[j]
            accepted[j] += own[j] * right
            for i in range(j + 1):
                pair_weight[i, j] += own[i] * own[j]
                pair_accepted[i, j] += own[i] * own[j] * right
    return clipped
