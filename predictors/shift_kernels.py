"""Compiled core of the shift detectors: evidence for a change, over all alternatives and starts.

``evidence[g]`` is the Shiryaev-Roberts sum for alternative g: over all moments at which the change
may have come, the likelihood ratio of alternative g since then against no change. It needs no list
of moments, ``R ← (R + w) · ratio``, and while nothing changes R minus the tokens seen has mean 0
[1]_. A mixture over alternatives keeps that, so one threshold serves every rate.

References
----------
.. [1] M. Pollak, "Optimal detection of a change in distribution", Annals of Statistics 13 (1985).
"""

from __future__ import annotations

import math

import numpy as np

from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray

# Columns of ``sums``, one row per slot.
WEIGHT, ACCEPTED, EXPECTED, TOKENS, PAIRS_SEEN, PAIRS, REQUESTS, OFFSET, ODDS, HELD = range(10)
WEIGHED_AT, EPOCH, VARIANCE = 10, 11, 12
N_SUMS = 13
# Columns of ``pending``: what a slot is to be fed with next, summed over tokens.
N_PENDING = 6
# Columns of ``histories``, one row per request: recent tokens, those accepted, those
# that its reference expected, epoch of its slot, all tokens.
N_HISTORY = 5
# What an alarm says.
BEFORE, AFTER, SINCE, STATISTIC = range(4)
N_ALARM = 4

_PRIOR_TOKENS = 1.0
_LEAST, _MOST = 0.01, 0.99  # no reference is surer than that
_LEAST_RATE = 1e-4
PRIOR_CORRELATION = 1.0 / 11.0
_PRIOR_PAIRS = 300.0
_HALF_KNOWN_TOKENS = 10.0
_CORRELATION_MARGIN = 3.3
_KEPT_PER_TOKEN = math.exp(-1.0 / 40.0)  # of a request's past: its rate moves too
_MOST_LOG_RATIO = 300.0
_REWEIGH_AT = 0.01
_KEPT_OF_ALARM = 0.5  # what follows a change is overstated by having been noticed


@compiled("void(f8[::1], f8[::1], f8, f8, f8)")
def weigh_alternatives(
    weights: FloatArray, offsets: FloatArray, at: float, smallest: float, typical: float
) -> None:
    """Spread weight 1 over alternatives: none nearer than ``smallest``, heavy-tailed beyond."""
    total = 0.0
    for g in range(offsets.shape[0]):
        shift = abs(offsets[g] - at)
        weights[g] = 0.0
        if shift >= smallest:
            weights[g] = 1.0 / (1.0 + (shift / typical) ** 2)
            total += weights[g]
    for g in range(offsets.shape[0]):
        weights[g] /= total


@compiled("f8(f8[::1], f8[::1], f8[::1], f8[::1], f8)")
def add_evidence(
    evidence: FloatArray, ages: FloatArray, weights: FloatArray, ratios: FloatArray, n: float
) -> float:
    """Add ``n`` tokens with likelihood ratios per alternative; return the sum over alternatives.

    A change may come before each of them. Where several come at once, those that begin in between
    get the mean of the whole ratio and none, so that the mean stays what it is token by token.
    ``ages`` is the evidence times the tokens since its start.
    """
    total = 0.0
    for g in range(evidence.shape[0]):
        ratio = ratios[g]
        begun = weights[g] * (ratio + 0.5 * (n - 1.0) * (ratio + 1.0))
        ages[g] = (ages[g] + n * evidence[g]) * ratio + 0.5 * (n + 1.0) * begun
        evidence[g] = evidence[g] * ratio + begun
        total += evidence[g]
    return total


@compiled("void(f8[::1])")
def refresh(sums: FloatArray) -> None:
    """Set what follows from a slot's sums: its offset, and how requests are held to its rate.

    The offset is the log-odds by which the slot differs from its reference. Requests' rates are
    taken as Beta with the slot's as mean and a concentration, at most 10,000; tokens of one request
    correlate by 1 / (concentration + 1). The estimate errs towards more correlation, the fewer
    requests it rests on.
    """
    mean = sums[EXPECTED] / sums[WEIGHT]
    seen = (sums[ACCEPTED] + _PRIOR_TOKENS * mean) / (sums[WEIGHT] + _PRIOR_TOKENS)
    seen = min(max(seen, _LEAST), _MOST)
    offset = math.log(seen / (1.0 - seen) * (1.0 - mean) / mean)
    # A mean of different rates moves less than each of them.
    sums[OFFSET] = offset * sums[WEIGHT] * mean * (1.0 - mean) / sums[VARIANCE]
    sums[ODDS] = math.exp(sums[OFFSET])
    correlation = (sums[PAIRS_SEEN] + _PRIOR_PAIRS * PRIOR_CORRELATION) / (
        sums[PAIRS] + _PRIOR_PAIRS
    )
    correlation *= 1.0 + _CORRELATION_MARGIN / math.sqrt(1.0 + sums[REQUESTS])
    correlation = min(max(correlation, 1e-4), 0.9)
    sums[HELD] = (1.0 - correlation) / correlation


@compiled("void(f8[::1], f8[::1], f8[::1], f8[::1], i8, i8, i8, i8, b1)")
def take_run(
    sums: FloatArray,
    pending: FloatArray,
    history: FloatArray,
    reference: FloatArray,
    start: int,
    skip: int,
    count: int,
    matched: int,
    lone: bool,
) -> None:
    """Add a run of tokens to what their slot is fed with next, as their request predicts them.

    Of ``count`` tokens at positions from ``start``, the first ``matched`` were accepted; the first
    ``skip`` are passed over. ``reference`` is the acceptance expected per position, the last one
    standing for all behind it.

    With reference rate p, a request's own n tokens of which s were accepted, and concentration c,
    the next is accepted with probability (c·p + s)/(c + n), the beta-binomial law, and a rate p'
    of all requests adds c/(c + n)·(p' - p) to it: its freedom. Of the past only a recent window
    predicts, but all of it takes freedom. Lone tokens have no past.
    """
    if skip >= count:
        return
    held, factor = sums[HELD], sums[ODDS]
    n, excess, seen = 0.0, 0.0, 0.0
    if not lone:
        if history[3] != sums[EPOCH]:
            history[:] = 0.0
            history[3] = sums[EPOCH]
        n, seen = history[0], history[4]
        if n > 0.0:
            odds = factor * history[2] / (n - history[2])
            excess = history[1] - n * min(max(odds / (1.0 + odds), _LEAST), _MOST)
        else:
            sums[REQUESTS] += 1.0
    last = reference.shape[0] - 1
    for j in range(skip, count):
        expected = reference[min(start + j, last)]
        odds = factor * expected
        rate = min(max(odds / (1.0 - expected + odds), _LEAST), _MOST)
        outcome = 1.0 if j < matched else 0.0
        freedom, predicted = 1.0, rate
        if not lone:
            freedom = held / (held + seen)
            predicted = min(max(rate + excess / (held + n), 1e-3), 1.0 - 1e-3)
            known = n + _HALF_KNOWN_TOKENS
            sums[PAIRS_SEEN] += (outcome - rate) * excess / (known * rate * (1.0 - rate))
            sums[PAIRS] += n / known
            n = _KEPT_PER_TOKEN * n + 1.0
            seen += 1.0
            excess = _KEPT_PER_TOKEN * excess + outcome - rate
            history[1] = _KEPT_PER_TOKEN * history[1] + outcome
            history[2] = _KEPT_PER_TOKEN * history[2] + expected
        pending[0] += 1.0
        pending[1] += outcome
        pending[2] += expected
        pending[3] += freedom
        pending[4] += predicted
        pending[5] += rate
    history[0], history[4] = n, seen


@compiled("void(f8[::1], f8[::1], f8[::1], f8[::1], f8, f8, f8[::1])")
def _restart_after(
    sums: FloatArray,
    evidence: FloatArray,
    ages: FloatArray,
    offsets: FloatArray,
    total: float,
    rate: float,
    alarm: FloatArray,
) -> None:
    """Describe an alarm, and take what followed the change as the new reference."""
    offset, since = 0.0, 0.0
    for g in range(offsets.shape[0]):
        offset += offsets[g] * evidence[g] / total
        since += ages[g] / total
    odds = rate / (1.0 - rate) * math.exp(offset - sums[OFFSET])
    after = odds / (1.0 + odds)
    alarm[BEFORE], alarm[AFTER], alarm[SINCE], alarm[STATISTIC] = (
        rate,
        after,
        since,
        math.log(total),
    )
    mean = sums[EXPECTED] / sums[WEIGHT]
    variance = sums[VARIANCE] / sums[WEIGHT]
    information = min(sums[WEIGHT] / sums[TOKENS], 1.0)
    sums[WEIGHT] = _KEPT_OF_ALARM * max(since, 1.0) * information
    odds = mean / (1.0 - mean) * math.exp(offset * variance / (mean * (1.0 - mean)))
    sums[ACCEPTED] = sums[WEIGHT] * odds / (1.0 + odds)
    sums[EXPECTED] = sums[WEIGHT] * mean
    sums[VARIANCE] = sums[WEIGHT] * variance
    sums[TOKENS] = since
    sums[EPOCH] += 1.0
    evidence[:] = 0.0
    ages[:] = 0.0
    refresh(sums)


@compiled("b1(f8[::1], f8[::1], f8[:,::1], f8[:,::1], f8[::1], f8[::1])")
def weigh_tokens(
    sums: FloatArray,
    pending: FloatArray,
    book: FloatArray,
    alternatives: FloatArray,
    settings: FloatArray,
    alarm: FloatArray,
) -> bool:
    """Weigh a slot's pending tokens; return whether that is an alarm, described in ``alarm``.

    ``book`` holds the slot's evidence, ages and weights per alternative; ``alternatives`` are in
    log-odds beyond the reference, then in odds, and a row to work in. ``settings`` are threshold,
    smallest and typical shift, tokens of the reference, and tokens before which no change is looked
    for. After an alarm the reference is what followed the change.
    """
    evidence, ages, weights = book[0], book[1], book[2]
    offsets, factors, ratios = alternatives[0], alternatives[1], alternatives[2]
    n = pending[0]
    accepted = pending[1]
    reference, freedom, predicted, rate = (
        pending[2] / n,
        pending[3] / n,
        pending[4] / n,
        pending[5] / n,
    )
    pending[:] = 0.0
    total = 0.0
    if sums[TOKENS] >= settings[4]:
        if abs(sums[OFFSET] - sums[WEIGHED_AT]) > _REWEIGH_AT:
            weigh_alternatives(weights, offsets, sums[OFFSET], settings[1], settings[2])
            sums[WEIGHED_AT] = sums[OFFSET]
        reference_odds = reference / (1.0 - reference)
        for g in range(offsets.shape[0]):
            odds = reference_odds * factors[g]
            shifted = predicted + freedom * (odds / (1.0 + odds) - rate)
            shifted = min(max(shifted, _LEAST_RATE), 1.0 - _LEAST_RATE)
            if n == 1.0:
                ratios[g] = (
                    shifted / predicted if accepted > 0.0 else (1.0 - shifted) / (1.0 - predicted)
                )
            else:
                log_ratio = accepted * math.log(shifted / predicted)
                log_ratio += (n - accepted) * math.log((1.0 - shifted) / (1.0 - predicted))
                ratios[g] = math.exp(min(log_ratio, _MOST_LOG_RATIO))
        total = add_evidence(evidence, ages, weights, ratios, n)
    sums[TOKENS] += n
    if total > settings[0]:
        _restart_after(sums, evidence, ages, offsets, total, rate, alarm)
        return True
    if sums[WEIGHT] < settings[3]:
        # Requests differ, so a token says less of the slot the better its request is known.
        weight = freedom * freedom * rate * (1.0 - rate) / (predicted * (1.0 - predicted))
        sums[WEIGHT] += n * weight
        sums[ACCEPTED] += weight * (n * rate + (accepted - n * predicted) / freedom)
        sums[ACCEPTED] = min(max(sums[ACCEPTED], 0.0), sums[WEIGHT])
        sums[EXPECTED] += n * weight * reference
        sums[VARIANCE] += n * weight * reference * (1.0 - reference)
        refresh(sums)
    return False


@compiled("i8[::1](f8[:,::1], i8, f8)")
def fullest(pending: FloatArray, most: int, least_tokens: float) -> IntArray:
    """Return the slots with ``least_tokens`` pending, those with the most first, ``most`` at most."""
    slots = np.empty(most, dtype=np.int64)
    found = 0
    for slot in range(pending.shape[0]):
        tokens = pending[slot, 0]
        if tokens < least_tokens or (found == most and tokens <= pending[slots[most - 1], 0]):
            continue
        place = min(found, most - 1)
        while place > 0 and tokens > pending[slots[place - 1], 0]:
            slots[place] = slots[place - 1]
            place -= 1
        slots[place] = slot
        found = min(found + 1, most)
    return slots[:found]
