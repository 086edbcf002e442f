"""Do sampled tokens follow the target's law? A random model, counted against laws by plain passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.experiments.figures import Figure
from acclimate.experiments.lab.tree_cells import SAMPLING, TreeCell, TreeRow
from acclimate.experiments.trees.draft import grow_beam
from acclimate.experiments.trees.sampling_check import (
    chi_square_p,
    count_pairs,
    not_renormalised,
    pair_law,
)
from acclimate.experiments.trees.tiny_model import TableDrafter, tiny_llama
from acclimate.experiments.trees.verification import residual

_PROMPT, _SHARPNESS = (7, 3, 5), 3.0  # of the random model
_SAMPLED = {"depth": 2, "width": 4, "nodes": 20}
_DRAWS_PER_CELL = 10_000
_CASES = {
    "sampling_p": (None, residual),
    "sampling_fixed_p": (grow_beam, residual),
    "sampling_planted_p": (None, not_renormalised),
}
"""Children drawn without replacement, trees that are a function of the text, a planted fault."""


def sampling_cells(draws: int, *, seed: int) -> list[TreeCell]:
    """Return cells that cover so many draws of each case."""
    return [
        TreeCell(
            key=f"{SAMPLING}/{case}/{first}",
            options={
                "case": case,
                "first": first,
                "draws": min(_DRAWS_PER_CELL, draws - first),
                "seed": seed,
            },
        )
        for case in _CASES
        for first in range(0, draws, _DRAWS_PER_CELL)
    ]


def sampling_cell(key: str, *, case: str, first: int, draws: int, seed: int) -> TreeRow:
    """Count pairs of tokens: the pairs' numbers, and how often each was drawn."""
    grow, left_by = _CASES[case]
    model = tiny_llama(seed=seed, sharpness=_SHARPNESS)
    drafter = TableDrafter.noisy(model, prompt=_PROMPT, seed=seed, noise=0.7)
    options: dict[str, Any] = {"draws": draws, "first": first, "seed": seed, **_SAMPLED}
    counts = count_pairs(model, drafter, _PROMPT, grow=grow, left_by=left_by, **options).ravel()
    pairs = np.flatnonzero(counts)
    return TreeRow(
        key=key,
        numbers={
            "pairs": pairs.astype(float).tolist(),
            "counts": counts[pairs].astype(float).tolist(),
        },
    )


def sampling_figures(rows: Sequence[TreeRow], *, seed: int) -> list[Figure]:
    """Return p of the chi-square test of each case, over all of its cells."""
    law = pair_law(tiny_llama(seed=seed, sharpness=_SHARPNESS), _PROMPT)
    figures = []
    for case in _CASES:
        counts: IntArray = np.zeros(law.size, dtype=np.int64)
        for row in rows:
            if row.key.startswith(f"{SAMPLING}/{case}/"):
                pairs = np.array(row.column("pairs"), dtype=np.int64)
                counts[pairs] += np.array(row.column("counts"), dtype=np.int64)
        if counts.sum():
            figures.append(
                Figure(
                    f"tree/{case}", chi_square_p(counts.reshape(law.shape), law),
                    n=int(counts.sum()),
                )
            )  # fmt: skip
    return figures
