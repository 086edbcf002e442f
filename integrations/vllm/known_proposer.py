"""A ``custom_class`` drafter of known acceptance: it knows the answers, and errs as often as told.

Greedy answers in float32 do not depend on what was drafted, so an answer that the engine gave once is
what it will give again. Who sends requests teaches the drafter every answer that came (`KNOWN`); from
then on each of its draft tokens is right with the chance of the request's domain, whatever the tokens
before it were. Luck is a function of seed, request, place and draft position: all policies that
verify the same draft meet the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

CLASS_PATH = "acclimate.integrations.vllm.known_proposer.KnownProposer"
CHANCES_VARIABLE = "ACCLIMATE_KNOWN"
"""Environment variable: chances by comma, which domains take in turn, in order of appearance."""


def read_chances(text: str) -> tuple[float, ...]:
    """Return the chances that `CHANCES_VARIABLE` names.

    Raises
    ------
    ValueError
        One is no number from 0 to 1, or there is none.

    Examples
    --------
    >>> read_chances("0.9,0.5")
    (0.9, 0.5)
    """
    try:
        chances = tuple(float(part) for part in text.split(","))
    except ValueError:
        chances = ()
    if not chances or not all(0.0 <= chance <= 1.0 for chance in chances):
        raise ValueError(f"chances must be numbers from 0 to 1 by comma, got {text!r}")
    return chances


class KnownAnswers:
    """Answers by prompt, in the process in which the engine drafts.

    Examples
    --------
    >>> known = KnownAnswers()
    >>> known.teach((1, 2, 3), (7, 8, 9), domain="code")
    >>> known.find(np.array([1, 2, 3, 7, 0, 0], dtype=np.int32), 4)
    (0, 3)
    >>> known.find(np.array([1, 2, 4, 7], dtype=np.int32), 4) is None
    True
    """

    def __init__(self) -> None:
        self.answers: list[npt.NDArray[np.int32]] = []
        self.domains: list[int] = []
        self._index: dict[bytes, int] = {}
        self._lengths: dict[int, int] = {}  # of prompts, and how many have it
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.answers)

    def teach(self, prompt: Sequence[int], answer: Sequence[int], *, domain: str) -> None:
        """Take note of an answer; a prompt that is known stays as it is."""
        key = np.array(prompt, dtype=np.int32).tobytes()
        if key in self._index:
            return
        self._index[key] = len(self.answers)
        self._lengths[len(prompt)] = self._lengths.get(len(prompt), 0) + 1
        self.answers.append(np.array(answer, dtype=np.int32))
        self.domains.append(self._numbers.setdefault(domain, len(self._numbers)))

    def find(self, tokens: npt.NDArray[np.int32], count: int) -> tuple[int, int] | None:
        """Return the number of the prompt that a sequence begins with, and its length, or None.

        Parameters
        ----------
        tokens
            A row of the engine's token ids.
        count
            How many of them there are.
        """
        for length in self._lengths:
            if length < count:
                number = self._index.get(tokens[:length].tobytes())
                if number is not None:
                    return number, length
        return None


KNOWN = KnownAnswers()
"""What the drafter of this process knows."""


class KnownProposer:
    """Proposes known answers, with errors.

    Parameters
    ----------
    vllm_config
        The engine's whole configuration.

    Raises
    ------
    ValueError
        `CHANCES_VARIABLE` names no chances.
    """

    def __init__(self, vllm_config: Any) -> None:
        self.depth = int(vllm_config.speculative_config.num_speculative_tokens)
        self.max_model_len = int(vllm_config.model_config.max_model_len)
        self.vocabulary = int(vllm_config.model_config.get_vocab_size())
        self.seed = int(vllm_config.model_config.seed or 0)
        self.chances = read_chances(os.environ.get(CHANCES_VARIABLE, ""))
        # Prompts are looked up anew only where a row's request has changed.
        self._rows: dict[int, tuple[bytes, int, int]] = {}

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: answers are taught while serving."""

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: npt.NDArray[Any],
        token_ids_cpu: npt.NDArray[np.int32],
        slot_mappings: Any = None,
        **kwargs: Any,
    ) -> list[list[int]]:
        """Return one draft per row, empty where no token came or the prompt is not known."""
        drafts: list[list[int]] = []
        for row, sampled in enumerate(sampled_token_ids):
            count = int(num_tokens_no_spec[row])
            known = None
            if len(sampled) and count < self.max_model_len:
                known = self._find(row, token_ids_cpu[row], count)
            drafts.append([] if known is None else self._draft(known[0], count - known[1], count))
        return drafts

    def _find(self, row: int, tokens: npt.NDArray[np.int32], count: int) -> tuple[int, int] | None:
        before = self._rows.get(row)
        if before is not None:
            prompt, number, length = before
            if length < count and tokens[:length].tobytes() == prompt:
                return number, length
        found = KNOWN.find(np.ascontiguousarray(tokens, dtype=np.int32), count)
        if found is not None:
            self._rows[row] = (tokens[: found[1]].tobytes(), *found)
        return found

    def _draft(self, number: int, place: int, count: int) -> list[int]:
        answer = KNOWN.answers[number]
        room = min(self.depth, answer.shape[0] - place, self.max_model_len - count)
        chance = self.chances[KNOWN.domains[number] % len(self.chances)]
        return [
            int(token)
            if luck(self.seed, number, place, position) < chance
            else (int(token) + 1) % self.vocabulary
            for position, token in enumerate(answer[place : place + room].tolist())
        ]


def luck(seed: int, number: int, place: int, position: int) -> float:
    """Return a number from 0 to 1 that is fixed by what it is for (SplitMix64).

    >>> 0.0 <= luck(0, 1, 2, 3) < 1.0 and luck(0, 1, 2, 3) == luck(0, 1, 2, 3)
    True
    """
    z = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + place * 0x8CB92BA72F3D8DD7
         + (position + 1) * 0xABC98388FB8FAC03) & _MASK  # fmt: skip
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> shift)) * factor & _MASK
    return ((z ^ (z >> 31)) >> 11) / 2**53


_MASK = 2**64 - 1
