"""Recorded requests made ready to be served again: tokens from the record, or drawn like it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from acclimate.controller.records import FloatArray, IntArray, int_array
from acclimate.experiments.counterfactual.passes import Pass, TracedRequest
from acclimate.experiments.offsets import Lookup, ngram_drafts
from acclimate.experiments.simulation.acceptance import DrawnDrafts
from acclimate.experiments.simulation.recorded_drafts import RecordedDrafts
from acclimate.experiments.simulation.regimes import Regime, to_survival
from acclimate.experiments.workload import Workload
from acclimate.integrations.header import EngineHeader

_STATIONARY_STEPS = 1e12  # nothing learned from a trace fades
_MEASURED_STEPS = 3
NGRAM = "ngram"


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of one pass, ready to be served again.

    Parameters
    ----------
    workload
        What is sent, in order of arrival.
    seats
        Shape (n,): requests in the engine, itself included, when each was sent; None in an open
        loop, where arrival times count.
    drafts
        What the drafter proposes and the target accepts, at every offset.
    known
        Shape (n,): whether a request's drafts follow from its recorded tokens. The others are
        drawn from the acceptance that was logged (renewal approximation).
    begun_ns
        When the pass began, on its own clock.
    left_out
        Requests that did not end within the trace, or wrote nothing.
    """

    workload: Workload
    seats: IntArray | None
    drafts: TraceDrafts
    known: npt.NDArray[np.bool_]
    begun_ns: int
    left_out: int

    @property
    def record_share(self) -> float:
        """Share of output tokens whose fate under any chain policy is on record."""
        tokens = self.workload.output_tokens
        return float(tokens[self.known].sum() / tokens.sum())


class TraceDrafts:
    """Drafts of recorded requests: looked up where tokens are known, drawn where they are not.

    Parameters
    ----------
    recorded, drawn
        The two sources.
    known
        Shape (n,): which requests of the workload are looked up.
    """

    def __init__(
        self, recorded: RecordedDrafts, drawn: DrawnDrafts, known: npt.NDArray[np.bool_]
    ) -> None:
        self.max_depth = recorded.max_depth
        self._recorded, self._drawn, self._known = recorded, drawn, known
        self._all_known, self._none_known = bool(known.all()), not known.any()

    def draw(self, rows: IntArray, offsets: IntArray, now_s: float) -> tuple[IntArray, IntArray]:
        """Return length and run of each draft."""
        if self._all_known:
            return self._recorded.draw(rows, offsets, now_s)
        length, run = self._drawn.draw(rows, offsets, now_s)
        if self._none_known:
            return length, run
        known = self._known[rows]
        length[known], run[known] = self._recorded.draw(rows[known], offsets[known], now_s)
        return length, run


def lookup_of(engine: EngineHeader) -> Lookup | None:
    """Return the n-gram rule of a trace's engine; None where drafts cannot be looked up again."""
    if engine.method != NGRAM or engine.lookup_min is None or engine.lookup_max is None:
        return None
    depth = engine.capabilities.max_depth
    if depth < 1:
        return None
    return Lookup(engine.lookup_min, engine.lookup_max, depth, engine.max_model_len)


def traffic_of(
    one: Pass,
    engine: EngineHeader,
    *,
    use_hashes: bool = True,
    seed: int = 0,
) -> Traffic:
    """Return what a pass was sent, and every draft that its requests could meet.

    Parameters
    ----------
    one
        The pass.
    engine
        What the trace's header says of the engine.
    use_hashes
        False: the renewal approximation for all requests, to see what it is worth.
    seed
        Draws the approximation's drafts.

    Raises
    ------
    ValueError
        No request of the pass ended.
    """
    served = one.served
    if not served:
        raise ValueError("a pass must hold a request that ended, got none")
    lookup = lookup_of(engine) if use_hashes else None
    known = np.array([lookup is not None and request.hashes is not None for request in served])
    names = sorted({request.info.domain for request in served})
    domain_of = int_array([names.index(request.info.domain) for request in served])
    labels = tuple(name or "default" for name in names)
    arrival_s = np.maximum.accumulate([request.added_ns / 1e9 for request in served])
    tokens = int_array([request.tokens for request in served])
    work = Workload(
        arrival_s=arrival_s,
        prompt_tokens=int_array([request.info.prompt_tokens for request in served]),
        output_tokens=tokens,
        domain=labels,
        domain_of=domain_of,
        label_of=np.where(int_array([bool(names[d]) for d in domain_of]) > 0, domain_of, -1),
        max_tokens=np.maximum(
            tokens, int_array([request.info.max_tokens for request in served])
        ),
        sampled=np.array([request.info.sampled for request in served], dtype=np.bool_),
    )  # fmt: skip
    max_depth = engine.capabilities.max_depth
    drafts = TraceDrafts(
        _recorded(served, known, lookup, max_depth),
        DrawnDrafts(
            _logged_laws(names, one, max_depth),
            range(len(names)),
            domain_of,
            seed=seed,
        ),
        known,
    )
    seats = int_array([request.seats for request in served]) if one.closed else None
    return Traffic(work, seats, drafts, known, served[0].added_ns, len(one.requests) - len(served))


def _recorded(
    served: Sequence[TracedRequest],
    known: npt.NDArray[np.bool_],
    lookup: Lookup | None,
    max_depth: int,
) -> RecordedDrafts:
    """Look up every draft of the requests whose tokens are known."""
    starts, lengths, runs, at = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    for request, is_known in zip(served, known, strict=True):
        starts.append(at)
        if is_known and lookup is not None and request.hashes is not None:
            drafts = ngram_drafts(request.hashes.prompt, request.hashes.output, lookup)
            lengths.append(drafts.length)
            runs.append(drafts.run)
            at += drafts.length.size
    return RecordedDrafts(
        int_array(starts), np.concatenate(lengths), np.concatenate(runs), max_depth
    )


def _logged_laws(names: Sequence[str], one: Pass, max_depth: int) -> list[Regime]:
    """Return the acceptance of each domain as it was logged, and the pooled one where it was not."""
    number = {name: index for index, name in enumerate(names)}
    domain_of = {
        request.info.request: number[request.info.domain]
        for request in one.requests
        if request.info.domain in number
    }
    graded = np.zeros((len(names), max_depth))
    right = np.zeros((len(names), max_depth))
    at_hand = np.zeros((len(names), max_depth + 1))
    for outcome in one.outcomes:
        if outcome.exempt:
            continue
        drafts = outcome.drafts
        decoding = outcome.requests.shape[0]
        for row, request in enumerate(drafts.request.tolist()):
            domain = domain_of.get(request)
            if domain is None:
                continue
            if row < decoding:
                at_hand[domain, min(int(drafts.proposed[row]), max_depth)] += 1
            begin = int(drafts.start[row])
            graded[domain, begin : begin + int(drafts.graded[row])] += 1
            right[domain, begin : begin + int(drafts.matched[row])] += 1
    pooled = (right.sum(axis=0) + 0.5) / (graded.sum(axis=0) + 1.0)
    lengths = at_hand.sum(axis=0)
    laws = []
    for domain in range(len(names)):
        # Half a token of the pooled kind, so that nothing seen is nothing certain.
        each = (right[domain] + 0.5 * pooled) / (graded[domain] + 0.5)
        own = at_hand[domain] if at_hand[domain].any() else lengths
        laws.append(Regime.of_survival(to_survival(each), reach=_reach(own)))
    return laws


def _reach(lengths: FloatArray) -> FloatArray:
    """Return P(length >= i) for i = 1, 2, … from counts of the lengths 0, 1, …

    >>> _reach(np.array([1.0, 1.0, 2.0])).tolist()
    [0.75, 0.5]
    """
    total = lengths.sum()
    if not total:
        return np.zeros(lengths.size - 1)
    at_least: FloatArray = np.cumsum(lengths[::-1])[::-1][1:] / total
    return at_least
