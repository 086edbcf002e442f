"""The recorded target repeats its answers, and shapes are measured on it without a model."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.controller.config import ControlConfig
from acclimate.controller.loop import ControlLoop
from acclimate.controller.records import Capabilities
from acclimate.controller.tree_policy import TreePolicy
from acclimate.experiments.drafters.answers import Answer
from acclimate.experiments.lab.tree_shapes import calibration_figures, commit_figure
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.table_time import TableTime
from acclimate.experiments.trees.draft import Law
from acclimate.experiments.trees.engine import TreeEngine
from acclimate.experiments.trees.recorded import RecordedTarget
from acclimate.experiments.trees.requests import TreeRequest

_VOCAB = 30


class Boaster:
    """A drafter that knows the law of the text, and says it as if it were surer."""

    def __init__(self, law: np.ndarray, power: float) -> None:
        said = law**power
        self.said = said / said.sum(axis=1, keepdims=True)

    def next_tokens(self, ids: np.ndarray, most: int) -> Law:
        chances = self.said[int(ids[-1])]
        best = np.argsort(-chances, kind="stable")[:most].astype(np.int64)
        return Law(best, chances[best])


def law(seed: int) -> np.ndarray:
    chances = np.exp(2.0 * np.random.default_rng(seed).normal(size=(_VOCAB, _VOCAB)))
    return chances / chances.sum(axis=1, keepdims=True)


def texts(chances: np.ndarray, domain: str, count: int, length: int = 60) -> list[Answer]:
    """Return answers that are drawn from a law of neighbours."""
    rng = np.random.default_rng(1)
    answers = []
    for number in range(count):
        ids = [int(rng.integers(_VOCAB))]
        while len(ids) < length:
            ids.append(int(rng.choice(_VOCAB, p=chances[ids[-1]])))
        # The prompt's number makes it unique.
        prompt = (number, len(domain), *ids[:1])
        answers.append(
            Answer(
                key=f"{domain}-{number}", domain=domain, held_out=True, prompt=prompt,
                answer=tuple(ids[1:]),
            )
        )  # fmt: skip
    return answers


def test_it_writes_its_answers_and_the_clock_moves_by_step_times():
    answers = texts(law(0), "a", 6)
    clock = SimulatedClock()
    table = TableTime([1, 1, 4, 4], [0, 8, 0, 8], [10.0, 10.8, 12.0, 15.2])
    target = RecordedTarget([(a.prompt, a.answer) for a in answers], table, clock, max_requests=4)
    engine_of = Capabilities(
        max_depth=6, depths=tuple(range(7)), max_width=4, free_drafts=True, hindsight=True
    )
    policy = TreePolicy(ControlConfig(), engine_of)
    loop = ControlLoop(policy, engine_of, ControlConfig(), clock_ns=clock, log=pytest.fail)
    engine = TreeEngine(target, loop, Boaster(law(0), 1.0), nodes=24)
    outputs = engine.run(
        [TreeRequest(prompt=a.prompt, max_tokens=len(a.answer), domain="a") for a in answers]
    )
    assert outputs == [list(a.answer) for a in answers]
    assert engine.tally.time_ns == clock.now_ns > 10_000_000 * engine.tally.steps
    assert engine.tally.committed > 1.3 * engine.tally.requests


def test_a_prompt_without_an_answer_is_refused():
    target = RecordedTarget([], TableTime([1], [0], [1.0]), SimulatedClock(), max_requests=1)
    with pytest.raises(ValueError, match=r"a prompt must have an answer, got none for \[1\]"):
        target.prefill(0, [np.array([1])])
    with pytest.raises(ValueError, match="temperature must be 0"):
        RecordedTarget(
            [((1,), (2,))], TableTime([1], [0], [1.0]), SimulatedClock(), max_requests=1
        ).prefill(0, [np.array([1])]).behind(0, 0.5)


def test_a_boasting_drafter_is_calibrated_and_trees_beat_chains():
    drafter = Boaster(law(0), 2.0)
    answers = texts(law(0), "a", 12) + texts(law(0), "bb", 12)
    figures = {f.name: f.value for f in calibration_figures(answers, drafter, seed=0)}
    for domain in ("a", "bb"):
        own = commit_figure(domain, [a for a in answers if a.domain == domain], drafter)
        figures[own.name] = own.value
    for domain in ("a", "bb"):
        raw, calibrated = (figures[f"tree/{domain}/ece_{kind}"] for kind in ("raw", "calibrated"))
        assert calibrated < 0.5 * raw
        assert 0.3 * calibrated < figures[f"tree/{domain}/ece_perfect"] < raw
        assert figures[f"tree/{domain}/expected_to_measured_length"] == pytest.approx(1.0, abs=0.05)
        assert figures[f"tree/{domain}/commit_ratio_to_best_chain"] > 1.0
