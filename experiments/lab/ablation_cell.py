"""One set of features of the ablation, run from nothing but its recording."""

from __future__ import annotations

import copy
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from acclimate.controller.records import IntArray, int_array
from acclimate.experiments.lab.ablation import (
    DOMAIN,
    WRONG_SHARE,
    AblationData,
    Features,
    feature_name,
    feature_sets,
    wrong_labels,
)
from acclimate.experiments.lab.graded import graded_tokens
from acclimate.experiments.lab.inferred import inferred_domains
from acclimate.experiments.lab.recording import RecordingHeader, read_recording, recording_file
from acclimate.experiments.offsets import Lookup


class AblationSample(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which tokens are graded, and what their labels are.

    Parameters
    ----------
    recording
        A recording of ``acclimate lab record``, or its folder.
    lookup
        The n-gram drafter.
    concurrency
        Requests in service.
    first_tokens
        Cut answers to so many tokens; None for whole answers.
    merge
        ``NAME,NAME=GROUP``: domains to be taken as one.
    additive
        Let the label mean the same at every age of a request, and age nothing.
    inferred
        Labels are guessed from prompts, see `inferred_domains`, instead of declared.
    seed
        Draws the order of serving and wrong labels.
    """

    recording: str
    lookup: Lookup
    concurrency: int
    first_tokens: int | None = None
    merge: tuple[str, ...] = ()
    additive: bool = False
    inferred: bool = False
    seed: int = 0

    def settings(self) -> dict[str, object]:
        """Return what decides a cell's result: of the recording its content, not its place."""
        digest = hashlib.sha256(recording_file(self.recording).read_bytes()).hexdigest()
        return {
            "recording": digest[:16],
            "window": [self.lookup.min_ngram, self.lookup.max_ngram],
            "depth": self.lookup.max_depth,
            "concurrency": self.concurrency,
            "first_tokens": self.first_tokens,
            "merge": list(self.merge),
            "additive": self.additive,
            "inferred": self.inferred,
            "seed": self.seed,
        }


class AblationCell(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor knows, and whether a share of its labels is wrong."""

    sample: AblationSample
    features: Features
    wrong_labels: bool = False

    @property
    def key(self) -> str:
        """Name of the cell."""
        return feature_name(self.features) + ("/wrong_labels" if self.wrong_labels else "")


class AblationRow(msgspec.Struct, frozen=True, kw_only=True):
    """Log loss in nats, summed over each conversation's tokens, by age."""

    key: str
    features: Features
    wrong_labels: bool
    sums: dict[str, list[float]]


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """What a sample holds: data, names of domains and the declared ones, where it was recorded, and
    luck that is left."""

    data: AblationData
    names: list[str]
    declared: IntArray
    header: RecordingHeader
    rng: np.random.Generator


def ablation_cells(sample: AblationSample) -> list[AblationCell]:
    """Return every set of features, small ones first; with a label once more with wrong labels."""
    return [
        AblationCell(sample=sample, features=features, wrong_labels=wrong)
        for features in feature_sets()
        for wrong in ((False, True) if DOMAIN in features else (False,))
    ]


def run_ablation_cell(cell: AblationCell) -> AblationRow:
    """Predict every token of the sample with what the cell's features know."""
    data = _material(cell.sample).data
    sums = data.sums(data.losses(cell.features, wrong_labels=cell.wrong_labels))
    return AblationRow(
        key=cell.key,
        features=cell.features,
        wrong_labels=cell.wrong_labels,
        sums={age: values.tolist() for age, values in sums.items()},
    )


def material_of(sample: AblationSample) -> Material:
    """Serve a recording's answers, and label them.

    Raises
    ------
    ValueError
        The file is no recording, or too little was graded.
    """
    material = _material(sample)
    # Whoever draws on must not change what is kept.
    return dataclasses.replace(material, rng=copy.deepcopy(material.rng))


@functools.lru_cache(maxsize=1)
def _material(sample: AblationSample) -> Material:
    header, answers = read_recording(sample.recording)
    if sample.first_tokens is not None:
        answers = [
            msgspec.structs.replace(answer, output=answer.output[: sample.first_tokens])
            for answer in answers
        ]
    labels = groups((answer.domain for answer in answers), [_merge(text) for text in sample.merge])
    rng = np.random.default_rng(sample.seed)
    tokens = graded_tokens(answers, sample.lookup, concurrency=sample.concurrency, rng=rng)
    names = sorted(set(labels))
    declared = domain = int_array([names.index(label) for label in labels])
    if sample.inferred:
        domain = inferred_domains(answers, domain, tokens, seed=sample.seed)
        names.append("unknown")
    data = AblationData(
        tokens,
        domain,
        wrong_labels(domain, WRONG_SHARE, rng),
        int_array([answer.question for answer in answers]),
        by_age=not sample.additive,
    )
    return Material(data, names, declared, header, rng)


def groups(names: Iterable[str], merged: Sequence[tuple[frozenset[str], str]]) -> list[str]:
    """Return each name, or the group that it belongs to.

    >>> groups(["stem", "qa"], [(frozenset({"stem", "humanities"}), "chat")])
    ['chat', 'qa']
    """
    group = {name: into for members, into in merged for name in members}
    return [group.get(name, name) for name in names]


def _merge(text: str) -> tuple[frozenset[str], str]:
    names, equals, group = text.partition("=")
    members = frozenset(name.strip() for name in names.split(",") if name.strip())
    if not (equals and group.strip() and members):
        raise ValueError(f"--merge must be NAME,NAME=GROUP, got {text!r}")
    return members, group.strip()
