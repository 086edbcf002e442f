"""A pass of a Llama-shaped model over new tokens of a batch, replayed as a CUDA graph and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from acclimate.controller.records import IntArray
from acclimate.experiments.gpu_profile.plan import PassCell
from acclimate.experiments.trees.cache import PathCache
from acclimate.experiments.trees.mask import batch_sight

SHAPES: dict[str, dict[str, int]] = {
    "1B": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
    },
    "8B": {
        "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_256,
    },
    "tiny": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
    },
}  # fmt: skip
"""Sizes of Llama models by name; their weights are drawn at random, which step times do not see."""

_WARM_UP, _REPEATS = 3, 15
_SPREAD = 0.02  # standard deviation of weights


def random_llama(size: str, *, device: str, longest: int) -> Any:
    """Return a Llama of a size with random weights: bfloat16 on a GPU, float32 elsewhere.

    Parameters
    ----------
    size
        One of `SHAPES`.
    longest
        Tokens that a request may have.

    Raises
    ------
    ValueError
        There is no such size.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    if size not in SHAPES:
        raise ValueError(f"size must be one of {', '.join(SHAPES)}, got {size!r}")
    config = LlamaConfig(
        **SHAPES[size], max_position_embeddings=longest, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if device.startswith("cuda") else torch.float32)
    try:
        with torch.device(device), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = LlamaForCausalLM(config)
            with torch.no_grad():
                for weights in model.parameters():
                    if weights.ndim > 1:
                        weights.normal_(std=_SPREAD)
    finally:
        torch.set_default_dtype(before)
    return model.eval()


class PassTimer:
    """Measures passes of one model.

    Parameters
    ----------
    model
        A ``LlamaForCausalLM``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        parameter = next(model.parameters())
        self.device, self.dtype = parameter.device, parameter.dtype

    def milliseconds(self, cell: PassCell) -> float:
        """Return the median duration of a pass, logits and first choices included."""
        run = self._pass(cell)
        if self.device.type == "cuda":
            return self._replayed(run)
        for _ in range(_WARM_UP):
            run()
        times = []
        for _ in range(_REPEATS):
            begun = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begun))
        return float(np.median(times))

    def _pass(self, cell: PassCell) -> Callable[[], None]:
        config = self.model.config
        cache = PathCache(
            config.num_hidden_layers,
            cell.batch,
            config.num_key_value_heads,
            cell.context + cell.tokens,
            config.hidden_size // config.num_attention_heads,
            dtype=self.dtype,
            device=self.device,
        )
        cache.lengths[:] = cell.context
        cache.aim(0, cell.batch, cell.tokens)
        parent = parents(cell.tokens, tree=cell.tree)
        depth = np.zeros(cell.tokens, dtype=np.int64)
        for node in range(1, cell.tokens):
            depth[node] = depth[parent[node]] + 1
        sight = torch.from_numpy(batch_sight(cache.lengths, [parent] * cell.batch)).to(self.device)
        mask = torch.zeros(sight.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~sight, torch.finfo(self.dtype).min)
        shape = (cell.batch, cell.tokens)
        ids = torch.randint(config.vocab_size, shape, device=self.device)
        positions = torch.from_numpy(cell.context + np.broadcast_to(depth, shape).copy())
        positions = positions.to(self.device)

        def run() -> None:
            with torch.inference_mode():
                hidden = self.model.model(
                    input_ids=ids, attention_mask=mask[:, None], position_ids=positions,
                    past_key_values=cache, use_cache=True,
                ).last_hidden_state  # fmt: skip
                self.model.lm_head(hidden).argmax(dim=-1)

        return run

    def _replayed(self, run: Callable[[], None]) -> float:
        """Capture a pass as a CUDA graph, and return the median duration of a replay."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        times = []
        for _ in range(_WARM_UP + _REPEATS):
            begun, ended = _mark(), _mark()
            begun.record()
            graph.replay()
            ended.record()
            ended.synchronize()
            times.append(begun.elapsed_time(ended))
        return float(np.median(times[_WARM_UP:]))


def _mark() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def parents(tokens: int, *, tree: bool) -> IntArray:
    """Return the parents of a chain, or of a tree of two branches of equal length.

    >>> parents(4, tree=False).tolist(), parents(5, tree=True).tolist()
    ([-1, 0, 1, 2], [-1, 0, 0, 1, 2])
    """
    place = np.arange(tokens, dtype=np.int64)
    return np.maximum(place - 2, np.minimum(place - 1, 0)) if tree else place - 1
