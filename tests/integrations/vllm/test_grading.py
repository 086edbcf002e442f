"""Hindsight grading against a plain retelling of what was drafted and what was committed."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from acclimate.controller.records import DraftOutcomes, int_array
from acclimate.integrations.vllm.grading import DraftGrader, flat_ids

DEPTH = 5


def _run(seed: int, requests: int, steps: int, grader: DraftGrader) -> tuple[list, dict, dict]:
    """Play a stream: drafts that are often right, verified in part, tokens as a target gives."""
    rnd = random.Random(seed)
    written = {r: 0 for r in range(requests)}
    stopped = False
    outcomes: list[DraftOutcomes] = []
    drafts: dict[tuple[int, int], tuple[int, list[int]]] = {}
    for step in range(2, 2 + steps):
        proposals, verified, accepted, tokens = [], [], [], []
        for r in range(requests):
            at = written[r]
            length = rnd.choice([0, 1, 3, DEPTH])
            draft = [at + i if rnd.random() < 0.8 else -7 - i for i in range(length)]
            draft = [d if d >= 0 else 10_000 + d for d in draft]
            k = rnd.randint(0, length)
            right = 0
            while right < k and draft[right] == at + right:
                right += 1
            proposals.append(draft)
            verified.append(k)
            accepted.append(right)
            tokens.append([at + i for i in range(right + 1)])
            written[r] += right + 1
            if draft:
                drafts[r, step - 1] = (at, draft)
        assert not stopped
        outcomes.append(
            grader.grade(
                step=step,
                slots=np.arange(requests),
                numbers=np.arange(requests),
                drafted_by=int_array([step - 1 if p else -1 for p in proposals]),
                proposed=int_array([len(p) for p in proposals]),
                verified=int_array(verified),
                accepted=int_array(accepted),
                tokens=flat_ids(tokens),
                proposals=flat_ids(proposals),
            )
        )
    return outcomes, drafts, written


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), requests=st.integers(1, 4), steps=st.integers(1, 12))
def test_every_draft_is_graded_to_its_first_mistake_and_every_token_once(
    seed: int, requests: int, steps: int
) -> None:
    outcomes, drafts, written = _run(seed, requests, steps, DraftGrader(DEPTH))
    graded: dict[tuple[int, int], list[int]] = {}
    fresh = {r: 0 for r in range(requests)}
    for outcome in outcomes:
        columns = zip(
            *(getattr(outcome, n).tolist() for n in
              ("request", "drafted_by", "start", "graded", "matched", "fresh")),
            strict=True,
        )  # fmt: skip
        for request, by, start, count, right, new in columns:
            fresh[request] += new
            assert 0 <= new <= count
            if count:
                labels = graded.setdefault((request, by), [])
                assert start == len(labels), "positions are graded in order, once"
                labels += [1] * right + [0] * (count - right)
    covered: dict[int, set[int]] = {r: set() for r in range(requests)}
    for key, (at, draft) in drafts.items():
        want: list[int] = []
        for i, token in enumerate(draft):
            if at + i >= written[key[0]] or (want and not want[-1]):
                break
            want.append(int(token == at + i))
        assert graded.get(key, []) == want
        covered[key[0]] |= {at + i for i in range(len(want))}
    assert fresh == {r: len(tokens) for r, tokens in covered.items()}


def test_work_is_bounded_and_what_is_left_out_is_counted() -> None:
    grader = DraftGrader(DEPTH, max_pending=6)
    n = 8
    for step in range(40):
        out = grader.grade(
            step=step,
            slots=np.arange(n),
            numbers=np.arange(n),
            drafted_by=int_array([step - 1] * n),
            proposed=int_array([DEPTH] * n),
            verified=int_array([0] * n),
            accepted=int_array([0] * n),
            tokens=flat_ids([[step]] * n),
            proposals=flat_ids([[step + i for i in range(DEPTH)]] * n),
        )
        assert out.graded[:n].tolist() == [1] * n  # the bonus token grades every draft at once
        assert grader.pending <= 6
    assert grader.dropped > 0


def test_a_request_that_ends_takes_its_drafts_along() -> None:
    grader = DraftGrader(DEPTH)
    one, none = int_array([1]), int_array([0])
    grader.grade(
        step=1, slots=none, numbers=one, drafted_by=none, proposed=int_array([5]), verified=none,
        accepted=none, tokens=flat_ids([[7]]), proposals=flat_ids([[7, 8, 9, 10, 11]]),
    )  # fmt: skip
    assert grader.pending == 1
    grader.drop(0)
    assert grader.pending == 0


def test_placeholders_are_never_graded_in_hindsight() -> None:
    grader = DraftGrader(DEPTH)
    one, none = int_array([1]), int_array([0])
    out = grader.grade(
        step=1, slots=none, numbers=one, drafted_by=none, proposed=int_array([2]), verified=none,
        accepted=none, tokens=flat_ids([[7]]), proposals=flat_ids([[-1, -1]]),
    )  # fmt: skip
    assert out.graded.tolist() == [0] and grader.pending == 0
