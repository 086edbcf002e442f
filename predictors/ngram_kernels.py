"""Compiled lookups of the back-off n-gram model: what followed like contexts, and how likely."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray

MOST_CANDIDATES = 48
"""Tokens that a prediction weighs at most."""
_MOST_MATCHES = 64
_TOTAL_EDGES, _SHARE_EDGES = 6, 4
N_BUCKETS = _TOTAL_EDGES * _SHARE_EDGES
"""Kinds of evidence that weights are kept apart for."""

_MIX = np.uint64(0x9E3779B97F4A7C15)
_32, _ONE = np.uint64(32), np.uint64(1)

Tables = tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.uint32],
    npt.NDArray[np.int64],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
    npt.NDArray[np.uint16],
    npt.NDArray[np.int64],
]
_TABLES = "Tuple((i8[::1], u4[::1], i8[::1], u2[::1], u2[::1], u2[::1], i8[:,::1]))"


@compiled("i8(f8, f8)")
def evidence_bucket(total: float, top: float) -> int:
    """Return the kind of evidence: how much of it, and how much of it is for the favourite.

    >>> evidence_bucket(1.0, 1.0), evidence_bucket(20.0, 5.0), N_BUCKETS
    (3, 20, 24)
    """
    size = 0
    if total >= 17:
        size = 5
    elif total >= 9:
        size = 4
    elif total >= 5:
        size = 3
    elif total >= 3:
        size = 2
    elif total >= 2:
        size = 1
    share = top / total
    dominance = 0
    if share >= 0.999:
        dominance = 3
    elif share >= 0.7:
        dominance = 2
    elif share >= 0.4:
        dominance = 1
    return size * 4 + dominance


@compiled("i8(i8[::1], i8, i8)")
def _slot_of(found: IntArray, count: int, token: int | np.int64) -> int:
    for c in range(count):
        if found[c] == token:
            return c
    return -1


@compiled(f"i8({_TABLES}, i8, u8)")
def find_context(tables: Tables, length: int, digest: np.uint64) -> int:
    """Return the index of a context by the hash of its tokens, -1 if it was never seen."""
    keys, directory = tables[1], tables[6]
    key = np.int64(digest >> _32)
    prefix = key >> 16
    for at in range(directory[length, prefix], directory[length, prefix + 1]):
        here = np.int64(keys[at])
        if here >= key:
            return at if here == key else -1
    return -1


@compiled(
    f"i8(i8[::1], i8, {_TABLES}, i8[::1], b1[::1], f8[:,::1], i8[::1], f8[:,::1], i8[::1], i8)"
)
def weigh(
    ids: IntArray,
    end: int,
    tables: Tables,
    lengths: IntArray,
    own: npt.NDArray[np.bool_],
    weights: FloatArray,
    found: IntArray,
    chances: FloatArray,
    buckets: IntArray,
    keep_all: int,
) -> int:
    """Predict the token at ``end`` from those before it; return the number of candidates.

    Levels are asked in turn: contexts of this very text (``own``) and of the trained text, long
    ones first. A level whose context is known says what followed; its weight is the probability
    that the answer is left to it once it is asked.

    Parameters
    ----------
    ids, end
        Tokens of a request; the ones from ``end`` on are not looked at.
    lengths, own
        Shape (levels,): context length of each level, and whether it looks at the text itself.
    weights
        Shape (levels, N_BUCKETS), in [0, 1].
    found
        Shape (MOST_CANDIDATES,), written: candidate tokens.
    chances
        Shape (1 + levels, MOST_CANDIDATES), written: P(candidate); behind it, where ``keep_all``,
        what every level alone says.
    buckets
        Shape (levels,), written: the kind of evidence, -1 for none.
    keep_all
        Not 0: ask every level, and keep what it says.
    """
    starts, begins = tables[0], tables[2]
    totals, tokens, counts = tables[3], tables[4], tables[5]
    n_levels = lengths.shape[0]
    count = 0
    chances[:, :] = 0.0
    longest = 0
    order = starts.shape[0] - 2
    for level in range(n_levels):
        if own[level] and lengths[level] > longest:
            longest = lengths[level]
    match_slot = np.empty(_MOST_MATCHES, dtype=np.int64)
    match_length = np.empty(_MOST_MATCHES, dtype=np.int64)
    matches = 0
    if end > 0:
        last = ids[end - 1]
        at = end - 2
        while at >= 0 and matches < _MOST_MATCHES:
            if ids[at] == last:
                length = 1
                while (
                    length < longest and at >= length and ids[at - length] == ids[end - 1 - length]
                ):
                    length += 1
                token = ids[at + 1]
                slot = _slot_of(found, count, token)
                if slot < 0 and count < MOST_CANDIDATES // 2:
                    slot = count
                    found[slot] = token
                    count += 1
                if slot >= 0:
                    match_slot[matches] = slot
                    match_length[matches] = length
                    matches += 1
            at -= 1
    contexts = np.empty(order + 1, dtype=np.int64)
    digest = np.uint64(0)
    for n in range(order + 1):
        contexts[n] = -1
        if n > end:
            continue
        if n:
            mixed = (digest ^ (np.uint64(ids[end - n]) + _ONE)) * _MIX
            digest = mixed ^ (mixed >> _32)
        contexts[n] = find_context(tables, n, digest)
    tally = np.zeros(MOST_CANDIDATES)
    left = 1.0
    for level in range(n_levels):
        length = lengths[level]
        buckets[level] = -1
        if own[level]:
            total, top = 0.0, 0.0
            for c in range(count):
                tally[c] = 0.0
            for m in range(matches):
                if match_length[m] >= length:
                    total += 1.0
                    tally[match_slot[m]] += 1.0
            if total == 0.0:
                continue
            for c in range(count):
                top = max(top, tally[c])
            bucket = evidence_bucket(total, top)
            share = left * weights[level, bucket]
            for c in range(count):
                if tally[c] > 0.0:
                    chances[0, c] += share * tally[c] / total
                    if keep_all:
                        chances[1 + level, c] = tally[c] / total
        else:
            context = contexts[length] if length <= order else -1
            if context < 0:
                continue
            total = float(totals[context])
            first, behind = begins[context], begins[context + 1]
            bucket = evidence_bucket(total, float(counts[first]))
            share = left * weights[level, bucket]
            for s in range(first, behind):
                token = np.int64(tokens[s])
                slot = _slot_of(found, count, token)
                if slot < 0:
                    if count == MOST_CANDIDATES:
                        continue
                    slot = count
                    found[slot] = token
                    count += 1
                chances[0, slot] += share * float(counts[s]) / total
                if keep_all:
                    chances[1 + level, slot] = float(counts[s]) / total
        buckets[level] = bucket
        left *= 1.0 - weights[level, bucket]
        if not keep_all and left < 0.001:
            break
    return count


@compiled(f"void(i8[::1], i8, {_TABLES}, i8[::1], b1[::1], f8[:,::1], i8[::1], f8[::1])")
def chain(
    ids: IntArray,
    end: int,
    tables: Tables,
    lengths: IntArray,
    own: npt.NDArray[np.bool_],
    weights: FloatArray,
    drafts: IntArray,
    confidence: FloatArray,
) -> None:
    """Draft greedily from ``end`` on, writing into ``ids`` behind it, ``drafts``, ``confidence``.

    ``ids`` must have room for the drafts. A position that nothing can be said about ends the draft:
    -1 from there on.
    """
    found = np.empty(MOST_CANDIDATES, dtype=np.int64)
    chances = np.empty((1, MOST_CANDIDATES))
    buckets = np.empty(lengths.shape[0], dtype=np.int64)
    drafts[:] = -1
    confidence[:] = 0.0
    for i in range(drafts.shape[0]):
        count = weigh(ids, end + i, tables, lengths, own, weights, found, chances, buckets, 0)
        if count == 0:
            return
        best = 0
        for c in range(1, count):
            if chances[0, c] > chances[0, best]:
                best = c
        ids[end + i] = found[best]
        drafts[i] = found[best]
        confidence[i] = chances[0, best]


@compiled(f"void(i8[::1], i8, {_TABLES}, i8[::1], b1[::1], f8[:,::1], i8[:,::1], f8[:,::1])")
def rank_all(
    ids: IntArray,
    first: int,
    tables: Tables,
    lengths: IntArray,
    own: npt.NDArray[np.bool_],
    weights: FloatArray,
    best: IntArray,
    confidence: FloatArray,
) -> None:
    """Write the likeliest tokens of every position from ``first`` on, -1 where there are fewer.

    ``best`` and ``confidence`` have shape (positions, candidates wanted).
    """
    found = np.empty(MOST_CANDIDATES, dtype=np.int64)
    chances = np.empty((1, MOST_CANDIDATES))
    buckets = np.empty(lengths.shape[0], dtype=np.int64)
    for row in range(best.shape[0]):
        count = weigh(ids, first + row, tables, lengths, own, weights, found, chances, buckets, 0)
        for place in range(best.shape[1]):
            best[row, place] = -1
            confidence[row, place] = 0.0
            if place >= count:
                continue
            top = 0
            for c in range(1, count):
                if chances[0, c] > chances[0, top]:
                    top = c
            best[row, place] = found[top]
            confidence[row, place] = max(chances[0, top], 0.0)
            chances[0, top] = -1.0


@compiled(f"void(i8[::1], i8, {_TABLES}, i8[::1], b1[::1], f8[:,::1], f8[:,::1], i8[:,::1])")
def level_chances(
    ids: IntArray,
    first: int,
    tables: Tables,
    lengths: IntArray,
    own: npt.NDArray[np.bool_],
    weights: FloatArray,
    said: FloatArray,
    kinds: IntArray,
) -> None:
    """Write, for every position from ``first`` on, each level's P(actual token), and its evidence.

    ``said`` and ``kinds`` have shape (positions, levels); a kind of -1 says that a level is mute.
    """
    n_levels = lengths.shape[0]
    found = np.empty(MOST_CANDIDATES, dtype=np.int64)
    chances = np.empty((1 + n_levels, MOST_CANDIDATES))
    buckets = np.empty(n_levels, dtype=np.int64)
    for row in range(said.shape[0]):
        count = weigh(ids, first + row, tables, lengths, own, weights, found, chances, buckets, 1)
        slot = _slot_of(found, count, ids[first + row])
        for level in range(n_levels):
            kinds[row, level] = buckets[level]
            said[row, level] = chances[1 + level, slot] if slot >= 0 else 0.0


@compiled(
    f"void(i4[:,::1], i8[::1], i8[::1], {_TABLES}, i8[::1], b1[::1], f8[:,::1], i8[::1],"
    " i8[:,::1], f8[:,::1])"
)
def chain_rows(
    token_ids: npt.NDArray[np.int32],
    rows: IntArray,
    ends: IntArray,
    tables: Tables,
    lengths: IntArray,
    own: npt.NDArray[np.bool_],
    weights: FloatArray,
    room: IntArray,
    drafts: IntArray,
    confidence: FloatArray,
) -> None:
    """Draft for some rows of an engine's token table; results are in the order of ``rows``.

    ``room`` is scratch space for the longest text and its drafts.
    """
    for i in range(rows.shape[0]):
        end = ends[i]
        for at in range(end):
            room[at] = token_ids[rows[i], at]
        chain(room, end, tables, lengths, own, weights, drafts[i], confidence[i])
