"""Trains the two variants of a head and keeps them where engines find them."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from acclimate.experiments.drafters.answers import Answer
from acclimate.experiments.drafters.choices import EAGLE, GENERAL
from acclimate.experiments.drafters.held_out import HeldOut
from acclimate.experiments.drafters.text import Told
from acclimate.experiments.drafters.train import TrainOptions

_DRAFT_VOCAB = 8_192
_HELD_OUT = 200  # answers that a head is graded on: enough for two places


def train_eagles(
    folder: Path,
    model: Path,
    train: Sequence[Answer],
    held: Sequence[Answer],
    options: TrainOptions,
    told: Told,
) -> dict[tuple[str, str], dict[str, HeldOut]]:
    """Train a general head, and from it one that goes on with a single domain.

    Parameters
    ----------
    folder
        Gets a folder per variant.
    model
        Folder of the target.
    train, held
        Answers to train on, in random order, and to grade by.

    Returns
    -------
    dict
        What became of the held-out answers, by name and variant.
    """
    import torch

    from acclimate.experiments.drafters.eagle_training import (
        grade_head,
        new_head,
        read_features,
        train_head,
    )

    torch.manual_seed(options.seed)
    lessons, target = read_features(model, train[: options.lessons], told, "reading its states")
    graded_by, _ = read_features(model, held[:: max(len(held) // _HELD_OUT, 1)], told,
                                 "reading held-out states")  # fmt: skip
    general = new_head(model, target, lessons, _DRAFT_VOCAB)
    del target
    own = [lesson for lesson in lessons if lesson.domain == options.domain]
    found = {}
    head = general
    for variant, texts in ((GENERAL, lessons), (options.domain, own)):
        if variant != GENERAL:
            head = copy.deepcopy(general)
        train_head(head, texts, epochs=options.epochs, seed=options.seed, told=told)
        target_folder = folder / f"{EAGLE}-{variant}"
        shutil.rmtree(target_folder, ignore_errors=True)
        target_folder.mkdir(parents=True)
        head.save(target_folder, json.loads((model / "config.json").read_text(encoding="utf-8")))
        found[EAGLE, variant] = grade_head(head, graded_by)
    return found
