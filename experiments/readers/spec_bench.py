"""Prompts in Spec-Bench's format: JSON lines of question_id, category and turns."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from typing import Literal

from acclimate.experiments.readers.detect import Kind, require
from acclimate.experiments.readers.lines import json_records
from acclimate.experiments.readers.read import BadRecord, Read

BEYOND_LIMIT = "beyond the limit of its category"


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation: its domain, and what the user says turn by turn."""

    question_id: str
    domain: str
    turns: tuple[str, ...]


def read_spec_bench(
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    turns: Literal["first", "all"] = "first",
) -> Read[tuple[Prompt, ...]]:
    """Read prompts, in the file's order.

    Parameters
    ----------
    limit
        Prompts per category, the first ones; None: all.
    turns
        ``first`` keeps the first turn of a conversation, ``all`` keeps them all.

    Raises
    ------
    ValueError
        The file is of another kind, or ``limit`` is below 1.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be >= 1, got {limit}")
    path = require(path, Kind.SPEC_BENCH)
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    prompts: list[Prompt] = []
    ids: set[str] = set()
    for number, record in enumerate(json_records(path, dropped)):
        try:
            prompt = _prompt(record, number, turns)
            if limit is not None and taken[prompt.domain] >= limit:
                raise BadRecord(BEYOND_LIMIT)
        except BadRecord as bad:
            dropped[bad.reason] += 1
            continue
        if prompt.question_id in ids:
            notes["same question_id as another"] += 1
        ids.add(prompt.question_id)
        taken[prompt.domain] += 1
        prompts.append(prompt)
    return Read(tuple(prompts), len(prompts), dropped, notes)


def _prompt(record: object, number: int, turns: str) -> Prompt:
    if not isinstance(record, dict):
        raise BadRecord("not an object")
    domain = record.get("category")
    if not isinstance(domain, str) or not domain.strip():
        raise BadRecord("category missing")
    said = record.get("turns")
    said = [said] if isinstance(said, str) else said
    if not isinstance(said, list) or not said:
        raise BadRecord("turns missing")
    if not all(isinstance(turn, str) for turn in said):
        raise BadRecord("a turn is no text")
    if not said[0].strip():
        raise BadRecord("first turn empty")
    kept = said[:1] if turns == "first" else said
    return Prompt(str(record.get("question_id", number)), domain.strip(), tuple(kept))
