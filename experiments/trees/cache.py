"""Keys and values of accepted tokens, flat: what a tree leaves behind is one path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acclimate.controller.records import IntArray


class PathCache:
    """A cache with a length per row; behind it stand the nodes of the step under way.

    Give it to a model of transformers as ``past_key_values``: `aim` or `pack` says where the next
    pass writes, `update` is what its layers call, `keep` moves one path up to the accepted tokens
    and forgets the rest.

    Parameters
    ----------
    layers, rows, heads, capacity, head_dim
        Sizes: rows are requests, ``capacity`` tokens and nodes fit into each, ``heads`` are those
        of keys and values.
    dtype, device
        Of the tensors.
    """

    def __init__(
        self,
        layers: int,
        rows: int,
        heads: int,
        capacity: int,
        head_dim: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        # Keys and values in one tensor, so that a path moves in one go for all layers.
        self.store = torch.zeros(
            (2, layers, heads, rows, capacity, head_dim), dtype=dtype, device=device
        )
        self.lengths: IntArray = np.zeros(rows, dtype=np.int64)
        self._rows = slice(0, 0)
        self._span = 0
        self._places: Tensor | None = None
        self._packed: tuple[Tensor, Tensor] | None = None

    @property
    def capacity(self) -> int:
        """Tokens and nodes that a row can hold."""
        return int(self.store.shape[4])

    def aim(self, first: int, count: int, width: int) -> None:
        """Let the next pass write ``width`` nodes behind each of ``count`` rows from ``first`` on.

        Raises
        ------
        ValueError
            They do not fit.
        """
        lengths = self.lengths[first : first + count]
        self._rows = slice(first, first + count)
        self._span = int(lengths.max()) + width
        if self._span > self.capacity:
            raise ValueError(f"capacity must be >= {self._span}, got {self.capacity}")
        places = torch.from_numpy(lengths[:, None] + np.arange(width))
        heads, head_dim = self.store.shape[2], self.store.shape[5]
        self._packed = None
        self._places = places.to(self.store.device)[:, None, :, None].expand(
            count, heads, width, head_dim
        )

    def pack(self, first: int, sizes: Sequence[int]) -> None:
        """Let the next pass write so many nodes behind each row from ``first`` on, as one sequence.

        Rows of different sizes then need no filling up. The nodes come one row after the other; the
        layers see the keys of each row apart, see `acclimate.experiments.trees.attention`.

        Raises
        ------
        ValueError
            They do not fit.
        """
        count = len(sizes)
        lengths = self.lengths[first : first + count]
        self._span = int((lengths + np.array(sizes)).max())
        if self._span > self.capacity:
            raise ValueError(f"capacity must be >= {self._span}, got {self.capacity}")
        self._rows = slice(first, first + count)
        of_row = np.repeat(np.arange(first, first + count), sizes)
        within = np.concatenate([np.arange(size) for size in sizes])
        places = np.repeat(lengths, sizes) + within
        device = self.store.device
        self._packed = (torch.from_numpy(of_row).to(device), torch.from_numpy(places).to(device))

    def update(
        self, key: Tensor, value: Tensor, layer: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's new keys and values; return all of the rows' up to the last node."""
        found = [self._write(self.store[kind, layer], new) for kind, new in
                 enumerate((key, value))]  # fmt: skip
        return found[0], found[1]

    def _write(self, store: Tensor, new: Tensor) -> Tensor:
        """Write into the keys or values of a layer, and return what the layer sees."""
        batch = store[:, self._rows].transpose(0, 1)
        if self._packed is not None:
            store[:, self._packed[0], self._packed[1]] = new[0]
        elif self._places is not None:
            batch.scatter_(2, self._places, new)
        else:
            raise RuntimeError("update must follow aim or pack, got no rows to write to")
        return batch[:, :, : self._span]

    def keep(self, row: int, path: Sequence[int]) -> None:
        """Accept nodes of the last pass: they become the row's next tokens.

        Parameters
        ----------
        row
            Of the request.
        path
            Nodes from the first accepted on, ascending; node 0 is the first that was written.
        """
        length, count = int(self.lengths[row]), len(path)
        if list(path) != list(range(count)):
            tokens = self.store[:, :, :, row]
            source = torch.tensor(path, device=self.store.device) + length
            kept = tokens[:, :, :, source]  # a copy: places overlap
            tokens[:, :, :, length : length + count] = kept
        self.lengths[row] += count

    def move(self, source: int, target: int) -> None:
        """Put a row's tokens into another row, whose own are lost."""
        length = int(self.lengths[source])
        self.store[:, :, :, target, :length] = self.store[:, :, :, source, :length]
        self.lengths[target] = length

    def clear(self, row: int) -> None:
        """Forget a row's tokens."""
        self.lengths[row] = 0
