"""``acclimate bench acceptance``: how well acceptance is predicted, and estimated when censored."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from acclimate.controller.records import int_array
from acclimate.experiments.bench.acceptance_models import MODELS, RIVALS, Drafts, chosen
from acclimate.experiments.bench.acceptance_scores import Scores
from acclimate.experiments.bench.censoring import censoring_figures
from acclimate.experiments.figures import Figure, Meta, print_figures, write_figures
from acclimate.experiments.lab.graded import graded_tokens
from acclimate.experiments.lab.recording import read_recording
from acclimate.experiments.offsets import Lookup

RECORDING = Path("acclimate-out/answers")
OURS = ("acclimate", "random_effects")
_CANDIDATES = ("random_effects", "acclimate", "river_pipeline")
_CHOSEN = "chosen"


def run_bench_acceptance(
    *,
    recording: Path | None,
    lookup: Lookup,
    concurrency: int = 16,
    first_tokens: int | None = None,
    seeds: int = 300,
    tokens: int = 20_000,
    json: Path | None = None,
    seed: int = 0,
) -> list[Figure]:
    """Score the predictors on a recording, if there is one, and the estimator on censored streams.

    Parameters
    ----------
    recording
        Answers of ``acclimate lab record``, the file or its folder; None: those in the usual
        folder, and without them censoring alone.
    lookup
        The n-gram drafter whose drafts are graded against the answers.
    concurrency
        Requests in service.
    first_tokens
        Cut answers to so many tokens; None for whole answers.
    seeds, tokens
        Censored streams, and verified tokens in each.
    json
        Where the figures go.
    seed
        Draws the order of serving, resamples and streams.

    Raises
    ------
    ValueError
        The file is no recording, or gives no graded token.
    """
    figures: list[Figure] = []
    engine = "none"
    if recording is None and RECORDING.exists():
        recording = RECORDING
    if recording is not None:
        header, scored = recorded_figures(
            recording, lookup, concurrency, seed, first_tokens=first_tokens
        )
        engine = f"vllm {header}"
        figures += scored
    figures += censoring_figures(seeds=seeds, tokens=tokens, seed=seed)
    print_figures(figures, title="acceptance: predictions made before the outcome was known")
    if json is not None:
        write_figures(json, figures, Meta("bench acceptance", engine=engine, seed=seed))
    return figures


def recorded_figures(
    path: Path, lookup: Lookup, concurrency: int, seed: int, *, first_tokens: int | None = None
) -> tuple[str, list[Figure]]:
    """Return the version of the recorded engine, and the scores of every model.

    Prompts are drawn anew for intervals: a conversation with all its turns counts as one.
    ``acceptance/<model>/log_loss_below/<rival>`` is paired, and above 0 where the model is better.
    """
    header, answers = read_recording(path)
    if first_tokens is not None:
        answers = [
            msgspec.structs.replace(answer, output=answer.output[:first_tokens])
            for answer in answers
        ]
    rng = np.random.default_rng(seed)
    tokens = graded_tokens(answers, lookup, concurrency=concurrency, rng=rng)
    names = sorted({answer.domain for answer in answers})
    domain = int_array([names.index(answer.domain) for answer in answers])
    prompt = int_array([answer.question for answer in answers])
    drafts = Drafts.of(tokens, domain)
    predicted = {name: model(drafts) for name, model in MODELS.items()}
    predicted[_CHOSEN] = chosen(drafts, [predicted[name] for name in _CANDIDATES])
    scores = Scores(tokens.right, prompt[tokens.request], domain[tokens.request], names, rng)
    figures = [Figure("acceptance/graded_tokens", len(tokens), unit="tokens", n=len(answers))]
    for name, p in predicted.items():
        figures += scores.figures(name, p)
    for name in (*OURS, _CHOSEN):
        figures += [scores.gain(name, r, predicted[name], predicted[r]) for r in RIVALS]
    return header.engine_version, figures
