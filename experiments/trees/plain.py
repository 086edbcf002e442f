"""Plain decoding, one token after the other with the library's own cache: what trees must repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from acclimate.controller.records import FloatArray
from acclimate.experiments.trees.laws import softmax


def decode_plain(
    model: Any, prompt: Sequence[int], max_tokens: int, *, stop: Sequence[int] = ()
) -> list[int]:
    """Return the target's first choices behind a prompt, a stop included.

    Parameters
    ----------
    model
        A causal model of transformers.
    prompt
        Token ids.
    max_tokens
        Output tokens at most.
    stop
        Token ids that end the answer.
    """
    output: list[int] = []
    device = next(model.parameters()).device
    ids, cache = torch.tensor([list(prompt)], device=device), None
    with torch.inference_mode():
        while len(output) < max_tokens and not (output and output[-1] in stop):
            found = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            cache = found.past_key_values
            ids = found.logits[:, -1].argmax(dim=-1, keepdim=True)
            output.append(int(ids))
    return output


def next_laws(
    model: Any, texts: Sequence[Sequence[int]], *, temperature: float, batch: int = 512
) -> FloatArray:
    """Return the target's laws behind texts of one length, computed anew, shape (texts, vocab)."""
    device = next(model.parameters()).device
    ids = torch.tensor(np.array(texts, dtype=np.int64), device=device)
    laws = []
    with torch.inference_mode():
        for begin in range(0, ids.shape[0], batch):
            part = ids[begin : begin + batch]
            found = model(input_ids=part, use_cache=False, logits_to_keep=1)
            laws.append(softmax(found.logits[:, -1], temperature))
    return np.concatenate(laws)
