"""Lets the target write the text that drafters are trained on and graded by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from acclimate.experiments.drafters.answers import Answer, AnswerFile, AnswerHeader
from acclimate.experiments.drafters.prompts import (
    DOMAINS,
    FREE,
    TrainingPrompt,
    free_prompt,
    training_prompt,
)
from acclimate.experiments.readers.spec_bench import Prompt
from acclimate.integrations.vllm.launch import Engine, start_engine
from acclimate.integrations.vllm.writing import Question, write_answers

_CONCURRENCY = 96
_MAX_TOKENS, HELD_OUT_TOKENS = 128, 160
_MAX_MODEL_LEN = 2048
_ARTICLE, _GIVEN = "article", "given-"
_LEAST_PROMPT_TOKENS, _PROMPT_TOKENS, _PROMPT_TEMPERATURE = 4, 160, 0.8

Told = Callable[[str, int, int], None]
"""Is told what is being done, how much of it, and of how much."""


def write_text(
    path: Path,
    model: Path,
    *,
    per_domain: int,
    free: int = 0,
    seed: int,
    held_out: tuple[Prompt, ...] = (),
    told: Told = lambda what, done, total: None,
) -> None:
    """Complete a file of answers, all greedy: what speculation predicts is the target's first choice.

    Articles come first, since later prompts ask about them; then all domains in turn; then prompts
    that the target writes itself, drawn from where a chat lets the user speak [1]_. What the file
    holds already is not written again.

    Parameters
    ----------
    path
        Of the `AnswerFile`.
    model
        Folder of the target.
    per_domain, free
        Prompts per domain, and prompts that the target writes.
    seed
        Draws the prompts.
    held_out
        Further prompts, answered greedily and never trained on.
    told
        Is told what is being done, how much of it, and of how much.

    Raises
    ------
    ValueError
        The file holds answers of another model or seed.

    References
    ----------
    .. [1] Z. Xu et al., "Magpie: alignment data synthesis from scratch by prompting aligned LLMs
       with nothing", arXiv 2406.08464.
    """
    header = AnswerHeader(model=model.name, seed=seed)
    file = AnswerFile(path, header)
    total = len(DOMAINS) * per_domain + free + len(held_out)
    engine: Engine | None = None
    try:
        if _complete(file, per_domain, free, held_out):
            return
        engine = start_engine(
            model, method=None, dtype="bfloat16", max_num_seqs=_CONCURRENCY,
            max_model_len=_MAX_MODEL_LEN, seed=seed,
        )  # fmt: skip
        writer = _Writer(engine, file, seed, told, total)
        writer.write(training_prompt(_ARTICLE, n, seed=seed) for n in range(per_domain))
        articles = writer.articles(per_domain)
        writer.write(
            training_prompt(domain, n, seed=seed, articles=articles)
            for n in range(per_domain)
            for domain in DOMAINS
            if domain != _ARTICLE
        )
        writer.write(writer.own_prompts(free))
        writer.write(_given(prompt) for prompt in held_out)
    finally:
        file.close()
        if engine is not None:
            engine.shutdown()


def is_given(key: str) -> bool:
    """Whether an answer is to a prompt of a file, not one of our own.

    >>> is_given("given-81"), is_given("code-7")
    (True, False)
    """
    return key.startswith(_GIVEN)


def _complete(file: AnswerFile, per_domain: int, free: int, held_out: tuple[Prompt, ...]) -> bool:
    ours = {f"{domain}-{n}" for domain in DOMAINS for n in range(per_domain)}
    ours |= {f"{FREE}-{n}" for n in range(free)}
    return (ours | {_given(prompt).key for prompt in held_out}) <= file.answers.keys()


def _opening(engine: Engine) -> tuple[int, ...]:
    """Return a chat's tokens up to where the user begins to speak."""
    one, other = (engine.tokens([{"role": "user", "content": text}]) for text in ("a", "b"))
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True))
    return tuple(token for token, _ in alike)


def _given(prompt: Prompt) -> TrainingPrompt:
    key = f"{_GIVEN}{prompt.question_id}"
    return TrainingPrompt(key, prompt.domain, 0, prompt.turns[0], held_out=True)


class _Writer:
    """Asks for what is missing, and files what comes."""

    def __init__(self, engine: Engine, file: AnswerFile, seed: int, told: Told, total: int) -> None:
        self.engine, self.file, self.seed, self.told, self.total = engine, file, seed, told, total

    def write(self, prompts: Iterator[TrainingPrompt]) -> None:
        """Answer those prompts that have no answer yet."""
        asked: dict[str, TrainingPrompt] = {}
        questions = self._questions(prompts, asked)
        for question, answer in write_answers(self.engine, questions, concurrency=_CONCURRENCY):
            prompt = asked.pop(question.key)
            self.file.append(
                Answer(
                    key=prompt.key, domain=prompt.domain, held_out=prompt.held_out,
                    prompt=question.prompt_token_ids, answer=answer,
                )
            )  # fmt: skip
            self.told("the model writes", len(self.file.answers), self.total)

    def articles(self, count: int) -> list[str]:
        """Return what was written as articles, in the order of their numbers."""
        tokenizer = self.engine.llm.get_tokenizer()
        answers = self.file.answers
        return [
            tokenizer.decode(answers[f"{_ARTICLE}-{n}"].answer, skip_special_tokens=True)
            for n in range(count)
        ]

    def own_prompts(self, count: int) -> Iterator[TrainingPrompt]:
        """Let the model write the prompts that have no answer yet."""
        tokenizer = self.engine.llm.get_tokenizer()
        begun = _opening(self.engine)
        missing = [n for n in range(count) if f"{FREE}-{n}" not in self.file.answers]
        questions = (
            Question(
                str(n), begun, _PROMPT_TOKENS, temperature=_PROMPT_TEMPERATURE,
                seed=(self.seed << 32) + n, min_tokens=_LEAST_PROMPT_TOKENS,
            )
            for n in missing
        )  # fmt: skip
        written = []
        for found in write_answers(self.engine, questions, concurrency=_CONCURRENCY):
            written.append(found)
            self.told("the model thinks of prompts", len(written), len(missing))
        for question, tokens in sorted(written, key=lambda found: int(found[0].key)):
            text = tokenizer.decode(tokens, skip_special_tokens=True)
            yield free_prompt(int(question.key), text)

    def _questions(
        self, prompts: Iterator[TrainingPrompt], asked: dict[str, TrainingPrompt]
    ) -> Iterator[Question]:
        for prompt in prompts:
            if prompt.key in self.file.answers:
                continue
            tokens = self.engine.tokens([{"role": "user", "content": prompt.text}])
            most = HELD_OUT_TOKENS if prompt.held_out else _MAX_TOKENS
            asked[prompt.key] = prompt
            yield Question(prompt.key, tokens[-(_MAX_MODEL_LEN - most) :], most)
