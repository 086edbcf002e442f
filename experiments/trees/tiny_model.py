"""A tiny Llama at random, whose laws are neither flat nor sharp, and a drafter that half knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.trees.draft import Law


def tiny_llama(*, seed: int = 0, vocab: int = 64, layers: int = 2, sharpness: float = 1.5) -> Any:
    """Return a randomly initialised Llama in float32.

    Parameters
    ----------
    seed
        Of the weights; the same seed gives the same model.
    vocab, layers
        Sizes.
    sharpness
        Standard deviation of the logits, about.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        with torch.no_grad():
            # The last norm gives states of length √hidden.
            model.lm_head.weight.normal_(std=sharpness / config.hidden_size**0.5)
    return model.float().eval()


class TableDrafter:
    """A drafter by the last token alone, at random.

    Parameters
    ----------
    chances
        Shape (vocab, vocab): the law behind each token.

    Examples
    --------
    >>> drafter = TableDrafter(np.array([[0.2, 0.8], [0.5, 0.5]]))
    >>> drafter.next_tokens(np.array([1, 0]), 1).tokens.tolist()
    [1]
    """

    def __init__(self, chances: FloatArray) -> None:
        self.chances = chances
        order = np.argsort(-chances, axis=1, kind="stable").astype(np.int64)
        self._order = order
        self._ordered: FloatArray = np.take_along_axis(chances, order, axis=1)

    @classmethod
    def noisy(
        cls, model: Any, *, prompt: Sequence[int] = (), seed: int = 0, noise: float = 1.0
    ) -> TableDrafter:
        """Return what a model says behind a prompt and one more token, with noise on its logits."""
        vocab = int(model.config.vocab_size)
        texts = torch.tensor([[*prompt, token] for token in range(vocab)])
        with torch.inference_mode():
            found = model(input_ids=texts, use_cache=False)
        logits = found.logits[:, -1].double().numpy()
        logits = logits + noise * np.random.default_rng(seed).normal(size=logits.shape)
        chances = np.exp(logits - logits.max(axis=1, keepdims=True))
        return cls(chances / chances.sum(axis=1, keepdims=True))

    def next_tokens(self, ids: IntArray, most: int) -> Law:
        """Return up to ``most`` tokens that may come next, likeliest first."""
        last = int(ids[-1])
        return Law(self._order[last, :most], self._ordered[last, :most])
