"""Who predicts acceptance, one function each: graded tokens in, probabilities out.

Every model predicts all tokens of an engine step before it learns any of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.lab.graded import FIRST_BLOCK, GradedTokens
from acclimate.experiments.peers.acceptance_estimator import AcceptanceEstimator
from acclimate.predictors.acceptance import AcceptanceTable
from acclimate.predictors.acceptance_codes import covariate_codes, match_hints
from acclimate.predictors.acceptance_mix import AcceptanceMix
from acclimate.predictors.prequential import PrequentialChoice
from acclimate.predictors.random_effects import RandomEffectsAcceptance

_EMA_WEIGHT, _EMA_WARM_UP_STEPS = 0.2, 10
_PRIOR_TOKENS = 8.0  # of the pooled rate, in a request's own
_N_HINTS = 8

RIVALS = ("pooled", "ema", "request_history", "vllm_estimator")


@dataclasses.dataclass(frozen=True, slots=True)
class Drafts:
    """Graded tokens by draft: one entry per draft, in the order of serving; shapes (d,).

    Parameters
    ----------
    first, graded, matched
        Index of the draft's first token, its graded tokens, and those accepted.
    steps
        Pairs of indices into drafts: each step's first, and behind its last.
    slots, rows
        Slot 1 + domain and row 1 + request.
    last
        Whether it is the request's last.
    """

    tokens: GradedTokens
    first: IntArray
    graded: IntArray
    matched: IntArray
    steps: list[tuple[int, int]]
    slots: IntArray
    rows: IntArray
    last: list[bool]
    n_slots: int
    n_rows: int
    max_depth: int

    @classmethod
    def of(cls, tokens: GradedTokens, domain: IntArray) -> Drafts:
        """Group tokens by draft; ``domain`` has shape (requests,)."""
        key = np.stack([tokens.step, tokens.request])
        first = np.flatnonzero(np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0)))
        graded = np.diff(np.append(first, len(tokens)))
        step = tokens.step[first]
        ends = np.append(np.flatnonzero(step[1:] != step[:-1]) + 1, first.size).tolist()
        request = tokens.request[first]
        final = dict(zip(request.tolist(), range(first.size), strict=True))
        return cls(
            tokens=tokens,
            first=first,
            graded=graded,
            matched=np.add.reduceat(tokens.right.astype(np.int64), first),
            steps=list(zip([0, *ends[:-1]], ends, strict=True)),
            slots=domain[request] + 1,
            rows=request + 1,
            last=[final[r] == d for d, r in enumerate(request.tolist())],
            n_slots=int(domain.max()) + 2,
            n_rows=int(tokens.request.max()) + 2,
            max_depth=int(tokens.position.max()) + 1,
        )


def pooled(drafts: Drafts) -> FloatArray:
    """The share accepted of all tokens before."""
    seen, right = _before(drafts.tokens)
    return (right + 1.0) / (seen + 2.0)


def ema(drafts: Drafts) -> FloatArray:
    """SGLang's moving average: 0.2 of each step's share of accepted tokens, after ten steps."""
    result = pooled(drafts)
    average, right = 0.0, drafts.tokens.right
    for number, span in enumerate(_token_spans(drafts)):
        if number >= _EMA_WARM_UP_STEPS:
            result[span] = average
        elif number == 0:
            average = float(right[span].mean())
        average += _EMA_WEIGHT * (float(right[span].mean()) - average)
    return result


def request_history(drafts: Drafts) -> FloatArray:
    """The share accepted of the request's own tokens, held to the pooled one by eight tokens."""
    accepted = drafts.tokens.accepted
    own: FloatArray = (accepted[:, 0] + _PRIOR_TOKENS * pooled(drafts)) / (
        accepted[:, 1] + _PRIOR_TOKENS
    )
    return own


def vllm_estimator(drafts: Drafts) -> FloatArray:
    """vLLM's pooled logistic estimator, its confidence the share accepted at this match length.

    An n-gram drafter has no confidence. The running share of its match length is as good a one as
    can be made of it.
    """
    tokens, depth = drafts.tokens, drafts.max_depth
    estimator = AcceptanceEstimator(depth)
    counts = np.ones((int(tokens.match.max()) + 1, 2)) * (1.0, 2.0)
    result = np.empty(len(tokens))
    for (begin, end), span in zip(drafts.steps, _token_spans(drafts), strict=True):
        match = tokens.match[drafts.first[begin:end]]
        confidence = np.repeat((counts[match, 0] / counts[match, 1])[:, None], depth, axis=1)
        features = estimator.features(confidence)
        predicted = estimator.predict(features)
        graded, matched = drafts.graded[begin:end], drafts.matched[begin:end]
        result[span] = _graded_of(predicted, graded)
        estimator.learn(features, predicted, graded, matched)
        estimator.end_step()
        counts[:, 0] += np.bincount(match, matched, minlength=counts.shape[0])
        counts[:, 1] += np.bincount(match, graded, minlength=counts.shape[0])
    return result


def acclimate(drafts: Drafts) -> FloatArray:
    """What the adaptive policy believes: tables and model mixed, without hints, as on n-grams."""
    mix = AcceptanceMix(drafts.n_slots, drafts.max_depth)
    for slot in range(1, drafts.n_slots):
        mix.open_slot(slot, 0)
    mix.reserve(drafts.n_rows)
    result = np.empty(len(drafts.tokens))
    opened: set[int] = set()
    for (begin, end), span in zip(drafts.steps, _token_spans(drafts), strict=True):
        slots, rows = drafts.slots[begin:end], drafts.rows[begin:end]
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            if row not in opened:
                opened.add(row)
                mix.open_request(row, slot)
        survival = mix.survival(slots, rows)
        q = survival / np.hstack([np.ones((end - begin, 1)), survival[:, :-1]])
        graded, matched = drafts.graded[begin:end], drafts.matched[begin:end]
        result[span] = _graded_of(q, graded)
        mix.learn(slots, rows, np.zeros_like(graded), graded, matched)
        for d in range(begin, end):
            if drafts.last[d]:
                mix.close_request(int(drafts.rows[d]))
    return result


def count_tables(drafts: Drafts) -> FloatArray:
    """The count tables alone, the floor."""
    table = AcceptanceTable(drafts.n_slots, drafts.max_depth)
    for slot in range(1, drafts.n_slots):
        table.open_slot(slot, 0)
    table.reserve(drafts.n_rows)
    result = np.empty(len(drafts.tokens))
    for (begin, end), span in zip(drafts.steps, _token_spans(drafts), strict=True):
        slots, rows = drafts.slots[begin:end], drafts.rows[begin:end]
        survival = table.survival(slots, rows)
        q = survival / np.hstack([np.ones((end - begin, 1)), survival[:, :-1]])
        graded, matched = drafts.graded[begin:end], drafts.matched[begin:end]
        result[span] = _graded_of(q, graded)
        table.learn(slots, rows, np.zeros_like(graded), graded, matched)
    return result


def random_effects(drafts: Drafts) -> FloatArray:
    """The random-effects logistic model."""
    tokens = drafts.tokens
    model = RandomEffectsAcceptance(drafts.n_slots, drafts.max_depth, n_hints=_N_HINTS)
    for slot in range(1, drafts.n_slots):
        model.open_slot(slot, 0)
    model.reserve(drafts.n_rows)
    unknown = np.full(drafts.first.size, np.nan)
    covariates = covariate_codes(tokens.context[drafts.first], unknown, unknown * 0 - 1)
    hints = match_hints(tokens.match[drafts.first], _N_HINTS)
    result = np.empty(len(tokens))
    opened: set[int] = set()
    for (begin, end), span in zip(drafts.steps, _token_spans(drafts), strict=True):
        slots, rows = drafts.slots[begin:end], drafts.rows[begin:end]
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            if row not in opened:
                opened.add(row)
                model.open_request(row, slot)
        graded, matched = drafts.graded[begin:end], drafts.matched[begin:end]
        told = (
            np.repeat(hints[begin:end, None], drafts.max_depth, axis=1),
            covariates[begin:end],
        )
        result[span] = _graded_of(model.predict(slots, rows, *told), graded)
        model.learn(slots, rows, np.zeros_like(graded), graded, matched, *told)
        for d in range(begin, end):
            if drafts.last[d]:
                model.close_request(int(drafts.rows[d]))
    return result


def river_pipeline(drafts: Drafts) -> FloatArray:
    """River's scaler and logistic regression."""
    from acclimate.predictors.river_acceptance import AcceptancePipeline

    model = AcceptancePipeline()
    result = np.empty(len(drafts.tokens))
    features = _features(drafts)
    right = drafts.tokens.right.tolist()
    for span in _token_spans(drafts):
        step = [next(features) for _ in range(span.stop - span.start)]
        result[span] = [model.predict_proba_one(x)[True] for x in step]
        for x, y in zip(step, right[span], strict=True):
            model.learn_one(x, y)
    return result


def chosen(drafts: Drafts, candidates: list[FloatArray]) -> FloatArray:
    """The candidate whose log loss was lowest of late."""
    choice = PrequentialChoice(len(candidates))
    table = np.stack(candidates, axis=1)
    result = np.empty(len(drafts.tokens))
    for span in _token_spans(drafts):
        result[span] = table[span, choice.best]
        choice.learn(table[span], drafts.tokens.right[span])
    return result


MODELS: dict[str, Callable[[Drafts], FloatArray]] = {
    "pooled": pooled,
    "ema": ema,
    "request_history": request_history,
    "vllm_estimator": vllm_estimator,
    "acclimate": acclimate,
    "tables": count_tables,
    "random_effects": random_effects,
    "river_pipeline": river_pipeline,
}


def _before(tokens: GradedTokens) -> tuple[IntArray, FloatArray]:
    """Return how many tokens earlier steps graded, and how many were accepted."""
    seen = np.searchsorted(tokens.step, tokens.step)
    right = np.concatenate([[0.0], np.cumsum(tokens.right)])[seen]
    return seen, right


def _token_spans(drafts: Drafts) -> list[slice]:
    """Return each step's tokens."""
    ends = np.append(drafts.first, len(drafts.tokens))
    return [slice(int(ends[begin]), int(ends[end])) for begin, end in drafts.steps]


def _graded_of(q: FloatArray, graded: IntArray) -> FloatArray:
    """Return the first ``graded`` entries of each row, one behind the other."""
    flat: FloatArray = q[np.arange(q.shape[1]) < graded[:, None]]
    return flat


def _features(drafts: Drafts) -> Iterator[dict[str, Any]]:
    """Give the features of each token as River takes them."""
    tokens = drafts.tokens
    own_rate = request_history(drafts)
    columns = {
        "position": tokens.position + 1,
        "match": tokens.match,
        "context": tokens.context,
        "age": tokens.age,
        "run": np.where(tokens.before == FIRST_BLOCK, 0, tokens.before),
        "whole": tokens.whole.astype(np.int64),
        "own_rate": own_rate,
    }
    names, values = list(columns), zip(*(c.tolist() for c in columns.values()), strict=True)
    for row in values:
        yield dict(zip(names, row, strict=True))
