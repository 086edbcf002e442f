"""Greedy answers of an engine as token ids, on disk: what the ablation reads."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

_FILE = "answers.jsonl"


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True, tag="recording", tag_field="kind"):
    """First line: what was asked of which engine. Two recordings with one header can be joined.

    ``prompts`` is a digest of the prompts' file, ``max_tokens`` the most that an answer may have.
    """

    model: str
    engine_version: str
    dtype: str
    prompts: str
    max_tokens: int


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer", tag_field="kind"):
    """One turn of a conversation, as token ids.

    Parameters
    ----------
    question
        The question's number in the prompts' file.
    turn
        Counted from 0; a later turn has the answers before it in its prompt.
    domain
        The question's category.
    prompt, output
        Token ids.
    finish
        Why the answer ended, in the engine's words.
    """

    question: int
    turn: int
    domain: str
    prompt: tuple[int, ...]
    output: tuple[int, ...]
    finish: str


class Recording:
    """Answers in a folder, one JSON object a line, appended as they come.

    An unfinished last line, as a kill leaves, is cut off when the folder is opened again. Later
    lines of the same turn replace earlier ones: an answer may grow when ``max_tokens`` is raised.

    Parameters
    ----------
    folder
        Holds the file ``answers.jsonl``; made if need be.
    header
        What is to be recorded.

    Raises
    ------
    ValueError
        The folder holds a recording of something else.
    """

    def __init__(self, folder: str | os.PathLike[str], header: RecordingHeader) -> None:
        self.path = Path(folder) / _FILE
        self.header = header
        self.answers: list[Answer] = []
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(msgspec.json.encode(header) + b"\n")
            return
        found, self.answers = read_recording(self.path)
        longer = header.max_tokens >= found.max_tokens
        if not longer or msgspec.structs.replace(found, max_tokens=header.max_tokens) != header:
            raise ValueError(f"{self.path} must hold a recording of {header}, got {found}")
        # What is there is put into order, under the header that holds from now on.
        fresh = self.path.with_suffix(".new")
        lines = [header, *self.answers]
        fresh.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        fresh.replace(self.path)

    def add(self, answers: list[Answer]) -> None:
        """Append answers; one of a turn that is there already replaces it."""
        with self.path.open("ab") as file:
            file.writelines(msgspec.json.encode(answer) + b"\n" for answer in answers)
        self.answers = _latest([*self.answers, *answers])


def recording_file(path: str | os.PathLike[str]) -> Path:
    """Return the file of a recording, given it or the folder that holds it."""
    path = Path(path)
    return path / _FILE if path.is_dir() else path


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a recording, or the folder of one."""
    path = recording_file(path)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        try:
            return isinstance(_DECODER.decode(file.readline()), RecordingHeader)
        except msgspec.MsgspecError:
            return False


def read_recording(path: str | os.PathLike[str]) -> tuple[RecordingHeader, list[Answer]]:
    """Read a recording: its file, or the folder that holds it.

    Raises
    ------
    ValueError
        The file is no recording, or a line inside it is damaged.
    """
    path = recording_file(path)
    header: RecordingHeader | None = None
    answers: list[Answer] = []
    for number, data in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        try:
            line = _DECODER.decode(data)
        except msgspec.MsgspecError as error:
            if header is not None and not data.endswith(b"\n"):
                break
            raise ValueError(
                f"{path}, line {number}: must be a recording of 'acclimate lab record', got {error}"
            ) from error
        if isinstance(line, Answer) and header is not None:
            answers.append(line)
        elif isinstance(line, RecordingHeader) and header is None:
            header = line
        else:
            raise ValueError(f"{path}, line {number}: must be an answer behind one header")
    if header is None:
        raise ValueError(f"{path} must hold a recording, got an empty file")
    return header, _latest(answers)


def _latest(answers: list[Answer]) -> list[Answer]:
    """Return the last answer of each turn, in the order in which the turns first came."""
    return list({(answer.question, answer.turn): answer for answer in answers}.values())


_DECODER: msgspec.json.Decoder[RecordingHeader | Answer] = msgspec.json.Decoder(
    RecordingHeader | Answer
)
