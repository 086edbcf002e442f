"""What a simulated engine can hold."""

from __future__ import annotations

import dataclasses

from acclimate.experiments.workload import Workload


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """What an engine can hold.

    Parameters
    ----------
    max_num_seqs
        Requests that run at once.
    token_budget
        Tokens of a step at most, prompts and verified drafts together.
    kv_blocks
        Blocks of cache; None: enough for everything.
    block_tokens
        Tokens per block.
    prefill_first
        Whether a step that can hold prompts holds nothing else, so that decoding waits for them.
    least_draft_passes
        Passes of the draft model in a step that asks for fewer drafts: one keeps its cache in step.
    """

    max_num_seqs: int = 256
    token_budget: int = 8_192
    kv_blocks: int | None = None
    block_tokens: int = 16
    prefill_first: bool = False
    least_draft_passes: int = 0

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "token_budget", "block_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.kv_blocks is not None and self.kv_blocks < 1:
            raise ValueError(f"kv_blocks must be >= 1, got {self.kv_blocks}")

    def check(self, workload: Workload) -> None:
        """Make sure that every request fits into the cache.

        Raises
        ------
        ValueError
            The longest request needs more blocks than there are: it would wait for ever.

        Examples
        --------
        >>> work = Workload.closed(1, prompt_tokens=10, output_tokens=7)
        >>> EngineLimits(kv_blocks=1).check(work)
        Traceback (most recent call last):
            ...
        ValueError: kv_blocks must hold the longest request of 17 tokens (2 blocks), got 1
        """
        if self.kv_blocks is None or not len(workload):
            return
        most = int((workload.prompt_tokens + workload.limit_tokens).max())
        blocks = -(-most // self.block_tokens)
        if blocks > self.kv_blocks:
            raise ValueError(
                f"kv_blocks must hold the longest request of {most} tokens ({blocks} blocks), "
                f"got {self.kv_blocks}"
            )
