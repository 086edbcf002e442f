"""A one-layer drafter on the target's hidden states, in the engine's EAGLE-3 layout."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

AUX_LAYERS = (2, 15, 27)
"""After how many of the target's layers hidden states are taken; the engine's default for 30."""


@dataclasses.dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a head, those of its target but for the vocabulary.

    Parameters
    ----------
    draft_vocab
        Tokens that can be drafted at all.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float
    vocab: int
    draft_vocab: int

    @classmethod
    def of(cls, config: dict[str, Any], draft_vocab: int) -> HeadShape:
        """Read the sizes from a target's configuration."""
        heads = int(config["num_attention_heads"])
        rope = config.get("rope_parameters") or config
        return cls(
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config["num_key_value_heads"]),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            rope_theta=float(rope["rope_theta"]),
            eps=float(config["rms_norm_eps"]),
            vocab=int(config["vocab_size"]),
            draft_vocab=draft_vocab,
        )


class EagleHead(nn.Module):
    """Predicts the token after next from hidden states of the target and the next token [1]_.

    Parameters
    ----------
    shape
        Sizes.
    embedding
        Shape (vocab, hidden): the target's, shared and frozen.
    draft_ids
        Shape (draft_vocab,): tokens that can be drafted, ascending.

    References
    ----------
    .. [1] Y. Li et al., "EAGLE-3: Scaling up inference acceleration of large language models via
       training-time test", arXiv 2503.01840.
    """

    def __init__(self, shape: HeadShape, embedding: Tensor, draft_ids: Tensor) -> None:
        super().__init__()
        self.shape = shape
        wide, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        size = shape.hidden
        self.fc_norm = nn.ModuleList(_Norm(size, shape.eps) for _ in AUX_LAYERS)
        self.fc = nn.Linear(size * len(AUX_LAYERS), size, bias=False)
        self.input_layernorm = _Norm(size, shape.eps)
        self.hidden_norm = _Norm(size, shape.eps)
        self.q_proj = nn.Linear(2 * size, wide, bias=False)
        self.k_proj = nn.Linear(2 * size, kv, bias=False)
        self.v_proj = nn.Linear(2 * size, kv, bias=False)
        self.o_proj = nn.Linear(wide, size, bias=False)
        self.post_attention_layernorm = _Norm(size, shape.eps)
        self.gate_proj = nn.Linear(size, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(size, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, size, bias=False)
        self.norm = _Norm(size, shape.eps)
        self.lm_head = nn.Linear(size, shape.draft_vocab, bias=False)
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("draft_ids", draft_ids, persistent=False)

    def start_from(self, layer: dict[str, Tensor], norm: Tensor) -> None:
        """Begin with the target's last layer and norm, its embedding as the output, fc as a pass.

        Parameters
        ----------
        layer
            The layer's weights, by name within it.
        norm
            Shape (hidden,): weight of the target's final norm.
        """
        size = self.shape.hidden
        with torch.no_grad():
            self.fc.weight.zero_()
            self.fc.weight[:, -size:] = torch.eye(size)
            for name in ("q_proj", "k_proj", "v_proj"):
                weight = getattr(self, name).weight
                weight[:, :size].normal_(std=0.02)
                weight[:, size:] = layer[f"self_attn.{name}.weight"]
            self.o_proj.weight.copy_(layer["self_attn.o_proj.weight"])
            for name in ("gate_proj", "up_proj", "down_proj"):
                getattr(self, name).weight.copy_(layer[f"mlp.{name}.weight"])
            self.hidden_norm.weight.copy_(layer["input_layernorm.weight"])
            self.post_attention_layernorm.weight.copy_(layer["post_attention_layernorm.weight"])
            self.norm.weight.copy_(norm)
            embedding: Any = self.embedding
            self.lm_head.weight.copy_(embedding[self.draft_ids])

    def combine(self, features: Tensor) -> Tensor:
        """Return what stands for the target's state: (…, layers, hidden) to (…, hidden)."""
        parts = [norm(features[..., i, :]) for i, norm in enumerate(self.fc_norm)]
        combined: Tensor = self.fc(torch.cat(parts, dim=-1))
        return combined

    def rollout(self, features: Tensor, ids: Tensor, steps: int) -> list[Tensor]:
        """Return hidden states, ready for `lm_head`, of drafting ``steps`` tokens at every place.

        Draft step s at place i knows the target up to i, the tokens up to i + s, and predicts token
        i + s + 1. It attends to the places up to i as the first step saw them, and to its own
        earlier steps: as the engine does.

        Parameters
        ----------
        features
            Shape (batch, length, layers, hidden): the target's.
        ids
            Shape (batch, length + steps): tokens.

        Returns
        -------
        list
            Per step, shape (batch, length, hidden).
        """
        batch, length = features.shape[:2]
        state = self.combine(features)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        places = torch.arange(length)
        embedding: Any = self.embedding
        keys: list[Tensor] = []
        values: list[Tensor] = []
        outputs = []
        for step in range(1, steps + 1):
            embedded = self.input_layernorm(embedding[ids[:, step : step + length]])
            inputs = torch.cat((embedded, self.hidden_norm(state)), dim=-1)
            angles = self._angles(places + step - 1, inputs.dtype)
            query = _turn(self._split(self.q_proj(inputs), self.shape.heads), angles)
            keys.append(_turn(self._split(self.k_proj(inputs), self.shape.kv_heads), angles))
            values.append(self._split(self.v_proj(inputs), self.shape.kv_heads))
            mixed = self._attend(query, keys, values, causal)
            state = state + self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))
            inner = self.post_attention_layernorm(state)
            state = state + self.down_proj(
                functional.silu(self.gate_proj(inner)) * self.up_proj(inner)
            )
            outputs.append(self.norm(state))
        return outputs

    def save(self, folder: Path, target: dict[str, Any]) -> None:
        """Write the head as a draft model that the engine loads with method ``eagle3``.

        Parameters
        ----------
        folder
            Exists; gets a configuration and weights.
        target
            Configuration of the target model.
        """
        from safetensors.torch import save_file

        inside = {"fc", "fc_norm", "norm", "lm_head"}
        weights = {}
        for name, tensor in self.state_dict().items():
            first = name.split(".")[0]
            if first not in inside:
                group = "self_attn." if first in ("q_proj", "k_proj", "v_proj", "o_proj") else ""
                group = "mlp." if first in ("gate_proj", "up_proj", "down_proj") else group
                name = f"midlayer.{group}{name}"
            weights[name] = tensor.float().contiguous()
        draft_ids: Any = self.draft_ids
        weights["d2t"] = draft_ids - torch.arange(draft_ids.shape[0])
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = {
            **target,
            "architectures": ["LlamaForCausalLMEagle3"],
            "num_hidden_layers": 1,
            "draft_vocab_size": self.shape.draft_vocab,
            "tie_word_embeddings": False,
            "fc_norm": True,
            "dtype": "float32",
            "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(AUX_LAYERS)},
        }
        (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")

    def _split(self, rows: Tensor, heads: int) -> Tensor:
        return rows.view(*rows.shape[:-1], heads, self.shape.head_dim).transpose(1, 2)

    def _angles(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        half = torch.arange(0, self.shape.head_dim, 2) / self.shape.head_dim
        turned = positions[:, None] / self.shape.rope_theta**half
        full = torch.cat((turned, turned), dim=-1)
        return full.cos().to(dtype), full.sin().to(dtype)

    def _attend(
        self, query: Tensor, keys: list[Tensor], values: list[Tensor], causal: Tensor
    ) -> Tensor:
        repeats = self.shape.heads // self.shape.kv_heads
        wide_keys = [key.repeat_interleave(repeats, dim=1) for key in keys]
        wide_values = [value.repeat_interleave(repeats, dim=1) for value in values]
        if len(keys) == 1:
            return functional.scaled_dot_product_attention(
                query, wide_keys[0], wide_values[0], is_causal=True
            )
        scale = self.shape.head_dim**-0.5
        scores = (query @ wide_keys[0].transpose(-1, -2)).masked_fill(~causal, float("-inf"))
        own = [(query * key).sum(-1, keepdim=True) for key in wide_keys[1:]]
        shares = torch.softmax(torch.cat((scores, *own), dim=-1).float() * scale, dim=-1)
        shares = shares.to(query.dtype)
        length = causal.shape[0]
        mixed = shares[..., :length] @ wide_values[0]
        for i, value in enumerate(wide_values[1:]):
            mixed = mixed + shares[..., length + i : length + i + 1] * value
        return mixed


class _Norm(nn.RMSNorm):
    """Normalises in the type of what it is given, which is quick in lower precision too."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` over its root mean square, times the weight."""
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def _turn(rows: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Turn queries or keys by their positions."""
    cos, sin = angles
    left, right = rows.chunk(2, dim=-1)
    return rows * cos + torch.cat((-right, left), dim=-1) * sin
