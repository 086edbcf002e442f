"""A ``custom_class`` drafter: back-off n-grams over the target's own text and the request's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from acclimate.integrations.ngram_files import load_backoff
from acclimate.integrations.vllm.drafts import SureDraft
from acclimate.predictors.ngram import BackoffModel

CLASS_PATH = "acclimate.integrations.vllm.backoff_proposer.BackoffProposer"
FILES_VARIABLE = "ACCLIMATE_BACKOFF"
"""Environment variable: ``variant=file`` by comma; the first one drafts until told otherwise."""


def name_files(files: Mapping[str, str | os.PathLike[str]]) -> str:
    """Return the value of `FILES_VARIABLE` that names some files.

    Raises
    ------
    ValueError
        There is none, or a name or path holds a comma or an equals sign.

    Examples
    --------
    >>> name_files({"general": "a.npz", "code": "b.npz"})
    'general=a.npz,code=b.npz'
    """
    parts = {name: os.fspath(path) for name, path in files.items()}
    if not parts:
        raise ValueError("files must name a variant, got none")
    for text in (*parts, *parts.values()):
        if "," in text or "=" in text:
            raise ValueError(f"names and paths must be free of ',' and '=', got {text!r}")
    return ",".join(f"{name}={path}" for name, path in parts.items())


def read_files(text: str) -> dict[str, str]:
    """Return variants and their files, in order, as `name_files` named them.

    Raises
    ------
    ValueError
        The text names none.

    Examples
    --------
    >>> read_files("general=a.npz,code=b.npz")
    {'general': 'a.npz', 'code': 'b.npz'}
    """
    files = {}
    for part in text.split(","):
        name, equals, path = part.partition("=")
        if not (name and equals and path):
            raise ValueError(f"{FILES_VARIABLE} must be variant=file by comma, got {text!r}")
        files[name] = path
    return files


class BackoffProposer:
    """Drafts as many tokens as the engine may verify, greedily, and says how sure it is of each.

    The engine makes it and calls `load_model` and `propose`. Where several variants are loaded,
    `use` changes between them from one step to the next.

    Parameters
    ----------
    vllm_config
        The engine's whole configuration.

    Raises
    ------
    ValueError
        `FILES_VARIABLE` names no variant, or a file holds no model.
    """

    def __init__(self, vllm_config: Any) -> None:
        self.depth = int(vllm_config.speculative_config.num_speculative_tokens)
        self.max_model_len = int(vllm_config.model_config.max_model_len)
        self.variants: dict[str, BackoffModel] = {}
        for name, path in read_files(os.environ.get(FILES_VARIABLE, "")).items():
            self.variants[name], _ = load_backoff(path)
        self.variant = next(iter(self.variants))
        self._model = self.variants[self.variant]
        self._room = np.zeros(self.max_model_len + self.depth, dtype=np.int64)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: counts are loaded with the engine's configuration."""

    def use(self, variant: str) -> None:
        """Draft with another variant from the next step on.

        Raises
        ------
        ValueError
            That variant was not loaded.
        """
        if variant not in self.variants:
            raise ValueError(f"variant must be one of {', '.join(self.variants)}, got {variant!r}")
        self._model, self.variant = self.variants[variant], variant

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: npt.NDArray[Any],
        token_ids_cpu: npt.NDArray[np.int32],
        slot_mappings: Any = None,
        **kwargs: Any,
    ) -> list[list[int]]:
        """Return one draft per row of the batch, empty for rows that got no token in this step."""
        drafts: list[list[int]] = [[] for _ in sampled_token_ids]
        rows = [
            row
            for row, sampled in enumerate(sampled_token_ids)
            if len(sampled) and num_tokens_no_spec[row] < self.max_model_len
        ]
        if not rows:
            return drafts
        picked = np.array(rows, dtype=np.int64)
        ends = np.asarray(num_tokens_no_spec)[picked].astype(np.int64)
        made, confidence = self._model.draft_rows(
            token_ids_cpu, picked, ends, self._room, self.depth
        )
        lengths = np.minimum((made >= 0).sum(axis=1), self.max_model_len - ends).tolist()
        tokens = made.tolist()
        for i, row in enumerate(rows):
            length = lengths[i]
            drafts[row] = SureDraft(tokens[i][:length], confidence[i, :length])
        return drafts
