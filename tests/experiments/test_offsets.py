"""Drafts recomputed offline: the engine's own n-gram rule, at every offset of an answer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acclimate.experiments.offsets import Lookup, ngram_drafts

TOKENS = st.lists(st.integers(0, 3), max_size=40)
WINDOWS = st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda w: (w[0], w[0] + w[1]))


def slow_draft(tokens: list[int], lookup: Lookup) -> tuple[list[int], int]:
    """The rule in plain words: longest n-gram first, then the earliest place."""
    room = lookup.max_depth
    if lookup.max_model_len is not None:
        room = min(room, lookup.max_model_len - len(tokens))
    for size in range(lookup.max_ngram, lookup.min_ngram - 1, -1):
        for at in range(len(tokens) - size):
            if tokens[at : at + size] == tokens[len(tokens) - size :]:
                draft = tokens[at + size : at + size + max(room, 0)]
                return draft, size if draft else 0
    return [], 0


def slow_run(draft: list[int], truth: list[int]) -> int:
    run = 0
    while run < min(len(draft), len(truth)) and draft[run] == truth[run]:
        run += 1
    return run


@given(TOKENS, TOKENS, WINDOWS, st.integers(1, 9), st.none() | st.integers(1, 60))
def test_every_offset_follows_the_rule(prompt, output, window, max_depth, max_model_len):
    lookup = Lookup(*window, max_depth, max_model_len)
    drafts = ngram_drafts(prompt, output, lookup)
    assert drafts.length.shape == drafts.run.shape == drafts.match.shape == (len(output),)
    if output:
        assert (drafts.length[0], drafts.run[0], drafts.match[0]) == (0, 0, 0)
    for t in range(1, len(output)):
        draft, size = slow_draft(prompt + output[:t], lookup)
        expected = (len(draft), slow_run(draft, output[t:]), size)
        assert (drafts.length[t], drafts.run[t], drafts.match[t]) == expected


def test_it_is_the_engines_own_rule():
    proposer = pytest.importorskip("vllm.v1.spec_decode.ngram_proposer")
    find = proposer._find_longest_matched_ngram_and_propose_tokens
    rng = np.random.default_rng(5)
    for case in range(150):
        prompt = rng.integers(0, 4, rng.integers(1, 60))
        output = rng.integers(0, 4, rng.integers(1, 40))
        low = int(rng.integers(1, 4))
        high = low + int(rng.integers(0, 3))
        depth = int(rng.integers(1, 9))
        max_len = prompt.size + output.size + int(rng.integers(-10, 10))
        drafts = ngram_drafts(prompt, output, Lookup(low, high, depth, max(max_len, 1)))
        for t in range(1, output.size):
            known = np.concatenate([prompt, output[:t]]).astype(np.int32)
            draft = find(known, low, high, max(max_len, 1), depth).tolist()
            assert drafts.length[t] == len(draft), (case, t)
            assert drafts.run[t] == slow_run(draft, output[t:].tolist()), (case, t)


def test_hashes_serve_as_well_as_ids():
    rng = np.random.default_rng(0)
    prompt, output = rng.integers(0, 5, 80), rng.integers(0, 5, 50)
    hashes = rng.permutation(2**53 - 1 - np.arange(5))
    by_id = ngram_drafts(prompt, output, Lookup(2, 4, 8))
    by_hash = ngram_drafts(hashes[prompt].tolist(), hashes[output].tolist(), Lookup(2, 4, 8))
    assert np.array_equal(by_id.run, by_hash.run)
    assert np.array_equal(by_id.length, by_hash.length)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((0, 2, 8), "window must be 1 <= min <= max, got 0 and 2"),
        ((3, 2, 8), "window must be 1 <= min <= max, got 3 and 2"),
        ((2, 4, 0), "max_depth must be >= 1, got 0"),
        ((2, 4, 8, 0), "max_model_len must be >= 1, got 0"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Lookup(*bad)
