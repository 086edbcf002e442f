"""Step times of well-known GPUs from first principles, for models that nobody has measured.

A step reads the weights and the cached keys and values once, and computes two floating-point
operations per weight and token. Linear layers and attention each take the longer of their memory
time and their compute time; on top comes a fixed overhead. Assumed, and to be replaced by a table
wherever one exists: a share of the peak bandwidth and of the peak compute that real kernels reach,
the overhead, weights and cache in 16 bits, one GPU, and no cliffs. What it shows well is the shape:
verified tokens are almost free until compute is as long as reading the weights.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import numpy as np

from acclimate.controller.records import FloatArray
from acclimate.experiments.simulation.step_time import StepMakeUp

Numbers = TypeVar("Numbers", np.float64, FloatArray)


@dataclasses.dataclass(frozen=True, slots=True)
class Gpu:
    """What a data sheet says of a GPU: dense 16-bit tensor operations, not the sparse figure."""

    name: str
    memory_gb: float
    bandwidth_gb_per_s: float
    dense_tflops: float
    source: str

    def times(self, cards: int) -> Gpu:
        """Return so many cards that share a model and lose nothing by it."""
        if cards == 1:
            return self
        return Gpu(
            f"{cards} x {self.name}",
            cards * self.memory_gb,
            cards * self.bandwidth_gb_per_s,
            cards * self.dense_tflops,
            self.source,
        )


GPUS: dict[str, Gpu] = {
    "a100": Gpu(
        "A100-80GB SXM", 80.0, 2_039.0, 312.0, "NVIDIA A100 80GB data sheet, SXM column, BF16"
    ),
    "h100": Gpu(
        "H100-80GB SXM", 80.0, 3_350.0, 989.5, "NVIDIA H100 data sheet, SXM column, BF16 halved"
    ),
    "h200": Gpu(
        "H200-141GB SXM", 141.0, 4_800.0, 989.5, "NVIDIA H200 data sheet, SXM column, BF16 halved"
    ),
    "rtx4090": Gpu(
        "GeForce RTX 4090",
        24.0,
        1_008.0,
        165.2,
        "NVIDIA Ada architecture paper, FP16 tensor with FP32 accumulate, dense",
    ),
}
"""GPUs by short name. The H100 and H200 sheets print BF16 with sparsity, twice the dense figure."""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model costs per step and token.

    Parameters
    ----------
    parameters
        Weights read in a step and used by every token.
    layers, kv_heads, heads, head_size
        Shape of the attention; the cache keeps a key and a value of ``kv_heads * head_size`` per
        layer and token.
    weight_bytes, kv_bytes
        Bytes of one weight and of one cached number: 2 for 16 bits.

    Examples
    --------
    >>> LLAMA_8B.model_bytes / 1e9, LLAMA_8B.kv_bytes_per_token
    (16.06, 131072.0)
    """

    parameters: float
    layers: int
    kv_heads: int
    heads: int
    head_size: int
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0

    @property
    def model_bytes(self) -> float:
        """Bytes of all weights."""
        return self.parameters * self.weight_bytes

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes that one token keeps in the cache."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * self.kv_bytes


LLAMA_8B = ModelShape(8.03e9, layers=32, kv_heads=8, heads=32, head_size=128)
"""Llama 3.1 8B, from its published configuration."""


LLAMA_70B = ModelShape(70.6e9, layers=80, kv_heads=8, heads=64, head_size=128)
LLAMA_1B = ModelShape(1.24e9, layers=16, kv_heads=8, heads=32, head_size=64)

MODELS = {"llama_70b": LLAMA_70B, "llama_8b": LLAMA_8B, "llama_1b": LLAMA_1B}
"""Llama 3.1 70B and 8B and Llama 3.2 1B by short name, from their published configurations."""


class RooflineTime:
    """Step times of a GPU and a model by the roofline.

    Parameters
    ----------
    gpu
        A key of `GPUS`, or figures of one's own.
    model
        The target model.
    draft
        A draft model that runs once per drafted token; None where drafting is free (n-gram).
    bandwidth_share, compute_share
        Shares in (0, 1] of the peaks that are reached; 0.8 and 0.6 are usual for large matrices.
    overhead_ms
        Fixed milliseconds per step: launch, sampling, scheduling.
    draft_overhead_ms
        The same for one pass of the draft model.
    sampled_row_ms
        Milliseconds that a row sampled at a temperature costs more than a greedy one.

    Raises
    ------
    ValueError
        The GPU is unknown, the model does not fit into its memory, or a number is out of range.

    Examples
    --------
    >>> from acclimate.experiments.simulation.step_time import StepMakeUp
    >>> times = RooflineTime("h100", LLAMA_8B)
    >>> alone = times.curve(StepMakeUp(1, 5))
    >>> busy = times.curve(StepMakeUp(512, 512 * 5))
    >>> bool(alone[5] / alone[0] < 1.01), bool(busy[512 * 5] / busy[0] > 3.0)
    (True, True)
    """

    def __init__(
        self,
        gpu: str | Gpu,
        model: ModelShape = LLAMA_8B,
        *,
        draft: ModelShape | None = None,
        bandwidth_share: float = 0.8,
        compute_share: float = 0.6,
        overhead_ms: float = 0.5,
        draft_overhead_ms: float = 0.15,
        sampled_row_ms: float = 0.0,
    ) -> None:
        if isinstance(gpu, str):
            if gpu not in GPUS:
                raise ValueError(f"gpu must be one of {', '.join(GPUS)}, got {gpu!r}")
            gpu = GPUS[gpu]
        for name, share in (("bandwidth_share", bandwidth_share), ("compute_share", compute_share)):
            if not 0.0 < share <= 1.0:
                raise ValueError(f"{name} must be in (0, 1], got {share}")
        for name, cost in (
            ("overhead_ms", overhead_ms),
            ("draft_overhead_ms", draft_overhead_ms),
            ("sampled_row_ms", sampled_row_ms),
        ):
            if not 0.0 <= cost < np.inf:
                raise ValueError(f"{name} must be >= 0 and finite, got {cost}")
        held_gb = (model.model_bytes + (draft.model_bytes if draft else 0.0)) / 1e9
        if held_gb > gpu.memory_gb:
            raise ValueError(
                f"the model must fit into the {gpu.memory_gb:g} GB of {gpu.name}, "
                f"got {held_gb:.1f} GB of weights"
            )
        self.gpu = gpu
        self.model = model
        self.draft = draft
        self._bytes_per_ms = gpu.bandwidth_gb_per_s * 1e6 * bandwidth_share
        self._flops_per_ms = gpu.dense_tflops * 1e9 * compute_share
        self._overhead_ms = overhead_ms
        self._draft_overhead_ms = draft_overhead_ms
        self._sampled_row_ms = sampled_row_ms

    def step_ms(self, makeup: StepMakeUp) -> float:
        """Return the duration of one step."""
        return float(self._step_ms(makeup, np.float64(makeup.verified)))

    def curve(self, makeup: StepMakeUp) -> FloatArray:
        """Return durations with 0, 1, … ``makeup.verified`` drafts verified, shape (m + 1,)."""
        return self._step_ms(makeup, np.arange(makeup.verified + 1, dtype=np.float64))

    def _step_ms(self, makeup: StepMakeUp, verified: Numbers) -> Numbers:
        requests, context_tokens = makeup.requests, makeup.context_tokens
        prefill_tokens = makeup.prefill_tokens
        tokens = requests + verified
        mean_context = context_tokens / max(requests, 1)
        fixed_ms = (
            self._overhead_ms
            + self._sampled_row_ms * makeup.sampled_rows
            + self._draft_ms(requests, context_tokens, makeup.draft_depth)
        )
        return fixed_ms + self._pass_ms(
            self.model,
            tokens + prefill_tokens,
            context_tokens + prefill_tokens,
            tokens * mean_context + 0.5 * prefill_tokens**2,
        )

    def _pass_ms(
        self, model: ModelShape, tokens: Numbers, cached_tokens: int, attended_pairs: Numbers
    ) -> Numbers:
        """Return milliseconds of one forward pass.

        ``attended_pairs`` counts (query, key) pairs; a prompt attends to half of its square.
        """
        linear_ms = np.maximum(
            model.model_bytes / self._bytes_per_ms,
            2.0 * model.parameters * tokens / self._flops_per_ms,
        )
        attention_flops = 4.0 * model.layers * model.heads * model.head_size * attended_pairs
        attention_ms = np.maximum(
            model.kv_bytes_per_token * cached_tokens / self._bytes_per_ms,
            attention_flops / self._flops_per_ms,
        )
        total_ms: Numbers = linear_ms + attention_ms
        return total_ms

    def _draft_ms(self, requests: int, context_tokens: int, depth: int) -> float:
        if self.draft is None or depth == 0 or requests == 0:
            return 0.0
        once_ms = self._pass_ms(
            self.draft, np.float64(requests), context_tokens, np.float64(context_tokens)
        )
        return depth * (float(once_ms) + self._draft_overhead_ms)
