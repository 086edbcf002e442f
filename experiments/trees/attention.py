"""Attention of requests with different numbers of new nodes, each over its own keys alone.

The nodes of all requests pass through the model's weights as one sequence, none of them a filler:
what a step takes then depends on how many nodes it has, and little on who has them. Attention alone
sees requests row by row, filled up to the widest, and that is the small part of a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

NAME = "acclimate_rows"
"""The name under which transformers knows `rows_attention`, once `let_rows_attend` was called."""


def rows_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    places: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return what each of m nodes attends to, shape (1, m, heads, head_dim), and no weights.

    Parameters
    ----------
    module
        The layer; only asked by the model's usual attention, where ``places`` is None.
    query
        Shape (1, heads, m, head_dim): the nodes of all rows, one row after the other.
    key, value
        Shape (rows, key heads, span, head_dim).
    attention_mask
        Shape (rows, 1, group · widest, span), what is added to scores; a group are the heads that
        share keys, see `grouped`.
    places
        Shape (m,): place of each node in the grid of rows and ``widest``, ascending.
    """
    if places is None or attention_mask is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        usual: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return usual
    rows, key_heads, _, head_dim = key.shape
    heads, nodes = query.shape[1:3]
    group = heads // key_heads
    widest = attention_mask.shape[2] // group
    grid = query[0].transpose(0, 1)
    if nodes < rows * widest:
        grid = query.new_zeros((rows * widest, heads, head_dim)).index_copy_(0, places, grid)
    # Heads that share keys stand below each other, so that no key is copied.
    asked = grid.reshape(rows, widest, key_heads, group, head_dim).permute(0, 2, 3, 1, 4)
    seen = scaled_dot_product_attention(
        asked.reshape(rows, key_heads, group * widest, head_dim), key, value,
        attn_mask=attention_mask, scale=options.get("scaling"),
    )  # fmt: skip
    seen = seen.view(rows, key_heads, group, widest, head_dim).permute(0, 3, 1, 2, 4)
    seen = seen.reshape(rows * widest, heads, head_dim)
    return (seen if nodes == rows * widest else seen[places])[None], None


def grouped(sight: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """Return what is added to scores, shape (rows, 1, group · widest, span).

    Parameters
    ----------
    sight
        Shape (rows, widest, span): who sees whom, as `acclimate.experiments.trees.mask` has it.
    group
        Heads that share keys.

    Examples
    --------
    >>> grouped(torch.tensor([[[True, False]]]), 2, torch.float32)[0, 0, :, 0].tolist()
    [0.0, 0.0]
    """
    mask = torch.zeros(sight.shape, dtype=dtype, device=sight.device)
    mask.masked_fill_(~sight, torch.finfo(dtype).min)
    return mask.repeat(1, group, 1)[:, None]


def let_rows_attend(model: Any) -> None:
    """Let a model of transformers attend by rows where it is told ``places``, else as it did."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, rows_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
