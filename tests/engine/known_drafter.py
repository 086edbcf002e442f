"""A drafter that knows the target's answers and is right with a probability that a test sets."""

from __future__ import annotations

from typing import Any

# Prompt ids to the target's greedy answer; domain of the prompt; probability per domain.
ANSWERS: dict[tuple[int, ...], list[int]] = {}
DOMAINS: dict[tuple[int, ...], str] = {}
CHANCES: dict[str, float] = {}
# Multiples of such numbers, modulo 1, fill the unit interval evenly and independently of each
# other: shares come close to the chances much sooner than with random draws.
_STRIDES = (2**0.5, 3**0.5, 5**0.5, 7**0.5)
_COUNTS: dict[tuple[str, int], int] = {}


def right(domain: str, position: int) -> bool:
    """Say whether the next draft token of a domain at a position is right."""
    count = _COUNTS[domain, position] = _COUNTS.get((domain, position), 0) + 1
    return count * _STRIDES[position] % 1.0 < CHANCES[domain]


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
                domain = DOMAINS[prompt]
                return [
                    token if right(domain, position) else (token + 1) % 40_000
                    for position, token in enumerate(answer[done : done + self.depth])
                ]
        return []
