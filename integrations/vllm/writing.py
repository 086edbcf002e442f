"""Lets an in-process engine write many answers at a time, each handed over as it is finished."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acclimate.integrations.vllm.launch import Engine


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """One answer to write.

    Parameters
    ----------
    key
        Unique among the questions of a call.
    prompt_token_ids
        The prompt, templated and tokenised.
    max_tokens
        Tokens of the answer at most.
    temperature, seed
        How tokens are drawn, and the seed of these draws; 0 for the first choice.
    min_tokens
        Tokens of the answer at least.
    """

    key: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    min_tokens: int = 0


def write_answers(
    engine: Engine,
    questions: Iterable[Question],
    *,
    concurrency: int,
) -> Iterator[tuple[Question, tuple[int, ...]]]:
    """Yield questions and the token ids of their answers, in the order in which they are finished.

    Parameters
    ----------
    engine
        In-process and idle.
    questions
        Taken one by one, whenever there is room.
    concurrency
        Answers under way at a time.

    Raises
    ------
    ValueError
        The concurrency is below 1.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if concurrency < 1:
        raise ValueError(f"concurrency must be >= 1, got {concurrency}")
    llm_engine = engine.llm.llm_engine
    waiting = iter(questions)
    running: dict[str, Question] = {}
    more = True
    while more or running:
        while more and len(running) < concurrency:
            question = next(waiting, None)
            if question is None:
                more = False
                break
            params = SamplingParams(
                temperature=question.temperature,
                seed=question.seed,
                min_tokens=question.min_tokens,
                max_tokens=question.max_tokens,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = {"prompt_token_ids": list(question.prompt_token_ids)}
            llm_engine.add_request(question.key, prompt, params)
            running[question.key] = question
        if not running:
            break
        for output in llm_engine.step():
            if output.finished:
                yield running.pop(output.request_id), tuple(output.outputs[0].token_ids)
