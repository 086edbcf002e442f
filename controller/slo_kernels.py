"""The arithmetic of `acclimate.controller.slo`, compiled, and the columns of its table.

A request is a row of two tables. ``counts`` are whole numbers: the first block of columns; ``sums``
are the rest. Row 0 stands for requests that are not known and never changes.
"""

from __future__ import annotations

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.predictors.compiled import compiled

STATE, ARRIVAL_NS, FIRST_NS, LAST_NS, SEEN, TOKENS, LIMIT, KIND, LOST = range(9)
COUNTS = 9
"""Columns of ``counts``: `FREE`, `WAITING` or `DECODING`; when the request arrived (-1: not known
yet), got its first token and its latest; output tokens that the engine last told of (-1: none yet),
and those after the first; output tokens at most; class; targets that are lost, as bits."""

TOKEN_RATE, FIRST_RATE, E2E_S, IMPORTANCE, TWIN, GAINED, HELD, DEBT, RATE, SLACK_S, LEFT = range(11)
DUE_S, BEST_RATE = 11, 12
SUMS = 13
"""Columns of ``sums``: 1/TPOT and 1/TTFT in 1/s, and the E2E target, 0 for none; what a token
counts; tokens of the twin, and of the request in the same steps; the twin's tokens of steps in which
the request had no part, until it is known whether it kept its place; and of the last look: debt in
tokens, the rate in tokens per second at which it grows, the seconds that can be lost, the tokens that are expected to
come, the seconds until they are due (infinite without a target), and the best pace in 1/s."""

FREE, WAITING, DECODING = range(3)
_AHEAD_TOKENS = 20.0  # of an answer, for which the share of prompts is owed beforehand
_DELAY = 2.0  # tokens that a debtor loses in the time of one that is due, in usual steps
_WITHIN_REACH = 0.95  # of a plain step's time: paces below it need speculation

TTFT_LOST, TPOT_LOST, E2E_LOST = 1, 2, 4

_SECOND_NS = 1e9
_RETRY_PACE = 0.8  # a lost target comes back if this share of the best pace would do
_INFINITE = np.inf


@compiled("void(f8[:,::1], i8[:,::1], i8, i8, i8)")
def _begin(sums: FloatArray, counts: IntArray, row: int, now_ns: int, seen: int) -> None:
    """Start the clock of an answer at its first token."""
    if counts[row, ARRIVAL_NS] < 0:
        counts[row, ARRIVAL_NS] = now_ns
    if counts[row, STATE] == WAITING:
        waited_s = (now_ns - counts[row, ARRIVAL_NS]) / _SECOND_NS
        if waited_s * sums[row, FIRST_RATE] > 1.0:
            counts[row, LOST] |= TTFT_LOST
    counts[row, STATE] = DECODING
    counts[row, FIRST_NS] = max(now_ns, counts[row, ARRIVAL_NS])
    counts[row, LAST_NS] = counts[row, FIRST_NS]
    counts[row, SEEN] = seen
    counts[row, TOKENS] = 0


@compiled("void(f8[:,::1], i8[:,::1], i8[::1], i8[::1], i8, f8)")
def land(
    sums: FloatArray,
    counts: IntArray,
    rows: IntArray,
    committed: IntArray,
    now_ns: int,
    twin_tokens: float,
) -> None:
    """Add a step's tokens; ``twin_tokens`` is what the twin of each got in the same time."""
    for r in range(rows.shape[0]):
        row, tokens = rows[r], committed[r]
        if not 0 < row < counts.shape[0] or counts[row, STATE] == FREE:
            continue
        if tokens == 0:
            sums[row, HELD] += twin_tokens
            continue
        if counts[row, STATE] == WAITING:
            # Its first token came in a step that nobody looked at.
            _begin(sums, counts, row, now_ns, -1)
        else:
            counts[row, TOKENS] += tokens
            if counts[row, SEEN] >= 0:
                counts[row, SEEN] += tokens
            counts[row, LAST_NS] = now_ns
        if twin_tokens > 0.0:
            sums[row, TWIN] += twin_tokens
            sums[row, GAINED] += tokens


@compiled("void(f8[:,::1], i8[:,::1], i8[::1], i8[::1], i8, i8)")
def _catch_up(
    sums: FloatArray,
    counts: IntArray,
    rows: IntArray,
    committed: IntArray,
    now_ns: int,
    first_ns: int,
) -> None:
    """Bring the rows of a step's requests to what the engine says they have written."""
    for r in range(rows.shape[0]):
        row, tokens = rows[r], committed[r]
        if not 0 < row < counts.shape[0] or counts[row, STATE] == FREE:
            continue
        # It kept its place in the batch, and so would its twin have done.
        sums[row, TWIN] += sums[row, HELD]
        sums[row, HELD] = 0.0
        if counts[row, STATE] == WAITING:
            if tokens > 0:
                _begin(sums, counts, row, first_ns, tokens)
        elif counts[row, SEEN] < 0:
            counts[row, SEEN] = tokens
        elif tokens <= 1 < counts[row, SEEN]:
            # A session's next answer: nobody told how long it was waited for.
            counts[row, ARRIVAL_NS] = first_ns
            counts[row, LOST] = 0
            _begin(sums, counts, row, first_ns, tokens)
        elif tokens != counts[row, SEEN]:
            # Outcomes that were not told, or told twice, or a prompt that was computed again.
            counts[row, TOKENS] = max(counts[row, TOKENS] + tokens - counts[row, SEEN], 0)
            counts[row, SEEN] = tokens
            counts[row, LAST_NS] = max(first_ns, counts[row, LAST_NS])


@compiled("void(f8[:,::1], i8[:,::1], i8, f8, i8, b1, f8)")
def _settle(
    sums: FloatArray,
    counts: IntArray,
    row: int,
    expected_tokens: float,
    now_ns: int,
    whole: bool,
    prompt_share: float,
) -> None:
    """Work out an answer's debt, the rate at which it grows, and what time it can lose.

    Of the time that is left until the answer is due, the prompts of others will take their share:
    what they take of the next tokens' time is owed now, while drafts can still make up for it, and
    the best pace is what is left of it between them.
    """
    best_rate = (1.0 - prompt_share) * sums[row, BEST_RATE]
    elapsed_s = max(now_ns - counts[row, FIRST_NS], 0) / _SECOND_NS
    written = float(counts[row, TOKENS])
    # Tokens after the first, in all and to come.
    total = max(min(expected_tokens, float(counts[row, LIMIT])) - 1.0, written + 1.0)
    left = total - written
    lost = counts[row, LOST]
    rate = 0.0
    if sums[row, TOKEN_RATE] > 0.0:
        pace = best_rate * _RETRY_PACE if lost & TPOT_LOST > 0 else best_rate
        own = sums[row, TOKEN_RATE]
        if elapsed_s * own - written > left * (1.0 - own / pace):
            lost |= TPOT_LOST
        else:
            lost &= ~TPOT_LOST
            rate = own
    if sums[row, E2E_S] > 0.0:
        deadline_s = sums[row, E2E_S] - (now_ns - counts[row, ARRIVAL_NS]) / _SECOND_NS
        if deadline_s <= 0.0:
            lost |= E2E_LOST
        elif left <= best_rate * deadline_s:
            rate = max(rate, total / (deadline_s + elapsed_s))
    counts[row, LOST] = lost
    if whole and lost > 0:
        rate = 0.0
    sums[row, LEFT] = left
    sums[row, RATE] = rate
    sums[row, DEBT] = 0.0
    sums[row, SLACK_S] = _INFINITE
    sums[row, DUE_S] = _INFINITE
    if rate > 0.0:
        debt = elapsed_s * rate - written
        sums[row, DUE_S] = (1.0 - prompt_share) * (left - debt) / rate
        sums[row, DEBT] = max(debt + prompt_share * min(left, _AHEAD_TOKENS), 0.0)
        sums[row, SLACK_S] = max((left * (1.0 - rate / best_rate) - debt) / rate, 0.0)


@compiled(
    "Tuple((f8[::1], f8, i8, f8))"
    "(f8[:,::1], i8[:,::1], f8[:,::1], i8[::1], i8, i8[::1], i8[::1], i8, i8, f8[::1], f8, b1, f8)"
)
def look(
    sums: FloatArray,
    counts: IntArray,
    lengths: FloatArray,
    bucket: IntArray,
    last_row: int,
    rows: IntArray,
    committed: IntArray,
    now_ns: int,
    first_ns: int,
    best_rates: FloatArray,
    base_tokens: float,
    whole: bool,
    prompt_share: float,
) -> tuple[FloatArray, float, int, float]:
    """Bring all rows up to now.

    Returns
    -------
    tuple
        Weights of the step's requests; tokens per second that delay costs all requests with
        targets; how many prompts wait whose target for the first token can still be met, and the
        least time that one of them has left.
    """
    _catch_up(sums, counts, rows, committed, now_ns, first_ns)
    for r in range(rows.shape[0]):
        if 0 < rows[r] < counts.shape[0]:
            sums[rows[r], BEST_RATE] = best_rates[r] if best_rates[r] > 0.0 else _INFINITE
    price, targeted, first_slack_s = 0.0, 0, _INFINITE
    last_bucket = bucket.shape[0] - 1
    for row in range(1, last_row + 1):
        state = counts[row, STATE]
        if state == FREE:
            continue
        sums[row, HELD] = 0.0
        if state == WAITING:
            if counts[row, ARRIVAL_NS] < 0:
                counts[row, ARRIVAL_NS] = now_ns
            sums[row, SLACK_S] = _INFINITE
            rate = sums[row, FIRST_RATE]
            if rate <= 0.0:
                continue
            waited_s = max(now_ns - counts[row, ARRIVAL_NS], 0) / _SECOND_NS
            if waited_s * rate > 1.0:
                counts[row, LOST] |= TTFT_LOST
            else:
                sums[row, SLACK_S] = 1.0 / rate - waited_s
                first_slack_s = min(first_slack_s, sums[row, SLACK_S])
                price += sums[row, IMPORTANCE] * waited_s * rate * rate
                targeted += 1
        elif sums[row, TOKEN_RATE] > 0.0 or sums[row, E2E_S] > 0.0:
            so_far = min(counts[row, TOKENS] + 1, last_bucket)
            expected = lengths[counts[row, KIND], bucket[so_far]]
            _settle(sums, counts, row, expected, now_ns, whole, prompt_share)
            price += sums[row, IMPORTANCE] * _DELAY * sums[row, DEBT] * sums[row, RATE]
        else:
            sums[row, SLACK_S] = _INFINITE
            sums[row, DUE_S] = _INFINITE
    weights = np.empty(rows.shape[0])
    for r in range(rows.shape[0]):
        row = rows[r] if 0 < rows[r] < counts.shape[0] else 0
        weights[r] = sums[row, IMPORTANCE] * (base_tokens + sums[row, DEBT])
    return weights, price, targeted, first_slack_s


@compiled("f8[::1](f8[:,::1], i8[::1], f8)")
def paces_ms(sums: FloatArray, rows: IntArray, plain_ms: float) -> FloatArray:
    """Return the ms per token at which each can go on and meet its target; infinite without one.

    Whoever is a little behind a plain step's time is held to it. Who is far behind would miss the
    target without speculation too: there is nothing to protect.
    """
    result = np.empty(rows.shape[0])
    for r in range(rows.shape[0]):
        due_s = sums[rows[r], DUE_S]
        result[r] = _INFINITE
        if due_s < _INFINITE:
            pace_ms = 1e3 * due_s / sums[rows[r], LEFT]
            if pace_ms >= _WITHIN_REACH * plain_ms:
                result[r] = max(pace_ms, plain_ms)
    return result


@compiled("f8[::1](f8[:,::1], i8[::1], f8, f8)")
def twin_margins(
    sums: FloatArray, rows: IntArray, share: float, allowance_tokens: float
) -> FloatArray:
    """Return lead + B + η·twin of each row, in tokens."""
    result = np.empty(rows.shape[0])
    for r in range(rows.shape[0]):
        twin = sums[rows[r], TWIN]
        result[r] = sums[rows[r], GAINED] - twin + allowance_tokens + share * twin
    return result
