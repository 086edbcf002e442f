"""Where the bridge keeps what it knows of live requests: arrays indexed by slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from acclimate.controller.records import IntArray
from acclimate.integrations.vllm.metadata import is_sampled

NUMBER, PROMPT, LIMIT, SAMPLED, LAST_STEP, ASKED, ZEROS, COMMITTED, DECODING = range(9)
"""Rows of the table, per slot: the request's number, prompt tokens, output tokens at most, whether
it is sampled; the step in which it was scheduled last, the depth that was asked for then, whether
that step made zeros instead of drafts; output tokens so far, and whether it decodes (before that
the count of output tokens is not kept)."""


class RequestTable:
    """Maps an engine's request ids to slots, which are used again, and numbers, which are not.

    Parameters
    ----------
    max_model_len
        Prompt and output tokens of a request at most.

    Examples
    --------
    >>> from types import SimpleNamespace as Object
    >>> table = RequestTable(max_model_len=100)
    >>> request = Object(request_id="a", num_prompt_tokens=90, max_tokens=64, sampling_params=None)
    >>> slot = table.add(request)
    >>> int(table.limit[slot]), int(table.number[slot]), table.remove("a"), len(table)
    (10, 1, 1, 0)
    """

    def __init__(self, max_model_len: int) -> None:
        self.max_model_len = max_model_len
        self.slots: dict[str, int] = {}
        self.sessions: dict[str, Any] = {}  # requests whose prompt may grow, by id
        self.has_zeros = False  # whether some request got zeros instead of drafts
        self.epoch = 0  # rises when a request comes, goes or loses its place
        self._free: list[int] = []
        self._numbers = 0
        self.rows: IntArray = np.zeros((9, 64), dtype=np.int64)
        self._name_rows()

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, request: Any) -> int:
        """Give a new request a slot and a number; return the slot."""
        if not self._free:
            size = self.rows.shape[1]
            if len(self.slots) == size:
                self.rows = np.concatenate((self.rows, np.zeros_like(self.rows)), axis=1)
                self._name_rows()
                self._free = list(range(2 * size - 1, size - 1, -1))
            else:
                self._free = list(range(size - 1, -1, -1))
        slot = self._free.pop()
        self.epoch += 1
        self._numbers += 1
        self.slots[request.request_id] = slot
        self.rows[:, slot] = (self._numbers, 0, 0, 0, -1, self.max_model_len, 0, 0, 0)
        self.refresh(slot, request)
        return slot

    def refresh(self, slot: int, request: Any) -> None:
        """Read again what can change when a session goes on."""
        prompt = request.num_prompt_tokens
        self.prompt[slot] = prompt
        self.limit[slot] = min(request.max_tokens, self.max_model_len - prompt)
        self.sampled[slot] = is_sampled(request)

    def refresh_sessions(self) -> list[int]:
        """Read again all requests whose prompt may have grown; return the slots where it has."""
        grown = []
        for request_id, request in self.sessions.items():
            slot = self.slots[request_id]
            if request.num_prompt_tokens != self.prompt[slot]:
                grown.append(slot)
            self.refresh(slot, request)
            self.read_anew(slot)
        return grown

    def begin_decoding(self, slot: int, request: Any) -> bool:
        """Whether the request's prompt is computed; from then on its output is counted here."""
        if request.is_prefill_chunk or request.num_computed_tokens < request.num_prompt_tokens:
            return False
        self.committed[slot] = request.num_output_tokens
        self.decoding[slot] = 1
        return True

    def read_anew(self, slot: int | None = None) -> None:
        """Trust no longer what is known of a request's output, or of all requests'."""
        self.epoch += 1
        if slot is None:
            self.decoding[:] = 0
        else:
            self.decoding[slot] = 0

    def scheduled(self, slots: IntArray, step: int, asked: int, *, zeroed: bool) -> None:
        """Take note of requests that a step holds, and of the drafts that they get from it."""
        self.last_step[slots] = step
        self.asked[slots] = asked
        if zeroed or self.has_zeros:
            self.zeros[slots] = zeroed
            self.has_zeros = bool(self.zeros.any())

    def remove(self, request_id: str) -> int | None:
        """Free the request's slot; return its number, None if it is unknown."""
        self.sessions.pop(request_id, None)
        slot = self.slots.pop(request_id, None)
        if slot is None:
            return None
        self._free.append(slot)
        self.epoch += 1
        return int(self.number[slot])

    def _name_rows(self) -> None:
        self.number, self.prompt, self.limit, self.sampled = self.rows[:4]
        self.last_step, self.asked, self.zeros, self.committed, self.decoding = self.rows[4:]
