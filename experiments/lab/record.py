"""``acclimate lab record``: greedy answers of the small engine to a file of prompts, resumable."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from acclimate.experiments.lab.recording import Answer, Recording, RecordingHeader
from acclimate.experiments.testbed import model_path
from acclimate.integrations.vllm.closed_loop import Job, JobResult, run_closed_loop
from acclimate.integrations.vllm.compat import engine_version
from acclimate.integrations.vllm.launch import Engine, start_engine

_CONCURRENCY = 32
_PIECE = 64  # turns between two saves
_CUT = "length"  # the engine's word for an answer that reached its limit


class _Question(msgspec.Struct, frozen=True):
    """One line of a prompts' file in the format of Spec-Bench."""

    question_id: int
    category: str
    turns: tuple[str, ...]


def run_record(
    prompts: Path, *, out: Path, tokens: int, max_model_len: int, minutes: float, dtype: str
) -> bool:
    """Record answers until all are there or the time is up; say what there is.

    Speculation is off: greedy tokens are the same with it, and which drafts would have been
    proposed and accepted follows from the tokens.

    Parameters
    ----------
    prompts
        JSON lines with ``question_id``, ``category`` and ``turns``.
    out
        Folder of the recording; what is there already is not asked again.
    tokens
        Output tokens per answer at most. More than before lets answers that were cut go on, where
        no later turn was built on them.
    max_model_len
        Tokens per sequence at most; longer conversations are left out.
    minutes
        Time after which no further piece is begun.
    dtype
        ``float32`` makes greedy tokens independent of what else runs.

    Returns
    -------
    bool
        Whether the recording is complete.

    Raises
    ------
    ValueError
        The prompts cannot be read, or the folder holds another recording.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    until_s = time.monotonic() + 60 * minutes
    questions = _read_questions(prompts)
    console = Console(stderr=True)
    model = model_path(console.print)
    recording = Recording(out, _header(model, prompts, tokens, dtype))
    total = sum(len(question.turns) for question in questions)
    engine = start_engine(
        model,
        method=None,
        dtype=dtype,
        max_num_seqs=_CONCURRENCY,
        max_model_len=max_model_len,
    )
    too_long: set[tuple[int, int]] = set()
    columns = (TextColumn("turns"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=total, completed=len(recording.answers))
        took_s, complete = 0.0, False
        while not complete and time.monotonic() + took_s < until_s:
            begun_s = time.monotonic()
            jobs = _next_jobs(engine, questions, recording, tokens, max_model_len, too_long)
            piece = dict(islice(jobs, _PIECE))
            complete = not piece
            run = run_closed_loop(engine, list(piece), _CONCURRENCY)
            recording.add([_answer(piece[result.job], result, recording) for result in run.results])
            took_s = time.monotonic() - begun_s
            progress.update(bar, completed=len(recording.answers))
    engine.shutdown()
    written = sum(len(answer.output) for answer in recording.answers)
    console.print(
        f"{len(recording.answers)} of {total} turns, {written} output tokens in {recording.path}; "
        f"{len(too_long)} conversations left out: longer than {max_model_len} tokens",
        soft_wrap=True,
    )
    return complete


def _next_jobs(
    engine: Engine,
    questions: list[_Question],
    recording: Recording,
    tokens: int,
    max_model_len: int,
    too_long: set[tuple[int, int]],
) -> Iterator[tuple[Job, tuple[int, int]]]:
    """Give the turns that are due: all answers before them are at hand, their own is not.

    An answer that an earlier, lower limit cut off is due again where it ends the conversation.
    """
    told = {(answer.question, answer.turn): answer for answer in recording.answers}
    tokenizer = engine.llm.get_tokenizer()
    for turn in range(max(len(question.turns) for question in questions)):
        for question in questions:
            key = (question.question_id, turn)
            before = [(question.question_id, earlier) for earlier in range(turn)]
            if turn >= len(question.turns) or not all(b in told for b in before):
                continue
            name = f"{question.question_id}-{turn}"
            if key in told:
                known = told[key]
                cut = known.finish == _CUT and len(known.output) < tokens
                if cut and turn == len(question.turns) - 1:
                    prompt = known.prompt + known.output
                    more = tokens - len(known.output)
                    yield Job(name, prompt, more, truth=question.category), key
                continue
            messages: list[dict[str, str]] = []
            for b in before:
                answer = tokenizer.decode(told[b].output, skip_special_tokens=True)
                messages.append({"role": "user", "content": question.turns[b[1]]})
                messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": question.turns[turn]})
            prompt = engine.tokens(messages)
            if len(prompt) + tokens > max_model_len:
                too_long.add(key)
                continue
            yield Job(name, prompt, tokens, truth=question.category), key


def _answer(key: tuple[int, int], result: JobResult, recording: Recording) -> Answer:
    """Return what came of a turn, behind what was known of its answer already."""
    question, turn = key
    earlier = next((one for one in recording.answers if (one.question, one.turn) == key), None)
    return Answer(
        question=question,
        turn=turn,
        domain=result.job.truth,
        prompt=result.job.prompt_token_ids if earlier is None else earlier.prompt,
        output=(() if earlier is None else earlier.output) + tuple(result.token_ids),
        finish=result.finish_reason or "",
    )


_QUESTIONS = msgspec.json.Decoder(_Question)


def _read_questions(path: Path) -> list[_Question]:
    try:
        questions = _QUESTIONS.decode_lines(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise ValueError(
            f"{path.name} must hold JSON lines with question_id, category and turns, got {error}"
        ) from error
    if not questions:
        raise ValueError(f"{path.name} must hold prompts, got none")
    return questions


def _header(model: Path, prompts: Path, tokens: int, dtype: str) -> RecordingHeader:
    return RecordingHeader(
        model=model.name,
        engine_version=engine_version(),
        dtype=dtype,
        prompts=hashlib.blake2b(prompts.read_bytes(), digest_size=8).hexdigest(),
        max_tokens=tokens,
    )
