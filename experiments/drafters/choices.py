"""Drafters by name: what an engine needs to draft with them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acclimate.experiments import testbed
from acclimate.integrations.vllm.backoff_proposer import CLASS_PATH, FILES_VARIABLE, name_files
from acclimate.integrations.vllm.known_proposer import CHANCES_VARIABLE, read_chances
from acclimate.integrations.vllm.known_proposer import CLASS_PATH as KNOWN_PATH
from acclimate.integrations.vllm.launch import Engine, start_engine
from acclimate.integrations.vllm.variants import EXTENSION

NGRAM, BACKOFF, EAGLE, KNOWN = "ngram", "backoff", "eagle", "known"
KNOWN_CHANCES = "0.9,0.7,0.5"
"""Of the drafter ``known``: domains take these in turn."""
GENERAL = "general"
PACKAGED = Path(__file__).parent / "counts"
"""Folder of the models that come with the package."""


@dataclasses.dataclass(frozen=True, slots=True)
class Drafter:
    """What an engine drafts with.

    Parameters
    ----------
    name
        As given by the user.
    method
        The engine's name of the method.
    model
        What it loads: a folder, a class path, or None.
    environment
        Variables that its process needs.
    swappable
        Variants that a running engine can change between.
    taught
        Whether it drafts what earlier answers to the same prompts have taught it.
    """

    name: str
    method: str
    model: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    swappable: tuple[str, ...] = ()
    taught: bool = False

    def engine_args(self) -> dict[str, Any]:
        """Return the arguments that `acclimate.integrations.vllm.launch.start_engine` needs."""
        arguments: dict[str, Any] = {"method": self.method, "draft_model": self.model}
        if self.swappable:
            arguments["worker_extension_cls"] = EXTENSION
        return arguments


def trained_folder() -> Path:
    """Return where trained drafters are kept, beside the testbed's model."""
    return testbed.home() / "drafters"


def backoff_files() -> dict[str, Path]:
    """Return the back-off models at hand by variant; those trained here go before packaged ones."""
    found: dict[str, Path] = {}
    for folder in (PACKAGED, trained_folder()):
        for path in sorted(folder.glob(f"{BACKOFF}-*.npz")):
            found[path.stem.removeprefix(f"{BACKOFF}-")] = path
    return found


def eagle_folders() -> dict[str, Path]:
    """Return the trained heads at hand by variant."""
    return {
        path.name.removeprefix(f"{EAGLE}-"): path
        for path in sorted(trained_folder().glob(f"{EAGLE}-*"))
        if (path / "config.json").is_file()
    }


def drafter_names() -> tuple[str, ...]:
    """Return the names of all drafters at hand.

    >>> drafter_names()[0]
    'ngram'
    """
    backoff = [_name(BACKOFF, variant) for variant in _general_first(backoff_files())]
    eagle = [_name(EAGLE, variant) for variant in _general_first(eagle_folders())]
    return (NGRAM, *backoff, *eagle)


def drafter(name: str) -> Drafter:
    """Return a drafter: ``ngram``, ``backoff``, ``eagle``, or one of the last two ``-VARIANT``.

    For comparisons, ``known`` and ``known-Q`` are right with a known chance: Q, or one by domain.

    Raises
    ------
    ValueError
        There is no such drafter here, or it has to be trained first.

    Examples
    --------
    >>> drafter("ngram").engine_args()
    {'method': 'ngram', 'draft_model': None}
    """
    if name == NGRAM:
        return Drafter(name, "ngram")
    kind, _, variant = name.partition("-")
    variant = variant or GENERAL
    if kind == KNOWN:
        chances = KNOWN_CHANCES if variant == GENERAL else variant
        read_chances(chances)
        return Drafter(name, "custom_class", KNOWN_PATH, {CHANCES_VARIABLE: chances}, taught=True)
    if kind == BACKOFF and variant in (files := backoff_files()):
        ordered = {variant: files[variant], **files}
        variables = {FILES_VARIABLE: name_files(ordered)}
        return Drafter(name, "custom_class", CLASS_PATH, variables, tuple(ordered))
    if kind == EAGLE and variant in (folders := eagle_folders()):
        return Drafter(name, "eagle3", str(folders[variant]))
    raise ValueError(
        f"drafter must be one of {', '.join(drafter_names())}, got {name!r} "
        "(acclimate testbed train-draft trains more; comparisons also know 'known' and 'known-Q')"
    )


def start_drafting(
    model: str | os.PathLike[str], choice: Drafter | None, **engine_args: Any
) -> Engine:
    """Start an engine that drafts by choice, or does not speculate at all without one.

    Parameters
    ----------
    engine_args
        Further arguments of `acclimate.integrations.vllm.launch.start_engine`.
    """
    if choice is None:
        return start_engine(model, method=None, **engine_args)
    os.environ.update(choice.environment)
    return start_engine(model, **choice.engine_args(), **engine_args)


def _name(kind: str, variant: str) -> str:
    return kind if variant == GENERAL else f"{kind}-{variant}"


def _general_first(variants: Mapping[str, Path]) -> list[str]:
    return sorted(variants, key=lambda variant: (variant != GENERAL, variant))
