"""The ablation: what is graded, what a predictor may know, and worlds with a known answer."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest

from acclimate.experiments.lab.ablation import (
    DOMAIN,
    AblationData,
    feature_sets,
    wrong_labels,
)
from acclimate.experiments.lab.ablation_figures import ablation_figures, spread_of_acceptance
from acclimate.experiments.lab.domains import run_domains
from acclimate.experiments.lab.graded import FIRST_BLOCK, GradedTokens, graded_tokens
from acclimate.experiments.lab.lab_run import LabRun
from acclimate.experiments.lab.online_logistic import prequential_losses
from acclimate.experiments.lab.recording import Answer, Recording, RecordingHeader
from acclimate.experiments.offsets import Lookup

LOOKUP = Lookup(2, 4, max_depth=8)


def answer(prompt, output, question=1, domain="qa"):
    return Answer(
        question=question, turn=0, domain=domain, prompt=tuple(prompt), output=tuple(output),
        finish="stop",
    )  # fmt: skip


def test_the_next_draft_starts_behind_what_was_committed():
    # Behind 1 2: "3 4 5 1" is proposed and 3 right; behind 3 9: nothing; behind 4 5 of "5 4 5": 1 2.
    one = answer([1, 2, 3, 4, 5], [1, 2, 3, 9, 4, 5, 1, 2, 3])
    tokens = graded_tokens([one], LOOKUP, concurrency=1, rng=np.random.default_rng(0))
    assert tokens.position.tolist() == [0, 1, 0, 1, 2]
    assert tokens.right.tolist() == [True, False, True, True, True]
    assert tokens.match.tolist() == [2, 2, 2, 2, 2]
    assert tokens.age.tolist() == [0, 0, 2, 2, 2]
    assert tokens.before.tolist() == [FIRST_BLOCK] * 2 + [1] * 3
    assert tokens.accepted.tolist() == [[0, 0], [0, 0], [1, 2], [1, 2], [1, 2]]
    assert not tokens.whole.any()


def test_serving_order_interleaves_requests_step_by_step():
    one = answer([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9, 1, 2, 3, 4])
    tokens = graded_tokens([one, one], LOOKUP, concurrency=2, rng=np.random.default_rng(0))
    assert (np.diff(tokens.step) >= 0).all()
    first = tokens.step == tokens.step[0]
    assert set(tokens.request[first]) == {0, 1}
    alone = graded_tokens([one, one], LOOKUP, concurrency=1, rng=np.random.default_rng(0))
    assert len(alone) == len(tokens)
    assert (np.diff(alone.request) != 0).sum() == 1


def test_answers_without_a_draft_are_refused():
    one = answer([1, 2], [3, 4, 5])
    with pytest.raises(ValueError, match="at least one graded draft token"):
        graded_tokens([one], LOOKUP, concurrency=1, rng=np.random.default_rng(0))


def test_the_online_model_predicts_a_step_before_it_learns_it():
    rng = np.random.default_rng(0)
    n = 300
    index = np.stack([np.zeros(n, np.int64), rng.integers(1, 4, n)], axis=1)
    value = np.stack([np.ones(n), rng.normal(size=n)], axis=1)
    right = rng.random(n) < 0.6
    losses = prequential_losses(index, value, right, np.arange(n) // 3, prior_sd=0.7)
    design = np.zeros((n, 4))
    design[np.arange(n)[:, None], index] = value
    weight, covariance = np.zeros(4), 0.49 * np.eye(4)
    for begin in range(0, n, 3):
        rows = range(begin, begin + 3)
        for i in rows:
            x = design[i]
            moderated = weight @ x / math.sqrt(1 + math.pi * (x @ covariance @ x) / 8)
            p = 1 / (1 + math.exp(-moderated))
            assert losses[i] == pytest.approx(-math.log(p if right[i] else 1 - p), rel=1e-9)
        for i in rows:
            x = design[i]
            p = 1 / (1 + math.exp(-weight @ x))
            covariance = np.linalg.inv(np.linalg.inv(covariance) + p * (1 - p) * np.outer(x, x))
            weight = weight + covariance @ x * (right[i] - p)


def world(rng, *, spread_of_domains, spread_of_requests, requests=600, tokens_each=40):
    """Tokens whose acceptance depends on domain and request alone; one token a step."""
    domain = rng.integers(0, 2, requests)
    logit = spread_of_domains * (2 * domain - 1) + spread_of_requests * rng.normal(size=requests)
    request = np.repeat(np.arange(requests), tokens_each)
    right = rng.random(request.size) < 1 / (1 + np.exp(-logit[request]))
    age = np.tile(np.arange(tokens_each), requests)
    before = np.cumsum(right.reshape(requests, -1), axis=1) - right.reshape(requests, -1)
    accepted = np.stack([before.ravel(), age], axis=1).astype(np.float64)
    n = request.size
    tokens = GradedTokens(
        step=np.arange(n),
        request=request,
        position=np.zeros(n, np.int64),
        match=np.full(n, 2),
        age=age,
        accepted=accepted,
        recent=accepted,
        before=np.full(n, FIRST_BLOCK),
        whole=np.zeros(n, np.bool_),
        right=right,
        context=age,
    )
    return tokens, domain


def gains(tokens, domain):
    rng = np.random.default_rng(3)
    mistaken = wrong_labels(domain, 0.2, rng)
    data = AblationData(tokens, domain, mistaken, np.arange(domain.size))
    losses, wrong = (
        {
            features: data.sums(data.losses(features, wrong_labels=what))
            for features in feature_sets()
            if DOMAIN in features or not what
        }
        for what in (False, True)
    )
    return {figure.name: figure for figure in ablation_figures(data, losses, wrong, rng)}


def test_where_requests_of_a_domain_are_alike_the_label_helps_the_cold_most():
    tokens, domain = world(np.random.default_rng(1), spread_of_domains=1.2, spread_of_requests=0.0)
    of = gains(tokens, domain)
    assert of["ablation/label/alone"].low > 0.1
    cold, warm = (of[f"ablation/label/on_top/{age}"] for age in ("cold", "warm"))
    assert cold.low > warm.value > 0
    assert of["ablation/label/alone/wrong_labels"].high < of["ablation/label/alone"].value
    between, within = spread_of_acceptance(tokens, domain)
    assert between == pytest.approx(np.var([1 / (1 + math.exp(s)) for s in (-1.2, 1.2)]), rel=0.1)
    assert abs(within) < 0.003


def test_where_the_label_says_nothing_it_earns_nothing():
    tokens, domain = world(np.random.default_rng(2), spread_of_domains=0.0, spread_of_requests=1.2)
    of = gains(tokens, domain)
    assert abs(of["ablation/label/on_top"].value) < 0.005
    assert of["ablation/history/gain/warm"].low > 0.05
    assert of["ablation/match/gain"].value == pytest.approx(0.0, abs=0.01)


def test_every_set_of_features_has_its_figures():
    tokens, domain = world(
        np.random.default_rng(1), spread_of_domains=0.5, spread_of_requests=0.5, requests=60
    )
    of = gains(tokens, domain)
    for features in ("position", "domain", "domain+history+match+renewal", "match+renewal"):
        for suffix in ("", "/cold", "/warm"):
            figure = of[f"ablation/{features}/log_loss{suffix}"]
            assert figure.low <= figure.value <= figure.high
        assert (f"ablation/{features}/log_loss/wrong_labels" in of) == (DOMAIN in features)


def test_wrong_labels_are_other_labels():
    domain = np.random.default_rng(0).integers(0, 5, 4_000)
    mistaken = wrong_labels(domain, 0.2, np.random.default_rng(1))
    assert 0.17 < (mistaken != domain).mean() < 0.23
    assert mistaken.min() == 0 and mistaken.max() == 4
    single = np.zeros(10, np.int64)
    assert np.array_equal(wrong_labels(single, 0.2, np.random.default_rng(1)), single)


def test_too_few_tokens_say_nothing():
    tokens, domain = world(
        np.random.default_rng(1), spread_of_domains=1, spread_of_requests=0, requests=20
    )
    with pytest.raises(ValueError, match="graded tokens must be more than 1000, got 800"):
        AblationData(tokens, domain, domain, np.arange(20))


@pytest.fixture
def recording(tmp_path):
    rng = np.random.default_rng(0)
    header = RecordingHeader(
        model="m", engine_version="1", dtype="float32", prompts="p", max_tokens=99
    )
    answers = []
    for number in range(120):
        phrase = rng.integers(0, 50, 12)
        noise = rng.random(60) < (0.1 if number % 2 else 0.3)
        output = np.where(noise, rng.integers(0, 50, 60), np.tile(phrase, 5))
        domain = ("qa", "stem", "math")[number % 3]
        answers.append(answer(phrase.tolist(), output.tolist(), number // 2, domain))
    Recording(tmp_path / "answers", header).add(answers)
    return tmp_path / "answers"


OPTIONS = {"lookup": LOOKUP, "concurrency": 4, "merge": ["stem,math=chat"]}
RUN = LabRun(jobs=1, mlflow=False)


def test_the_command_reads_a_recording(recording, tmp_path, capsys):
    run = dataclasses.replace(RUN, out=tmp_path / "all", json=tmp_path / "figures.json")
    run_domains(recording, first_tokens=None, **OPTIONS, run=run)
    names = {
        figure["name"]
        for figure in msgspec.json.decode((tmp_path / "figures.json").read_bytes())["figures"]
    }
    assert {"ablation/first_position/chat", "ablation/first_position/qa"} <= names
    assert "ablation/domain+history/log_loss" in names
    assert "domain+history+match+renewal" in capsys.readouterr().out
    assert (tmp_path / "all" / "report.html").is_file()
    run = dataclasses.replace(RUN, out=tmp_path / "cut")
    cut = run_domains(recording, first_tokens=30, **OPTIONS, run=run)
    graded = {figure.name: figure.value for figure in cut}["ablation/graded_tokens"]
    assert 1_000 < graded < 3_600
    with pytest.raises(ValueError, match="--merge must be NAME,NAME=GROUP, got 'stem'"):
        run_domains(recording, first_tokens=None, **(OPTIONS | {"merge": ["stem"]}), run=run)


def test_a_killed_run_goes_on_to_the_same_figures(recording, tmp_path):
    options = {**OPTIONS, "first_tokens": None}
    run = dataclasses.replace(RUN, out=tmp_path / "lab")
    again = dataclasses.replace(run, resume=True)
    whole = run_domains(recording, **options, run=run)
    results = tmp_path / "lab" / "results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + 16 + 8
    results.write_bytes(b"".join([lines[0], *lines[:10:-1]]) + lines[5][:40])
    assert run_domains(recording, **options, run=again) == whole
    assert sorted(results.read_bytes().splitlines(keepends=True)) == sorted(lines)
    with pytest.raises(ValueError, match="seed 0 there and 1 here"):
        run_domains(recording, **options, run=dataclasses.replace(again, seed=1))
    file = recording / "answers.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="settings must be the same to go on"):
        run_domains(recording, **options, run=again)
