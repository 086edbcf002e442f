"""Where an engine on a CPU keeps its weights, and how several engines share them.

The engine packs the weights of linear layers into copies that oneDNN owns, and drops the originals.
Python never sees these copies, so they are found by the memory that appears while one is made.
"""

from __future__ import annotations

import ctypes
import dataclasses
import weakref
from collections.abc import Callable
from typing import Any, Self

from acclimate.integrations.shared_pages import Region, anonymous_ranges, grown, share
from acclimate.integrations.vllm.launch import Engine

_PACKERS = ("create_onednn_mm", "create_onednn_scaled_mm")
# What glibc allocates in mappings of their own, in bytes, while the engine starts and after.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
_AT_START, _LATER, _TRIM = 128 << 10, 32 << 20, 64 << 20
# A copy may be a little larger than its weight: padding, and the allocator's own.
_PADDING, _ALLOCATOR = 1.25, 64 << 10
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class SharedWeights:
    """How far an engine has its weights in memory that other engines have too, in bytes.

    Parameters
    ----------
    shared, weights
        Bytes that are shared, of how many.
    why_not
        Why nothing is shared; empty if something is.
    """

    shared: int
    weights: int
    why_not: str = ""

    @property
    def part(self) -> float | None:
        """The share of weights that is shared, 0 to 1; None if there is none to share."""
        return self.shared / self.weights if self.weights else None

    @property
    def words(self) -> str:
        """One line for people.

        >>> SharedWeights(5 << 20, 10 << 20).words
        'shares 5 of 10 MiB of weights'
        """
        if self.why_not:
            return f"keeps weights in memory of its own: {self.why_not}"
        return f"shares {self.shared / _MIB:.0f} of {self.weights / _MIB:.0f} MiB of weights"


class WeightMemory:
    """Notices where an engine puts its weights, while it is used as a context around the start.

    Meanwhile large allocations get mappings of their own, so that a packed copy can be told from
    everything else. Behind it the allocator keeps to a fixed threshold, as high as the one that it
    would reach by itself with time.
    """

    def __init__(self) -> None:
        self._packed: list[tuple[weakref.ref[Any], Region]] = []
        self._originals: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        from vllm import _custom_ops as ops

        _set_thresholds(_AT_START)
        for name in _PACKERS:
            if hasattr(ops, name):
                self._originals[name] = getattr(ops, name)
                setattr(ops, name, self._noticing(self._originals[name]))
        return self

    def __exit__(self, *exception: object) -> None:
        from vllm import _custom_ops as ops

        for name, original in self._originals.items():
            setattr(ops, name, original)
        _set_thresholds(_LATER, _TRIM)

    def share(self, engine: Engine, path: str) -> SharedWeights:
        """Put the weights of an idle engine into memory that is shared, as far as possible.

        Parameters
        ----------
        engine
            Started within the context, its core in this process.
        path
            Of a `acclimate.integrations.shared_pages.SharedPages`.
        """
        regions = [region for maker, region in self._packed if maker() is not None]
        try:
            core = engine.llm.llm_engine.engine_core.engine_core
            model = core.model_executor.driver_worker.worker.model_runner.model
            regions += _tensor_regions(model)
            shared = share(regions, path)
        except (AttributeError, OSError) as error:
            return SharedWeights(0, 0, f"{type(error).__name__}: {error}")
        weights = sum(region.size for region in regions)
        why_not = "" if shared else "they are laid out unlike those of the first engine"
        return SharedWeights(shared, weights, why_not)

    def _noticing(self, pack: Callable[..., Any]) -> Callable[..., Any]:
        def packing(weight: Any, *rest: Any, **named: Any) -> Any:
            size = weight.numel() * weight.element_size()
            before = anonymous_ranges()
            handler = pack(weight, *rest, **named)
            if size >= _AT_START:
                region = packed_region(grown(before, anonymous_ranges()), size)
                self._packed.append((weakref.ref(handler), region))
            return handler

        return packing


def packed_region(ranges: list[tuple[int, int]], size: int) -> Region:
    """Return the pages of a packed copy among ranges of memory that are new.

    Parameters
    ----------
    size
        Of the weight, in bytes. If no range is like it, its address stays unknown.

    Examples
    --------
    >>> from mmap import PAGESIZE as page
    >>> found = packed_region([(0, page), (10 * page, 31 * page)], 20 * page)
    >>> found.address // page, found.size // page
    (11, 19)
    """
    fitting = [
        (end - begin, begin)
        for begin, end in ranges
        if size <= end - begin <= _PADDING * size + _ALLOCATOR
    ]
    # The allocator notes things of its own in front.
    return Region.within(min(fitting)[1] + 1 if fitting else 0, size)


def _tensor_regions(model: Any) -> list[Region]:
    """Return the pages of every large tensor of the model, and of those that layers pack."""
    import torch

    found: dict[int, Region] = {}
    for module in model.modules():
        kept = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        for cell in getattr(getattr(module, "cpu_linear", None), "__closure__", None) or ():
            if isinstance(cell.cell_contents, torch.Tensor):
                kept.append(cell.cell_contents)
        for tensor in kept:
            size = tensor.numel() * tensor.element_size()
            if size >= _AT_START and tensor.device.type == "cpu" and tensor.is_contiguous():
                found.setdefault(tensor.data_ptr(), Region.within(tensor.data_ptr(), size))
    return list(found.values())


def _set_thresholds(mmap_bytes: int, trim_bytes: int | None = None) -> None:
    """Tell glibc which allocations get mappings of their own; another libc is left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, mmap_bytes)
        if trim_bytes is not None:
            mallopt(_TRIM_THRESHOLD, trim_bytes)
