"""How drafts are graded without an engine, and the plain back-off they are compared with."""

from __future__ import annotations

import numpy as np
import pytest

from acclimate.experiments.drafters.answers import Answer
from acclimate.experiments.drafters.held_out import ALL, DEPTH, OWN, measure, plain_backoff
from acclimate.predictors.ngram import train_backoff
from acclimate.predictors.ngram_tables import build_tables

CYCLE = [1, 2, 3, 4, 5]


def _answer(domain: str, answer: list[int]) -> Answer:
    return Answer(
        key=f"{domain}-9", domain=domain, held_out=True, prompt=(1, 2), answer=tuple(answer)
    )


def test_a_perfect_drafter_gives_depth_and_bonus_and_domains_are_kept_apart() -> None:
    model = train_backoff([(np.array(CYCLE * 8), 1)] * 20, order=2)
    known = [3, 4, 5, *CYCLE * 5]
    found = measure(model, [_answer("coding", known), _answer("own-code", [40] * 3 + [41] * 3)])
    assert set(found) == {"coding", "own-code", ALL, OWN}
    # The first token comes with the prompt; 27 are left, of which every fifth is a bonus.
    assert found[ALL].tokens == len(known) - 1
    assert found[ALL].top1 == found[ALL].top3 == 1.0
    assert found[ALL].acceptance_length == pytest.approx(1 + 22 / 6)
    assert len(found[ALL].by_position) == DEPTH
    assert found[OWN].top1 < 0.8
    assert found[ALL] == found["coding"]


def test_the_plain_back_off_takes_the_longest_context_alone() -> None:
    # 1 2 is followed by 9 once; 2 alone mostly by 3.
    texts = [(np.array([7, 2, 3]), 1)] * 9 + [(np.array([1, 2, 9]), 1)]
    plain = plain_backoff(build_tables(texts, order=2))
    assert plain.draft(np.array([1, 2]), 1)[0].tolist() == [9]
    assert plain.draft(np.array([5, 2]), 1)[0].tolist() == [3]
    # The text itself goes first, from two tokens on.
    assert plain.draft(np.array([1, 2, 8, 1, 2]), 1)[0].tolist() == [8]
    assert plain.draft(np.array([2, 8, 5, 2]), 1)[0].tolist() == [3]
