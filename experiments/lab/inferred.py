"""Domains inferred from prompts, for the question whether an inferred label is worth having."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.lab.graded import GradedTokens
from acclimate.experiments.lab.recording import Answer

_FEATURES = 4_096
_READ_TOKENS = 256  # of a prompt, so that the cost of a request is bounded
_LEAST_CHANCE = 0.5  # below, the label is unknown
_HASH = 0x9E3779B1  # of Fibonacci hashing; token ids that follow each other are no neighbours


def inferred_domains(
    answers: Sequence[Answer], domain: IntArray, tokens: GradedTokens, *, seed: int
) -> IntArray:
    """Return a domain for each answer, guessed from its prompt by a classifier that learns online.

    Requests are guessed in the order of serving, each by what the declared domains of all requests
    before it taught: the best case, in which only the request in question declares none.

    Parameters
    ----------
    answers
        What was recorded.
    domain
        Shape (answers,): the true domains, numbered from 0.
    tokens
        Graded tokens of ``answers``, in the order of serving.
    seed
        Of the classifier.

    Returns
    -------
    IntArray
        Shape (answers,): a domain, or one above the last for unknown.
    """
    from sklearn.linear_model import SGDClassifier

    classes = np.arange(int(domain.max()) + 1)
    unknown = classes.size
    guessed = np.full(domain.size, unknown)
    classifier = SGDClassifier(loss="log_loss", alpha=1e-4, random_state=seed)
    taught: set[int] = set()
    for request in dict.fromkeys(tokens.request.tolist()):
        x = prompt_features(answers[request].prompt)[None]
        if len(taught) > 1:
            chance = classifier.predict_proba(x)[0]
            if chance.max() >= _LEAST_CHANCE:
                guessed[request] = int(chance.argmax())
        classifier.partial_fit(x, domain[[request]], classes=classes)
        taught.add(int(domain[request]))
    return guessed


def prompt_features(prompt: Sequence[int]) -> FloatArray:
    """Return counts of hashed token ids, of length 1, shape (4096,).

    >>> float(np.linalg.norm(prompt_features([5, 5, 7])).round(6))
    1.0
    """
    ids = np.asarray(prompt[:_READ_TOKENS], dtype=np.uint64)
    places = ((ids * _HASH) & 0xFFFFFFFF) >> np.uint64(20)
    counts = np.bincount(places.astype(np.int64), minlength=_FEATURES).astype(np.float64)
    length = float(np.linalg.norm(counts))
    features: FloatArray = counts / length if length else counts
    return features
