"""A drafter that knows the target's answers and is right with a probability that a test sets."""

from __future__ import annotations

import random
from typing import Any

# Prompt ids to the target's greedy answer; domain of the prompt; probability per domain.
ANSWERS: dict[tuple[int, ...], list[int]] = {}
DOMAINS: dict[tuple[int, ...], str] = {}
CHANCES: dict[str, float] = {}
_RANDOM = random.Random(0)


class KnownDrafter:
    """Proposes the known answer, each token right with its domain's chance and wrong otherwise."""

    def __init__(self, vllm_config: Any) -> None:
        self.depth = vllm_config.speculative_config.num_speculative_tokens

    def load_model(self, *args: Any, **kwargs: Any) -> None: ...

    def propose(
        self,
        sampled_token_ids: list[list[int]],
        num_tokens_no_spec: Any,
        token_ids_cpu: Any,
        slot_mappings: Any = None,
        **kwargs: Any,
    ) -> list[list[int]]:
        drafts: list[list[int]] = []
        for row, sampled in enumerate(sampled_token_ids):
            draft: list[int] = []
            if sampled:
                tokens = token_ids_cpu[row, : int(num_tokens_no_spec[row])].tolist()
                draft = self._draft(tokens)
            drafts.append(draft)
        return drafts

    def _draft(self, tokens: list[int]) -> list[int]:
        for prompt, answer in ANSWERS.items():
            if tuple(tokens[: len(prompt)]) == prompt:
                done = len(tokens) - len(prompt)
                chance = CHANCES[DOMAINS[prompt]]
                return [
                    token if _RANDOM.random() < chance else (token + 1) % 40_000
                    for token in answer[done : done + self.depth]
                ]
        return []
