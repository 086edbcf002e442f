"""Prompts, answers on disk and the split: repeatable, resumable, and nothing held out is learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from acclimate.experiments.drafters import text
from acclimate.experiments.drafters.answers import Answer, AnswerFile, AnswerHeader, read_answers
from acclimate.experiments.drafters.prompts import (
    DOMAINS,
    FREE,
    HELD_OUT_EVERY,
    PASSAGE_DOMAINS,
    free_prompt,
    training_prompt,
)
from acclimate.experiments.drafters.text import write_text
from acclimate.experiments.drafters.train import (
    TrainOptions,
    read_held_out,
    run_train_draft,
    split,
    text_of,
)
from acclimate.integrations.vllm.writing import Question

HEADER = AnswerHeader(model="m", seed=0)
ARTICLES = [f"Article {n}." for n in range(60)]


def _answer(key: str, *, held_out: bool = False, prompt: tuple[int, ...] = (1, 2)) -> Answer:
    domain = key.rsplit("-", 1)[0]
    return Answer(key=key, domain=domain, held_out=held_out, prompt=prompt, answer=(3, 4, 5))


def test_prompts_are_many_and_repeat_by_seed() -> None:
    for domain in DOMAINS:
        prompts = [training_prompt(domain, n, seed=0, articles=ARTICLES) for n in range(60)]
        again = [training_prompt(domain, n, seed=0, articles=ARTICLES) for n in range(60)]
        assert prompts == again
        assert len({prompt.text for prompt in prompts}) > 40, domain
        assert sum(prompt.held_out for prompt in prompts) == 60 // HELD_OUT_EVERY
        other = [training_prompt(domain, n, seed=1, articles=ARTICLES).text for n in range(60)]
        assert other != [prompt.text for prompt in prompts]
        assert not any("{" in prompt.text or "None" in prompt.text for prompt in prompts)


def test_a_passage_is_the_article_of_the_same_number() -> None:
    for domain in PASSAGE_DOMAINS:
        assert "Article 7." in training_prompt(domain, 7, seed=0, articles=ARTICLES).text
        with pytest.raises(ValueError, match="articles must be more than 7, got 0"):
            training_prompt(domain, 7, seed=0)
    with pytest.raises(ValueError, match="domain must be one of"):
        training_prompt("poetry", 0, seed=0)


class _Engine:
    """Writes what it is asked, tokens being characters."""

    def __init__(self) -> None:
        self.llm, self.asked, self.closed = self, [], False

    def get_tokenizer(self) -> _Engine:
        return self

    def tokens(self, messages: list[dict[str, str]]) -> tuple[int, ...]:
        return tuple(map(ord, f"<{messages[-1]['content']}>"))

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(map(chr, tokens))

    def shutdown(self) -> None:
        self.closed = True


def test_the_target_writes_prompts_of_its_own_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _Engine()

    def write(
        engine: _Engine, questions: Iterable[Question], *, concurrency: int
    ) -> Iterator[tuple[Question, tuple[int, ...]]]:
        for question in questions:
            engine.asked.append(question)
            yield question, tuple(map(ord, f"said {question.seed}"))

    monkeypatch.setattr(text, "start_engine", lambda *args, **kwargs: engine)
    monkeypatch.setattr(text, "write_answers", write)
    path = tmp_path / "answers.jsonl"
    for free, drawn in ((3, [0, 1, 2]), (3, []), (5, [3, 4])):
        engine.asked.clear()
        write_text(path, Path("model"), per_domain=1, free=free, seed=0)
        prompts = [question for question in engine.asked if question.temperature > 0.0]
        assert [question.seed for question in prompts] == drawn
        assert all(question.prompt_token_ids == (ord("<"),) for question in prompts)
    answers = {answer.key: answer for answer in read_answers(path)}
    assert engine.closed and len(answers) == len(DOMAINS) + 5
    assert "".join(map(chr, answers["free-4"].prompt)) == "<said 4>"
    assert (answers["free-4"].domain, free_prompt(9, "?").held_out) == (FREE, True)


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    file = AnswerFile(path, HEADER)
    file.append(_answer("code-1"))
    file.append(_answer("code-0"))
    file.close()
    with path.open("ab") as broken:
        broken.write(b'{"key":"code-2","dom')
    file = AnswerFile(path, HEADER)
    assert set(file.answers) == {"code-0", "code-1"}
    file.append(_answer("code-2"))
    file.close()
    # In the order of keys, whichever was finished first.
    assert [answer.key for answer in read_answers(path)] == ["code-0", "code-1", "code-2"]
    with pytest.raises(ValueError, match="must hold answers of"):
        AnswerFile(path, AnswerHeader(model="m", seed=1))
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="must begin with a header"):
        read_answers(path)


def test_what_is_held_out_anywhere_is_learned_nowhere() -> None:
    answers = [
        _answer("code-1"),
        _answer("code-2", prompt=(7,)),
        _answer("code-9", held_out=True),
        _answer("given-81", held_out=True, prompt=(8,)),
    ]
    train, held = split(answers, TrainOptions())
    assert [answer.key for answer in train] == ["code-2"]
    assert {answer.key: answer.domain for answer in held} == {
        "code-9": "own-code",
        "given-81": "given",
    }
    ids, first = text_of(answers[0])
    assert (ids.tolist(), first) == ([1, 2, 3, 4, 5], 2)


def test_wrong_options_are_known_before_anything_is_written(tmp_path: Path) -> None:
    for options, message in (
        (TrainOptions(kinds="backoff,trie"), "kinds must be of backoff, eagle"),
        (TrainOptions(domain="poetry"), "domain must be one of"),
        (TrainOptions(epochs=0), "epochs must be >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            run_train_draft(options, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert read_held_out(TrainOptions()) == ((), [])
