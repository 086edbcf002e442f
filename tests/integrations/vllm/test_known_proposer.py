"""The drafter of known acceptance: silent before it is taught, then right as often as told."""

from __future__ import annotations

from types import SimpleNamespace as Object

import numpy as np
import pytest

from acclimate.integrations.vllm import known_proposer
from acclimate.integrations.vllm.known_proposer import (
    CHANCES_VARIABLE,
    KnownAnswers,
    KnownProposer,
    read_chances,
)

DEPTH, LONGEST, TOKENS = 4, 4_000, 3_000
PROMPTS = {"code": tuple(range(100, 130)), "prose": tuple(range(200, 241)), "qa": (300, 301)}


@pytest.fixture
def proposer(monkeypatch: pytest.MonkeyPatch) -> KnownProposer:
    monkeypatch.setenv(CHANCES_VARIABLE, "0.9,0.5")
    monkeypatch.setattr(known_proposer, "KNOWN", KnownAnswers())
    model = Object(max_model_len=LONGEST, seed=3, get_vocab_size=lambda: 50_000)
    return KnownProposer(
        Object(speculative_config=Object(num_speculative_tokens=DEPTH), model_config=model)
    )


def _answer(domain: str) -> tuple[int, ...]:
    return tuple((7 * i + len(domain)) % 50_000 for i in range(TOKENS))


def _drafts(proposer: KnownProposer, *rows: tuple[str, int]) -> list[list[int]]:
    """Draft behind the given number of answer tokens of a domain's request, a row each."""
    tokens = np.zeros((len(rows), LONGEST), dtype=np.int32)
    counts = []
    for row, (domain, place) in enumerate(rows):
        held = (*PROMPTS[domain], *_answer(domain)[:place])
        tokens[row, : len(held)] = held
        counts.append(len(held))
    return proposer.propose([[1]] * len(rows), np.array(counts), tokens)


def _teach(*domains: str) -> None:
    for domain in domains:
        known_proposer.KNOWN.teach(PROMPTS[domain], _answer(domain), domain=domain)


def test_it_is_right_as_often_as_its_domain_is_told(proposer: KnownProposer) -> None:
    assert _drafts(proposer, ("code", 5)) == [[]]
    _teach("code", "prose", "qa")
    for domain, chance in (("code", 0.9), ("prose", 0.5), ("qa", 0.9)):
        right = np.zeros(DEPTH)
        for place in range(1, TOKENS - DEPTH):
            (draft,) = _drafts(proposer, (domain, place))
            truth = _answer(domain)[place : place + DEPTH]
            right += np.array(draft) == np.array(truth)
        shares = right / (TOKENS - DEPTH - 1)
        assert shares == pytest.approx(np.full(DEPTH, chance), abs=0.03)


def test_luck_is_that_of_the_place_whatever_was_drafted_before(proposer: KnownProposer) -> None:
    _teach("code", "prose")
    alone = [_drafts(proposer, ("code", place))[0] for place in (9, 3, 6)]
    # Other rows, in other places, that change their requests.
    mixed = _drafts(proposer, ("prose", 4), ("code", 3), ("qa", 2), ("code", 9))
    assert (mixed[1], mixed[3], mixed[2]) == (alone[1], alone[0], [])
    assert _drafts(proposer, ("code", 6)) == [alone[2]]


def test_drafts_end_with_the_answer_and_rows_without_a_token_get_none(
    proposer: KnownProposer,
) -> None:
    _teach("code")
    assert len(_drafts(proposer, ("code", TOKENS - 2))[0]) == 2
    assert _drafts(proposer, ("code", TOKENS)) == [[]]
    assert proposer.propose([[]], np.array([40]), np.zeros((1, 99), dtype=np.int32)) == [[]]


@pytest.mark.parametrize("text", ["", "x", "0.5,", "1.5", "nan"])
def test_chances_must_be_shares(text: str) -> None:
    with pytest.raises(ValueError, match="chances must be numbers"):
        read_chances(text)
