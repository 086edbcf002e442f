"""The target: one pass over the new tokens and draft trees of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from acclimate.controller.records import IntArray
from acclimate.experiments.trees.attention import grouped, let_rows_attend
from acclimate.experiments.trees.cache import PathCache
from acclimate.experiments.trees.laws import TargetLaws
from acclimate.experiments.trees.mask import batch_sight

_POOR_ROWS, _FULL_ROWS = range(7, 16), 16


class TreeTarget:
    """A Llama of transformers that verifies trees, with a cache of accepted tokens.

    Rows ``0 … n - 1`` of the cache are the requests in service. A row's newest token is not in the
    cache yet: it is the root, node 0, of what a pass computes.

    Parameters
    ----------
    model
        A ``LlamaForCausalLM``, in evaluation mode.
    max_requests
        Rows.
    capacity
        Tokens and nodes per row at most.
    """

    def __init__(self, model: Any, *, max_requests: int, capacity: int) -> None:
        config = model.config
        self.model = model
        self.max_requests, self.capacity = max_requests, capacity
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        self._group = config.num_attention_heads // config.num_key_value_heads
        let_rows_attend(model)
        self.cache = PathCache(
            config.num_hidden_layers,
            max_requests,
            config.num_key_value_heads,
            capacity,
            getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            dtype=self.dtype,
            device=self.device,
        )

    def prefill(self, first_row: int, prompts: Sequence[IntArray]) -> TargetLaws:
        """Compute prompts into empty rows; the laws are behind their last tokens."""
        chains = [np.arange(-1, prompt.shape[0] - 1) for prompt in prompts]
        depths = [np.arange(prompt.shape[0]) for prompt in prompts]
        hidden = self._forward(first_row, prompts, chains, depths)
        last = np.cumsum([prompt.shape[0] for prompt in prompts]) - 1
        logits = self._logits(hidden[torch.from_numpy(last).to(self.device)])
        for row, prompt in enumerate(prompts, start=first_row):
            self.cache.keep(row, range(prompt.shape[0]))
        return TargetLaws(logits, [1] * len(prompts))

    def verify(
        self, tokens: Sequence[IntArray], parents: Sequence[IntArray], depths: Sequence[IntArray]
    ) -> TargetLaws:
        """Compute the trees of rows 0, 1, …, the root of each first: its parent is -1, its depth 0."""
        hidden = self._forward(0, tokens, parents, depths)
        return TargetLaws(self._logits(hidden), [nodes.shape[0] for nodes in tokens])

    def accept(self, row: int, path: Sequence[int]) -> None:
        """Keep the nodes of a path of the last pass, the root first; the others are lost."""
        self.cache.keep(row, path)

    def move(self, source: int, target: int) -> None:
        """Put a row's tokens into another row, whose own are lost."""
        self.cache.move(source, target)

    def clear(self, row: int) -> None:
        """Forget a row's tokens."""
        self.cache.clear(row)

    def _forward(
        self,
        first_row: int,
        tokens: Sequence[IntArray],
        parents: Sequence[IntArray],
        depths: Sequence[IntArray],
    ) -> Tensor:
        """Return hidden states of all rows' nodes, row after row, shape (nodes, hidden)."""
        sizes = np.array([nodes.shape[0] for nodes in tokens])
        widest = int(sizes.max())
        lengths = self.cache.lengths[first_row : first_row + sizes.shape[0]]
        self.cache.pack(first_row, sizes.tolist())
        sight = torch.from_numpy(batch_sight(lengths, parents)).to(self.device)
        span = int((lengths + sizes).max())
        place = np.flatnonzero((np.arange(widest) < sizes[:, None]).ravel())
        positions = np.repeat(lengths, sizes) + np.concatenate(depths)
        with torch.inference_mode():
            output = self.model.model(
                input_ids=torch.from_numpy(np.concatenate(tokens)[None]).to(self.device),
                attention_mask=grouped(sight[:, :, :span], self._group, self.dtype),
                position_ids=torch.from_numpy(positions[None]).to(self.device),
                past_key_values=self.cache,
                use_cache=True,
                places=torch.from_numpy(place).to(self.device),
            )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return logits of rows of hidden states.

        Kernels of BLAS for many rows begin at 16, and with so many outputs 7 to 15 rows take up to
        2.5 times as long as 16 do: the head is given 16.
        """
        rows = hidden.shape[0]
        if self.device.type == "cpu" and rows in _POOR_ROWS:
            hidden = pad(hidden, (0, 0, 0, _FULL_ROWS - rows))
        with torch.inference_mode():
            logits: Tensor = self.model.lm_head(hidden)
        return logits[:rows]


def load_target(path: str, *, device: str = "cpu") -> Any:
    """Return a Llama in float32, ready to be asked."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    return model.to(device).eval()
