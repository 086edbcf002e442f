"""What one arm gave in one cell of one round, as a line of JSON: the raw material of a report."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec

from acclimate.experiments.compare.promised import TIGHT, asked
from acclimate.integrations.vllm.client import ClientStep, Sent
from acclimate.integrations.vllm.steady_load import LoadRun

ROWS_FILE = "rows.jsonl"


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request as its client saw it; times are seconds since the cell began.

    Parameters
    ----------
    prompt, domain
        Which prompt, and its category.
    due_s
        When it should have been sent; waiting counts from here.
    chunk_s, chunk_tokens
        When tokens came, and how many at a time.
    decode_s, decode_tokens
        Time of the steps without any prompt in which it decoded, and its tokens of them.
    text
        A digest of the token ids, to compare texts without keeping them.
    filler
        Whether it only kept the engine at its load; it may have been cut off.
    slo_class, ttft_target_s, tpot_target_s
        What its client asked for; empty and None for nothing.
    """

    prompt: str
    domain: str
    due_s: float
    chunk_s: list[float]
    chunk_tokens: list[int]
    decode_s: float
    decode_tokens: int
    text: str
    finish: str
    filler: bool = False
    slo_class: str = ""
    ttft_target_s: float | None = None
    tpot_target_s: float | None = None

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return sum(self.chunk_tokens)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; None without one."""
        return self.chunk_s[0] - self.due_s if self.chunk_s else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None below two tokens."""
        if self.tokens < 2:
            return None
        return (self.chunk_s[-1] - self.chunk_s[0]) / (self.tokens - 1)

    @property
    def decode_tpot_s(self) -> float | None:
        """Decode time per token without the time of prompts; None without such a step."""
        return self.decode_s / self.decode_tokens if self.decode_tokens else None


class StepColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a cell, a list per column; see `acclimate.integrations.vllm.client.ClientStep`."""

    begun_s: list[float]
    duration_s: list[float]
    decode_requests: list[int]
    prefill_tokens: list[int]
    verified: list[int]
    committed: list[int]
    first_tokens: list[int]
    depth: list[int]
    draft_depth: list[int]
    stock: list[bool]
    waiting: list[int]


class CellRow(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in one cell of one round, or in one block of it.

    Parameters
    ----------
    block
        Which part of the round's prompts, counted from 0.
    verify_lens
        How often a request verified 0, 1, … drafts in a step.
    status
        What the control loop counted in this cell: faults, late calls and the like.
    """

    arm: str
    cell: str
    round: int
    block: int
    duration_s: float
    verify_lens: list[int]
    requests: list[RequestRow]
    steps: StepColumns
    status: dict[str, int] = {}

    @property
    def tokens(self) -> int:
        """Tokens that clients got, those of fillers included."""
        return sum(request.tokens for request in self.requests)

    @property
    def counted(self) -> list[RequestRow]:
        """Requests that are no fillers."""
        return [request for request in self.requests if not request.filler]


def row_of(
    run: LoadRun,
    arm: str,
    cell: str,
    round: int,
    block: int,
    *,
    verify_lens: list[int],
    status: dict[str, int],
) -> CellRow:
    """Return a load's run as a row."""
    return CellRow(
        arm=arm,
        cell=cell,
        round=round,
        block=block,
        duration_s=run.ended_s - run.begun_s,
        verify_lens=verify_lens,
        requests=[_request(sent, run.begun_s) for sent in run.sent],
        steps=_columns(run.steps, run.begun_s),
        status=status,
    )


def retargeted(row: CellRow, cell: str, times: float) -> CellRow:
    """Return the row of an arm that no promise moves as it is in a cell of another tight target.

    Parameters
    ----------
    cell
        The other cell's name.
    times
        Its tight class's time per token over that of the row's cell.
    """
    requests = [
        msgspec.structs.replace(request, tpot_target_s=request.tpot_target_s * times)
        if request.slo_class == TIGHT and request.tpot_target_s is not None
        else request
        for request in row.requests
    ]
    return msgspec.structs.replace(row, cell=cell, requests=requests)


class RowsWriter:
    """Appends rows to ``rows.jsonl`` in a folder, each at once, so that a kill loses none.

    Parameters
    ----------
    folder
        New or empty, or without rows at least.
    header
        What was asked for; the first line.

    Raises
    ------
    ValueError
        The folder holds rows of another run.
    """

    def __init__(self, folder: str | os.PathLike[str], header: dict[str, Any]) -> None:
        self.path = Path(folder) / ROWS_FILE
        if self.path.exists():
            raise ValueError(f"out must be a folder without another run, got {folder}")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(msgspec.json.encode(header) + b"\n")

    def add(self, row: CellRow) -> None:
        """Append a row."""
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")


def read_rows(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], list[CellRow]]:
    """Return what was asked for, and all rows; an unfinished last line, as a kill leaves, is left out.

    Raises
    ------
    ValueError
        The folder holds no rows, or a line is damaged.
    """
    path = Path(folder) / ROWS_FILE
    if not path.is_file():
        raise ValueError(f"{folder} must hold {ROWS_FILE} of 'acclimate compare', got none")
    lines = path.read_bytes().split(b"\n")
    try:
        header = msgspec.json.decode(lines[0], type=dict[str, Any])
        rows = [msgspec.json.decode(line, type=CellRow) for line in lines[1:-1]]
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} must hold rows of 'acclimate compare', got {error}") from error
    return header, rows


def _request(sent: Sent, begun_s: float) -> RequestRow:
    promise = asked(sent.job)
    digest = hashlib.blake2b(repr(sent.token_ids).encode(), digest_size=8).hexdigest()
    return RequestRow(
        prompt=sent.job.key,
        domain=sent.job.truth,
        due_s=round(sent.due_s - begun_s, 6),
        chunk_s=[round(at_s - begun_s, 6) for at_s in sent.chunk_s],
        chunk_tokens=sent.chunk_tokens,
        decode_s=round(sent.decode_s, 6),
        decode_tokens=sent.decode_tokens,
        text=digest,
        finish=sent.finish_reason or "",
        filler=sent.filler,
        slo_class=promise.slo_class,
        ttft_target_s=promise.ttft_s,
        tpot_target_s=promise.tpot_s,
    )


def _columns(steps: list[ClientStep], begun_s: float) -> StepColumns:
    columns: dict[str, list[Any]] = {
        name: [getattr(step, name) for step in steps] for name in StepColumns.__struct_fields__
    }
    columns["begun_s"] = [round(value - begun_s, 6) for value in columns["begun_s"]]
    columns["duration_s"] = [round(value, 6) for value in columns["duration_s"]]
    return StepColumns(**columns)
