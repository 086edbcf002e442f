"""Latency tables from measured passes: verifying, drafting, and both together."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from acclimate.experiments.gpu_profile.plan import DRAFT, TARGET, PassCell

STEP_FILE, VERIFY_FILE, DRAFT_FILE, TREE_FILE = (
    "latency.csv", "verify.csv", "draft.csv", "trees.csv",
)  # fmt: skip

Row = tuple[int, int, int, float]
"""Batch, K, context per request, milliseconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileTables:
    """Rows of the tables.

    Parameters
    ----------
    verify
        T_v: K draft tokens of each request verified in one pass of the target.
    draft
        T_d: K passes of the drafter, a token of each request in each.
    step
        Both together: a step at depth K.
    trees
        As ``verify``, of trees.
    """

    verify: list[Row]
    draft: list[Row]
    step: list[Row]
    trees: list[Row]

    @classmethod
    def of(cls, measured: Mapping[PassCell, float]) -> ProfileTables:
        """Build from milliseconds by cell; a step needs both its parts.

        Examples
        --------
        >>> tables = ProfileTables.of({
        ...     PassCell("target", 1, 64, 1): 10.0, PassCell("target", 1, 64, 3): 11.0,
        ...     PassCell("draft", 1, 64, 1): 2.0})
        >>> tables.step, round(tables.draft_share, 2)
        ([(1, 0, 64, 10.0), (1, 2, 64, 15.0)], 0.8)
        """
        passes = {
            (cell.batch, cell.context): ms
            for cell, ms in measured.items()
            if cell.role == DRAFT and cell.tokens == 1
        }
        targets = sorted(cell for cell in measured if cell.role == TARGET)
        verify, draft, step, trees = [], [], [], []
        for cell in targets:
            k, ms = cell.tokens - 1, measured[cell]
            if cell.tree:
                trees.append((cell.batch, k, cell.context, ms))
                continue
            verify.append((cell.batch, k, cell.context, ms))
            if (cell.batch, cell.context) in passes:
                drafting = k * passes[cell.batch, cell.context]
                if k:
                    draft.append((cell.batch, k, cell.context, drafting))
                step.append((cell.batch, k, cell.context, ms + drafting))
        return cls(verify, draft, step, trees)

    @property
    def draft_share(self) -> float:
        """Share of what steps take beyond depth 0 that pays for drafting, over all cells."""
        base = {(b, c): ms for b, k, c, ms in self.step if k == 0}
        beyond = sum(ms - base[b, c] for b, k, c, ms in self.step if k and (b, c) in base)
        drafting = sum(ms for b, _, c, ms in self.draft if (b, c) in base)
        return min(drafting / beyond, 1.0) if beyond > 0.0 else 0.0

    def write(self, folder: Path) -> list[Path]:
        """Write each table that has rows, as CSV of batch, K, context and ms."""
        folder.mkdir(parents=True, exist_ok=True)
        tables: Sequence[tuple[str, list[Row]]] = (
            (STEP_FILE, self.step), (VERIFY_FILE, self.verify), (DRAFT_FILE, self.draft),
            (TREE_FILE, self.trees),
        )  # fmt: skip
        written = []
        for name, rows in tables:
            if not rows:
                continue
            path = folder / name
            with path.open("w", newline="", encoding="utf-8") as file:
                out = csv.writer(file)
                out.writerow(("batch", "K", "context", "ms"))
                out.writerows((b, k, c, f"{ms:.4f}") for b, k, c, ms in rows)
            written.append(path)
        return written
