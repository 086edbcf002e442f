"""``acclimate testbed train-draft``: the target writes, drafters learn, held-out answers grade."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.experiments.drafters.answers import Answer, read_answers
from acclimate.experiments.drafters.choices import BACKOFF, EAGLE, GENERAL, trained_folder
from acclimate.experiments.drafters.held_out import ALL, OWN, HeldOut, measure, plain_backoff
from acclimate.experiments.drafters.prompts import DOMAINS
from acclimate.experiments.drafters.text import HELD_OUT_TOKENS, Told, is_given, write_text
from acclimate.experiments.figures import Figure, Meta, write_figures
from acclimate.experiments.lab.recording import is_recording, read_recording
from acclimate.experiments.readers.spec_bench import Prompt, read_spec_bench
from acclimate.experiments.testbed import model_path
from acclimate.integrations.ngram_files import NgramHeader, save_backoff
from acclimate.predictors.ngram import train_backoff
from acclimate.predictors.ngram_tables import build_tables
from acclimate.predictors.numerics import IntArray

KINDS = (BACKOFF, EAGLE)
ANSWERS_FILE = "answers.jsonl"
PLAIN = "plain-5gram"
PLAIN_TOKENS = 90_000
"""Tokens of text that the plain back-off is given, as in the trial that set the floor."""
_PLAIN_ORDER = 5
_ORDER = 5
_PROMPT_TOKENS = 64  # of a prompt's end that are context to the first tokens of an answer

Graded = dict[str, HeldOut]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Options of the command, as given.

    Parameters
    ----------
    held_out, limit
        A file in Spec-Bench's format, and prompts per category; or a recording of
        ``acclimate lab record``, whose answers are taken as they are; None for our own alone.
    per_domain, free
        Prompts of our own per domain, and prompts that the model writes itself.
    kinds
        What to train, by comma, of `KINDS`.
    domain
        What the second variant is trained on alone.
    lessons, epochs
        Answers that a head is trained on, and passes over them; the back-off takes all, in seconds.
    """

    held_out: Path | None = None
    limit: int = 20
    per_domain: int = 230
    free: int = 1_200
    kinds: str = ",".join(KINDS)
    domain: str = "code"
    lessons: int = 1_500
    epochs: int = 4
    seed: int = 0


def run_train_draft(
    options: TrainOptions, *, out: Path | None = None, json: Path | None = None
) -> list[Figure]:
    """Write text, train, grade, show the tables, and leave drafters and figures in ``out``.

    Parameters
    ----------
    options
        What to do.
    out
        Folder for text and drafters; by default the one in which engines look for drafters.
    json
        A second place for the figures.

    Raises
    ------
    ValueError
        The options do not fit together, or the folder holds text of another model or seed.
    """
    from rich.console import Console

    console, progress_console = Console(), Console(stderr=True)
    kinds = _check(options)
    given, recorded = read_held_out(options)
    started_s = time.monotonic()
    folder = out or trained_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ANSWERS_FILE
    graded: dict[tuple[str, str], Graded] = {}
    with _progress(progress_console) as told:
        model = model_path(lambda line: told(line, 0, 0))
        write_text(
            path, model, per_domain=options.per_domain, free=options.free, seed=options.seed,
            held_out=given, told=told,
        )  # fmt: skip
        train, held = split(read_answers(path), options)
        held += recorded
        graded[PLAIN, GENERAL] = _grade_plain(train, held)
        if BACKOFF in kinds:
            for variant in (GENERAL, options.domain):
                graded[BACKOFF, variant] = _backoff(
                    folder, model.name, variant, _of(train, variant), held, options.seed
                )
        if EAGLE in kinds:
            from acclimate.experiments.drafters.train_eagle import train_eagles

            graded |= train_eagles(folder, model, train, held, options, told)
    figures = [
        figure for (name, variant), found in graded.items() for figure in _figures(name, variant, found)
    ]  # fmt: skip
    meta = Meta("testbed train-draft", engine="vllm", seed=options.seed)
    for target in (folder / "figures.json", json):
        if target is not None:
            write_figures(target, figures, meta)
    _print(graded, console)
    minutes = (time.monotonic() - started_s) / 60
    console.print(f"• drafters are in {folder}; took {minutes:.1f} minutes", soft_wrap=True)
    return figures


def split(answers: Sequence[Answer], options: TrainOptions) -> tuple[list[Answer], list[Answer]]:
    """Return answers to train on, in random order, and held-out ones.

    A prompt that is held out anywhere is trained on nowhere. Held-out prompts of our own are in
    domains ``own-…``; those of a file keep their category.
    """
    held = [
        answer if is_given(answer.key)
        else Answer(**{**_fields(answer), "domain": f"{OWN}-{answer.domain}"})
        for answer in answers
        if answer.held_out
    ]  # fmt: skip
    kept_back = {answer.prompt for answer in held}
    train = [a for a in answers if not a.held_out and a.prompt not in kept_back]
    order = np.random.default_rng(options.seed).permutation(len(train))
    return [train[i] for i in order], held


def text_of(answer: Answer) -> tuple[IntArray, int]:
    """Return an answer as a text for `train_backoff`: the prompt's end, the answer, its place."""
    prompt = answer.prompt[-_PROMPT_TOKENS:]
    return np.array(prompt + answer.answer, dtype=np.int64), len(prompt)


def read_held_out(options: TrainOptions) -> tuple[tuple[Prompt, ...], list[Answer]]:
    """Return prompts that are to be answered, and answers that were recorded before."""
    if options.held_out is None:
        return (), []
    if not is_recording(options.held_out):
        return read_spec_bench(options.held_out, limit=options.limit).value, []
    _, recorded = read_recording(options.held_out)
    return (), [
        Answer(
            key=f"given-{turn.question}", domain=turn.domain, held_out=True, prompt=turn.prompt,
            answer=turn.output[:HELD_OUT_TOKENS],
        )
        for turn in recorded
        if turn.turn == 0
    ]  # fmt: skip


def _check(options: TrainOptions) -> list[str]:
    kinds = [kind.strip() for kind in options.kinds.split(",")]
    if not set(kinds) <= set(KINDS):
        raise ValueError(f"kinds must be of {', '.join(KINDS)}, got {options.kinds!r}")
    if options.domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}, got {options.domain!r}")
    for name in ("per_domain", "limit", "lessons", "epochs"):
        if (value := getattr(options, name)) < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    return kinds


def _of(train: Sequence[Answer], variant: str) -> list[Answer]:
    return [answer for answer in train if variant in (GENERAL, answer.domain)]


def _grade_plain(train: Sequence[Answer], held: Sequence[Answer]) -> Graded:
    """Grade the plain back-off on as much text as the trial gave it."""
    texts, tokens = [], 0
    for answer in train:
        if tokens < PLAIN_TOKENS:
            texts.append(text_of(answer))
            tokens += len(answer.answer)
    return measure(plain_backoff(build_tables(texts, order=_PLAIN_ORDER)), held)


def _backoff(
    folder: Path, model: str, variant: str, train: Sequence[Answer], held: Sequence[Answer],
    seed: int,
) -> Graded:  # fmt: skip
    """Train and keep one back-off model, and grade it."""
    trained = train_backoff([text_of(answer) for answer in train], order=_ORDER)
    header = NgramHeader(
        model=model,
        variant=variant,
        order=_ORDER,
        texts=len(train),
        tokens=sum(len(answer.answer) for answer in train),
        seed=seed,
    )
    save_backoff(folder / f"{BACKOFF}-{variant}.npz", trained, header)
    return measure(trained, held)


def _figures(name: str, variant: str, found: Graded) -> list[Figure]:
    figures = []
    for domain, one in found.items():
        base = f"drafter/{name}/{variant}/{domain}"
        figures += [
            Figure(f"{base}/acceptance_position{position}", share, n=one.tokens)
            for position, share in enumerate(one.by_position, start=1)
        ]
        figures += [
            Figure(f"{base}/top1", one.top1, n=one.tokens),
            Figure(f"{base}/top3", one.top3, n=one.tokens),
            Figure(f"{base}/acceptance_length", one.acceptance_length, unit="tokens", n=one.tokens),
            Figure(f"{base}/brier", one.brier, n=one.tokens),
        ]
    return figures


def _print(graded: dict[tuple[str, str], Graded], console: Any) -> None:
    from rich.table import Table

    table = Table(
        "domain", *(f"{name} {variant}" for name, variant in graded),
        title="Held-out answers: tokens that the first draft (the best three) names; tokens per "
        "verification of 4",
    )  # fmt: skip
    domains = dict.fromkeys(domain for found in graded.values() for domain in found)
    for domain in sorted(domains, key=lambda name: (name.startswith(OWN), name in (ALL, OWN))):
        cells = [
            f"{one.top1:.3f} ({one.top3:.3f}) {one.acceptance_length:.2f}"
            if (one := found.get(domain)) else "-"
            for found in graded.values()
        ]  # fmt: skip
        table.add_row(domain, *cells)
    console.print(table)


def _fields(answer: Answer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__}


@contextmanager
def _progress(console: Any) -> Iterator[Told]:
    """Show what is under way, and how far it is."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def told(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total or None)

        yield told
