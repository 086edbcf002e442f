"""Scores of predicted probabilities, and the models that the acceptance bench compares."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.experiments.bench.acceptance import recorded_figures, run_bench_acceptance
from acclimate.experiments.bench.acceptance_models import MODELS, RIVALS, Drafts, chosen
from acclimate.experiments.bench.acceptance_scores import (
    Scores,
    calibration_error,
    perfect_calibration_error,
)
from acclimate.experiments.bench.censoring import censoring_figures, true_survival
from acclimate.experiments.lab.graded import graded_tokens
from acclimate.experiments.lab.recording import Answer, Recording, RecordingHeader
from acclimate.experiments.offsets import Lookup


def answers(rng, n=60, tokens=120):
    """Two domains: one repeats itself with period 5, the other by chance."""
    result = []
    for number in range(n):
        tight = number % 2 == 0
        words = rng.integers(0, 9, 5) if tight else rng.integers(0, 3, tokens)
        output = np.resize(words, tokens)
        noise = rng.random(tokens) < (0.05 if tight else 0.0)
        output = np.where(noise, rng.integers(0, 9, tokens), output)
        result.append(
            Answer(
                question=number,
                turn=0,
                domain="tight" if tight else "loose",
                prompt=(1, 2, 3),
                output=tuple(int(token) for token in output),
                finish="length",
            )
        )
    return result


@pytest.fixture(scope="module")
def drafts():
    rng = np.random.default_rng(0)
    served = answers(rng)
    tokens = graded_tokens(served, Lookup(2, 4, max_depth=4), concurrency=8, rng=rng)
    domain = np.array([int(answer.domain == "tight") for answer in served])
    return Drafts.of(tokens, domain)


def test_a_perfect_predictors_calibration_error_is_that_of_facts():
    """facts.md: .044 at 500 tokens, .022 at 2,000, .011 at 7,700."""
    rng = np.random.default_rng(1)
    for n, known in ((500, 0.044), (2_000, 0.022), (7_700, 0.011)):
        p = rng.beta(4, 1.5, n)
        errors = [calibration_error(p, rng.random(n) < p) for _ in range(200)]
        assert np.mean(errors) == pytest.approx(known, rel=0.2)
        assert perfect_calibration_error(p, rng) == pytest.approx(
            np.quantile(errors, 0.95), rel=0.15
        )


@pytest.mark.parametrize("name", MODELS)
def test_models_predict_probabilities_from_the_past_alone(drafts, name):
    """Whatever the last step turns out to be, its predictions are the same."""
    whole = MODELS[name](drafts)
    assert whole.shape == (len(drafts.tokens),)
    assert ((whole >= 0) & (whole <= 1)).all()
    begin = int(drafts.first[drafts.steps[-1][0]])
    changed = drafts.tokens.right.copy()
    drafts.tokens.right[begin:] = ~changed[begin:]
    try:
        assert MODELS[name](drafts) == pytest.approx(whole, abs=0)
    finally:
        drafts.tokens.right[:] = changed


def test_the_random_effects_model_beats_every_rival_and_differences_are_paired(drafts):
    tokens = drafts.tokens
    predicted = {name: model(drafts) for name, model in MODELS.items()}
    predicted["chosen"] = chosen(drafts, [predicted["acclimate"], predicted["random_effects"]])
    rng = np.random.default_rng(2)
    domain = drafts.slots[np.searchsorted(drafts.first, np.arange(len(tokens)), "right") - 1] - 1
    scores = Scores(tokens.right, tokens.request, domain, ["loose", "tight"], rng)
    for rival in RIVALS:
        gain = scores.gain("x", rival, predicted["random_effects"], predicted[rival])
        assert gain.low > 0.0
    same = scores.gain("x", "y", predicted["ema"], predicted["ema"])
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    by_name = {figure.name: figure for figure in scores.figures("m", predicted["chosen"])}
    assert by_name["acceptance/m/ece/tight"].n + by_name["acceptance/m/ece/loose"].n == len(tokens)
    assert "acceptance/m/ece_perfect/loose" in by_name


def test_a_recording_gives_every_figure_and_a_seed_repeats_it(tmp_path):
    header = RecordingHeader(
        model="m", engine_version="0", dtype="float32", prompts="p", max_tokens=120
    )
    Recording(tmp_path, header).add(answers(np.random.default_rng(3), n=12))
    runs = [recorded_figures(tmp_path, Lookup(2, 4, max_depth=4), 4, seed=7)[1] for _ in range(2)]
    assert runs[0] == runs[1]
    names = {figure.name for figure in runs[0]}
    for model in (*MODELS, "chosen"):
        assert {f"acceptance/{model}/log_loss", f"acceptance/{model}/brier"} <= names
        assert f"acceptance/{model}/ece/tight" in names
    assert {f"acceptance/acclimate/log_loss_below/{rival}" for rival in RIVALS} <= names


def test_censoring_is_covered_and_the_uncorrected_estimate_is_not():
    of = {f.name: f for f in censoring_figures(seeds=40, tokens=20_000, seed=5)}
    assert true_survival()[4] == of["censoring/position5/truth"].value
    for position in (4, 5):
        name = f"censoring/position{position}"
        assert of[f"{name}/coverage"].value >= 0.9
        assert of[f"{name}/width"].value <= 0.10
        assert of[f"{name}/coverage_hindsight"].value >= 0.9
        assert of[f"{name}/width_hindsight"].value <= 0.05
        assert of[f"{name}/coverage_uncorrected"].value < 0.1


def test_without_a_recording_the_censored_streams_remain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figures = run_bench_acceptance(
        recording=None,
        lookup=Lookup(2, 4, max_depth=4),
        seeds=3,
        tokens=500,
        json=tmp_path / "out.json",
    )
    assert all(figure.name.startswith("censoring/") for figure in figures)
    assert (tmp_path / "out.json").exists()
