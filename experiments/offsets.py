"""What the engine's n-gram drafter would propose, and get right, at every offset of an answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from acclimate.controller.records import IntArray, int_array


@dataclasses.dataclass(frozen=True, slots=True)
class Lookup:
    """The rule of an n-gram drafter.

    Parameters
    ----------
    min_ngram, max_ngram
        Tokens that must, and may, match (the engine's ``prompt_lookup_min`` and ``…_max``).
    max_depth
        Tokens per draft at most.
    max_model_len
        Tokens per sequence at most; None for no limit.

    Raises
    ------
    ValueError
        The window is empty, or a number is below 1.
    """

    min_ngram: int
    max_ngram: int
    max_depth: int
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.min_ngram <= self.max_ngram:
            raise ValueError(
                f"lookup window must be 1 <= min <= max, got {self.min_ngram} and {self.max_ngram}"
            )
        if self.max_depth < 1:
            raise ValueError(f"max_depth must be >= 1, got {self.max_depth}")
        if self.max_model_len is not None and self.max_model_len < 1:
            raise ValueError(f"max_model_len must be >= 1, got {self.max_model_len}")


@dataclasses.dataclass(frozen=True, slots=True)
class OffsetDrafts:
    """The draft behind every prefix of an answer; all arrays have shape (n output tokens,).

    Entry ``t`` concerns the draft that is made when ``t`` output tokens are committed. At 0 there
    is none: the first token comes out of the prefill.

    Parameters
    ----------
    length
        Tokens proposed.
    run
        Of these, how many the answer goes on to repeat, up to its end.
    match
        Tokens of the n-gram that was found; 0 where nothing is proposed.
    """

    length: IntArray
    run: IntArray
    match: IntArray


def ngram_drafts(
    prompt: Sequence[int] | IntArray, output: Sequence[int] | IntArray, lookup: Lookup
) -> OffsetDrafts:
    """Look up a draft behind every prefix of ``output``.

    The rule is that of vLLM 0.32: the longest n-gram of the window that ends the text and occurs
    before; of several, the earliest; what followed it there is the draft. It ends with the text,
    and where the sequence reaches the model's length.

    Parameters
    ----------
    prompt, output
        Token ids, or anything else that is equal where tokens are equal, as a trace's hashes.
    lookup
        Window and limits.

    Examples
    --------
    Behind "a b c a b" the n-gram "a b" is found, and "c a b" proposed; the answer goes on "c x":

    >>> drafts = ngram_drafts([1, 2, 3], [1, 2, 3, 9], Lookup(2, 4, max_depth=8))
    >>> drafts.length.tolist(), drafts.run.tolist(), drafts.match.tolist()
    ([0, 0, 3, 3], [0, 0, 1, 0], [0, 0, 2, 3])
    """
    n_prompt, n_output = len(prompt), len(output)
    tokens = np.concatenate([int_array(prompt), int_array(output)])
    known = n_prompt + np.arange(n_output)  # tokens before each offset
    source = np.full(n_output, -1)
    match = np.zeros(n_output, dtype=np.int64)
    for size, name, first in _ngrams(tokens, lookup.max_ngram):
        if size < lookup.min_ngram:
            continue
        begins = known - size
        valid = begins >= 0
        earliest = np.full(n_output, -1)
        earliest[valid] = first[name[begins[valid]]]
        # The text's own end is no find: at least one token must follow.
        found = valid & (earliest < begins)
        source[found] = earliest[found] + size
        match[found] = size
    if n_output:
        source[0], match[0] = -1, 0
    length = np.where(source >= 0, np.minimum(known - source, lookup.max_depth), 0)
    if lookup.max_model_len is not None:
        length = np.clip(length, 0, np.maximum(lookup.max_model_len - known, 0))
    ahead = np.arange(lookup.max_depth)
    proposed = tokens[np.minimum(source[:, None] + ahead, tokens.size - 1)]
    truth_at = known[:, None] + ahead
    truth = tokens[np.minimum(truth_at, tokens.size - 1)]
    right = (proposed == truth) & (ahead < length[:, None]) & (truth_at < tokens.size)
    run = np.logical_and.accumulate(right, axis=1).sum(axis=1)
    return OffsetDrafts(length, run, np.where(length > 0, match, 0))


def _ngrams(tokens: IntArray, max_ngram: int) -> list[tuple[int, IntArray, IntArray]]:
    """Number the distinct n-grams of each size.

    Returns a list of (size, number of the n-gram that begins at each token, where each number
    occurs first).
    """
    result = []
    _values, first, single = np.unique(tokens, return_index=True, return_inverse=True)
    name = single
    for size in range(1, min(max_ngram, tokens.size) + 1):
        if size > 1:
            # An n-gram is the one before it and a last token: a pair, as one number.
            pair = name[:-1] * single.size + single[size - 1 :]
            _values, first, name = np.unique(pair, return_index=True, return_inverse=True)
        result.append((size, name, first))
    return result
