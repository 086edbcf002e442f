"""A file of finished answers: one JSON line each, appended to, so that a killed run goes on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import msgspec

FORMAT = 1


class AnswerHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of the file: what wrote the answers."""

    format: int = FORMAT
    model: str
    seed: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer.

    Parameters
    ----------
    key
        Of its prompt, unique in the file.
    domain
        As in the prompt, or the category of a prompt that was given in a file.
    held_out
        Whether it is kept from training.
    prompt, answer
        Token ids.
    """

    key: str
    domain: str
    held_out: bool
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class AnswerFile:
    """Finished answers, of which a broken last line is dropped.

    Parameters
    ----------
    path
        Created with its header if it is not there.
    header
        What is to write into it.

    Raises
    ------
    ValueError
        The file holds something else, or answers under another header.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answers.jsonl"
    >>> file = AnswerFile(path, AnswerHeader(model="m", seed=0))
    >>> file.append(Answer(key="code-0", domain="code", held_out=False, prompt=(1, 2),
    ...                    answer=(3,)))
    >>> file.close()
    >>> [answer.answer for answer in read_answers(path)]
    [(3,)]
    """

    def __init__(self, path: Path, header: AnswerHeader) -> None:
        self.path = path
        self._file: IO[bytes]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size:
            text = path.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            found = _header(path, whole.split(b"\n", 1)[0])
            if found != header:
                raise ValueError(
                    f"{path} must hold answers of {msgspec.to_builtins(header)}, "
                    f"got {msgspec.to_builtins(found)}: name another --out"
                )
            self.answers = {answer.key: answer for answer in _answers(path, whole)}
            self._file = path.open("r+b")
            self._file.truncate(len(whole))
            self._file.seek(0, os.SEEK_END)
        else:
            self.answers = {}
            self._file = path.open("wb")
            self._write(header)

    def append(self, answer: Answer) -> None:
        """Add a finished answer."""
        self.answers[answer.key] = answer
        self._write(answer)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()


def read_answers(path: Path) -> list[Answer]:
    """Return a file's answers in the order of their keys, whichever was finished first.

    Raises
    ------
    ValueError
        The file holds something else.
    """
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    _header(path, whole.split(b"\n", 1)[0])
    return sorted(_answers(path, whole), key=lambda answer: answer.key)


def _header(path: Path, line: bytes) -> AnswerHeader:
    try:
        return msgspec.json.decode(line, type=AnswerHeader)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} must begin with a header of answers, got: {error}") from error


def _answers(path: Path, text: bytes) -> Iterable[Answer]:
    decoder = msgspec.json.Decoder(Answer)
    for number, line in enumerate(text.splitlines()[1:], start=2):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path} line {number} must be an answer, got: {error}") from error
