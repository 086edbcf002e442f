"""What a profile measures: passes of a target and of a drafter, by batch, tokens and context."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

TARGET, DRAFT = "target", "draft"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PassCell:
    """One kind of pass.

    Parameters
    ----------
    role
        `TARGET` or `DRAFT`.
    batch
        Requests.
    context
        Tokens of each whose keys and values are at hand.
    tokens
        New tokens of each: 1 and the draft nodes.
    tree
        Whether the new tokens are a tree of two branches instead of a chain.
    """

    role: str
    batch: int
    context: int
    tokens: int
    tree: bool = False

    @property
    def name(self) -> str:
        """For people.

        >>> PassCell(TARGET, 8, 512, 5).name
        'target: 8 requests, 5 tokens each, context 512'
        """
        shape = "tokens in a tree" if self.tree else "tokens"
        return f"{self.role}: {self.batch} requests, {self.tokens} {shape} each, context {self.context}"


@dataclasses.dataclass(frozen=True, slots=True)
class ProfileGrid:
    """What is measured.

    Parameters
    ----------
    batches, contexts
        Of requests, and tokens of each.
    drafts
        Verified draft nodes per request, 0 among them.
    tree_drafts
        Those that are measured as a tree too.
    draft_tokens
        New tokens per request in a pass of the drafter, 1 among them: a level of a tree drafts
        several at once.
    """

    batches: Sequence[int] = (1, 4, 16, 64, 2, 8, 32)
    contexts: Sequence[int] = (512, 4096)
    drafts: Sequence[int] = (0, 1, 2, 4, 8, 16, 32)
    tree_drafts: Sequence[int] = (16,)
    draft_tokens: Sequence[int] = (1, 4)

    def __post_init__(self) -> None:
        for name, least in (("batches", 1), ("contexts", 1), ("drafts", 0), ("draft_tokens", 1)):
            values = getattr(self, name)
            if not values or min(values) < least:
                raise ValueError(f"{name} must be numbers >= {least}, got {tuple(values)}")
        if 0 not in self.drafts or 1 not in self.draft_tokens:
            raise ValueError(
                f"drafts must hold 0 and draft_tokens 1, got {tuple(self.drafts)} and "
                f"{tuple(self.draft_tokens)}"
            )

    def cells(self) -> list[PassCell]:
        """Return all cells, in an order that gives whole rows first if time runs out.

        >>> grid = ProfileGrid(batches=(1,), contexts=(64,), drafts=(0, 2), tree_drafts=(2,),
        ...                    draft_tokens=(1,))
        >>> [(cell.role, cell.tokens, cell.tree) for cell in grid.cells()]
        [('draft', 1, False), ('target', 1, False), ('target', 3, False), ('target', 3, True)]
        """
        cells = []
        for context, batch in itertools.product(self.contexts, self.batches):
            cells += [PassCell(DRAFT, batch, context, tokens) for tokens in self.draft_tokens]
            cells += [PassCell(TARGET, batch, context, 1 + drafts) for drafts in self.drafts]
            cells += [
                PassCell(TARGET, batch, context, 1 + drafts, tree=True)
                for drafts in self.tree_drafts
            ]
        return cells
