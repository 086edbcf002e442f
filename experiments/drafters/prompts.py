"""Prompts from which the target writes training text: templates of our own, or its own words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from acclimate.experiments.drafters import vocabulary as words

FREE = "free"
"""Domain of the prompts that the target wrote itself."""

HELD_OUT_EVERY = 10
"""Of so many prompts of a domain, the last is never trained on."""


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingPrompt:
    """One prompt.

    Parameters
    ----------
    key
        ``<domain>-<number>``, unique.
    domain
        One of `DOMAINS`, or `FREE`.
    number
        Counted from 0 in its domain.
    text
        What the user says.
    held_out
        Whether the answer is kept from training.
    """

    key: str
    domain: str
    number: int
    text: str
    held_out: bool


def training_prompt(
    domain: str, number: int, *, seed: int, articles: Sequence[str] = ()
) -> TrainingPrompt:
    """Return prompt ``number`` of a domain; the same arguments give the same prompt.

    Parameters
    ----------
    articles
        Texts to summarise and to ask about; only `PASSAGE_DOMAINS` need any. Prompt ``number`` is
        about article ``number``, so that held-out prompts rest on held-out articles.

    Raises
    ------
    ValueError
        There is no such domain, or it needs an article and there is none.

    Examples
    --------
    >>> prompt = training_prompt("code", 19, seed=0)
    >>> prompt.key, prompt.held_out
    ('code-19', True)
    >>> prompt == training_prompt("code", 19, seed=0)
    True
    """
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, got {domain!r}")
    draw = _Draw(np.random.default_rng([seed, DOMAINS.index(domain), number]))
    if domain in PASSAGE_DOMAINS:
        if number >= len(articles):
            raise ValueError(f"articles must be more than {number}, got {len(articles)}")
        text = _PASSAGE_MAKERS[domain](draw, articles[number])
    else:
        text = _MAKERS[domain](draw)
    return _prompt(domain, number, text)


def free_prompt(number: int, text: str) -> TrainingPrompt:
    """Return prompt ``number`` of those that the target wrote itself.

    >>> free_prompt(9, "Why is the sky blue?").held_out
    True
    """
    return _prompt(FREE, number, text)


def _prompt(domain: str, number: int, text: str) -> TrainingPrompt:
    held_out = number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    return TrainingPrompt(f"{domain}-{number}", domain, number, text, held_out)


class _Draw:
    """Draws words."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one(self, choices: Sequence[str]) -> str:
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))


def _article(draw: _Draw) -> str:
    what = draw.one(words.ASPECTS).format(draw.one(words.SUBJECTS))
    who, where = draw.one(words.JOBS), draw.one(words.PLACES)
    return draw.one(
        (
            f"Write a short encyclopedia article about {what}.",
            f"Write a news report from {where} about {what}.",
            f"Write a news story about a {who} from {where} and {draw.one(words.THINGS)}.",
            f"Write two paragraphs on {what} for a magazine.",
            f"Report in the style of a newspaper what happened to a {who} in {where} last week.",
        )
    )


def _explanation(draw: _Draw) -> str:
    subject, other = draw.one(words.SUBJECTS), draw.one(words.SUBJECTS)
    what = draw.one(words.ASPECTS).format(subject)
    return draw.one(
        (
            f"Explain {what}.",
            f"What is the connection between {subject} and {other}?",
            f"How do experts explain {what}? Give examples.",
            f"Describe the key ideas behind {subject} and say how they are used.",
            f"Compare {subject} with {other}. What do they have in common, and what not?",
            f"What would happen to {subject} if there were no {other}? Give your reasons.",
            f"List five important facts about {subject}, most important first.",
            (
                f"Sort these words into living things, machines and ideas: {subject}, {other}, "
                f"{draw.one(words.SUBJECTS)}. Answer in JSON."
            ),
        )
    )


def _translation(draw: _Draw) -> str:
    who, did = draw.one(words.GERMAN_WHO), draw.one(words.GERMAN_DID)
    that, end = draw.one(words.GERMAN_THAT), draw.one(words.GERMAN_END)
    sentence = f"{who} {did}, {that}" + (f", {end}." if end else ".")
    ask = draw.one(("Translate German to English: {}", "Translate from German to English:\n{}",
                    "Translate into English: {}", "What does this mean in English? {}"))  # fmt: skip
    return ask.format(sentence)


def _qa(draw: _Draw) -> str:
    fact = draw.one(words.FACTS).format(place=draw.one(words.PLACES))
    subject, what, person = draw.one(words.SUBJECTS), draw.one(words.WORKS), draw.one(words.JOBS)
    return draw.one(
        (
            f"What is {fact}?",
            f"Who is behind {what}?",
            f"When did people first hear of {what}?",
            f"Where can you see or read about {what}?",
            f"What is another word for {subject}?",
            f"How many kinds of {subject} are there?",
            f"Where do {subject} come from?",
            f"Which {person} is known for {what}?",
            f"Who was the first {person} in {draw.one(words.PLACES)}?",
            f"When was {what} made, and by whom?",
        )
    )


def _math(draw: _Draw) -> str:
    name, other, items = draw.one(words.PEOPLE), draw.one(words.PEOPLE), draw.one(words.ITEMS)
    a, b, c, d = draw.number(2, 60), draw.number(2, 12), draw.number(2, 9), draw.number(1, 5)
    more = draw.one(words.ITEMS)
    return draw.one(
        (
            (
                f"{name} buys {a} {items} for ${b} each and {c} {more} for ${d} each. How much does "
                f"{name} pay in total?"
            ),
            (
                f"{name} has {a * b} {items}. {name} gives {c} of them to {other} and puts the rest into "
                f"{b} boxes. How many {items} are in each box?"
            ),
            (
                f"A shop sells {a} {items} on Monday, twice as many on Tuesday and {b} fewer on "
                f"Wednesday than on Tuesday. How many {items} does it sell in three days?"
            ),
            (
                f"{name} works {b} hours a day and earns ${a} an hour. How much does {name} earn in {c} "
                "days?"
            ),
            (
                f"{name} is {b} years older than {other}, and {other} is {a}. How old will {name} be in "
                f"{c} years?"
            ),
            f"{name} drives {a * 10} miles in {b} hours. How far does {name} get in {c} hours?",
            (
                f"There are {a} {items} in a basket. {c * 10}% of them are red and the rest are green. "
                "How many are green?"
            ),
            f"If 3x + {a} = {a + 3 * b}, what is x?",
            f"A rectangle is {a} cm long and {b} cm wide. What are its area and its perimeter?",
            (
                f"{name} saves ${a} in the first month and half of that in each of the next {c} months. "
                "How much is saved in all?"
            ),
            (
                f"Which positions do {name} and {other} hold in a race of {b} runners if {name} has just "
                f"passed {other}, who was in place {d}?"
            ),
        )
    )


def _code(draw: _Draw) -> str:
    task, language = draw.one(words.CODE_TASKS), draw.one(words.LANGUAGES)
    return draw.one(
        (
            f"Write a {language} program that {task}.",
            f"Write a {language} function that {task}.",
            f"Write a {language} function that {task}, and explain how it works.",
            f"Give me {language} code which {task}, with comments and an example.",
            f"Write a {language} function that {task}, and three tests for it.",
            f"Implement a {language} class that {task}.",
        )
    )


def _writing(draw: _Draw) -> str:
    place, job, thing = draw.one(words.PLACES), draw.one(words.JOBS), draw.one(words.THINGS)
    subject, name = draw.one(words.SUBJECTS), draw.one(words.PEOPLE)
    return draw.one(
        (
            f"Write a travel blog about a week in {place}.",
            f"Write a polite email to a {job} and ask for advice on {thing}.",
            f"Write a short story that begins with {name}, a {job}, in {place}.",
            f"Write a product description for {thing}.",
            f"Write a persuasive letter to your neighbours about {subject}.",
            f"Pretend to be a {job}. What do you think about {subject}?",
            f"You are a {job} in {place}. Tell me about your day.",
            f"Speak like a {job} and explain {subject} to a child.",
            f"Write a speech that praises {subject}.",
            f"Write an outline for a blog post about {subject} with a catchy headline.",
            f"Describe {place} to somebody who has never been there.",
            f"Write a cover letter for a job as a {job}.",
            f"Give {name}, a {job}, five tips for starting {thing}.",
        )
    )


def _summary(draw: _Draw, article: str) -> str:
    ask = ("Summarize: {}", "Summarize the following text:\n\n{}", "{}\n\nSummarize this text.",
           "Summarize in three sentences: {}")  # fmt: skip
    return draw.one(ask).replace("{}", article)


def _rag(draw: _Draw, article: str) -> str:
    ask = (
        "What is the text about, and what does it say?",
        "Who is mentioned, and why?",
        "What are the main reasons that are given?",
        "When and where did this happen?",
        "Which effects does the text describe?",
        "What is said about the future?",
        "Describe the most important point.",
        "What do we learn from it?",
    )
    question = draw.one(ask)
    frame = ("{}\n" + question, "Answer the question from the text.\n\n{}\n\n" + question)
    return draw.one(frame).replace("{}", article)


_MAKERS: dict[str, Callable[[_Draw], str]] = {
    "article": _article,
    "explanation": _explanation,
    "translation": _translation,
    "qa": _qa,
    "math": _math,
    "code": _code,
    "writing": _writing,
}
_PASSAGE_MAKERS: dict[str, Callable[[_Draw, str], str]] = {
    "summarization": _summary,
    "rag": _rag,
}
DOMAINS = (*_MAKERS, *_PASSAGE_MAKERS)
"""What is written about; ``article`` first, since the last two ask about articles."""
PASSAGE_DOMAINS = tuple(_PASSAGE_MAKERS)
