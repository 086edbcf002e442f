"""Learners fed for long with ever new labels and hostile rows: do they stay small and sane?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from acclimate.controller.records import FloatArray, RequestInfo
from acclimate.controller.requests import RequestRows
from acclimate.controller.slots import SlotTable
from acclimate.experiments.figures import Figure
from acclimate.predictors.acceptance_mix import AcceptanceMix
from acclimate.predictors.calibration import Calibration
from acclimate.predictors.censored_survival import CensoredSurvival
from acclimate.predictors.draft_length import DraftLength
from acclimate.predictors.drift import SlotDrift
from acclimate.predictors.graded_runs import REASONS, GradedRuns, Runs
from acclimate.predictors.latency import StepLatency
from acclimate.predictors.prequential import PrequentialChoice

_SLOTS, _DEPTH, _BATCH = 64, 5, 64
_REQUEST_TOKENS = 100  # about as many are graded of a request: one label each
_HOSTILE_SHARE = 0.05  # of the rows, of each kind
_WARM_UP_SHARE = 0.1
_KINDS = ("nan", "inf", "huge", "negative", "accepted_above_drafted")
_REASON_OF = dict(
    zip(_KINDS, (REASONS[0], REASONS[1], REASONS[3], REASONS[2], REASONS[4]), strict=True)
)
_LABELS = ("unique-#", "x" * 64 + "#", "\x00\x1b[2J#", "\u202e#", "# " * 20)


class LearnerSoak:
    """A batch of requests whose labels are new each time, served by all learners.

    Parameters
    ----------
    seed
        Of everything drawn.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.slots = SlotTable(_SLOTS)
        self.rows = RequestRows()
        self.mix = AcceptanceMix(_SLOTS, _DEPTH)
        self.mix.reserve(2 * _BATCH)
        self.drift = SlotDrift(_SLOTS)
        self.drift.reserve(2 * _BATCH)
        self.calibration = Calibration(_SLOTS)
        self.lengths = DraftLength(_SLOTS, _DEPTH)
        self.survival = CensoredSurvival(_DEPTH)
        self.choice = PrequentialChoice(2)
        self.latency = StepLatency(_BATCH, _BATCH * _DEPTH)
        self.runs = GradedRuns(_SLOTS, 2 * _BATCH, _DEPTH)
        self.injected: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.labels = 0
        self.graded_tokens = 0
        self.outside = 0
        self._live: list[int] = []
        self._left = np.zeros(0, dtype=np.int64)
        self._q = np.zeros(0)

    def step(self) -> None:
        """Serve one step: requests end and come, rows arrive, learners predict and learn."""
        self._renew()
        kept = self.runs.take(self._table())
        q = self._predict(kept)
        sums = self.mix.learn(*kept)
        self.calibration.learn(sums)
        self.drift.observe(*kept, kept.graded)
        self.lengths.learn(kept.slots, kept.graded, np.full_like(kept.graded, _DEPTH))
        graded, matched = kept.graded, kept.matched
        self.survival.learn(graded, matched, np.full((graded.size, _DEPTH), 0.5))
        right = matched > 0
        self.choice.learn(np.stack([q, np.full_like(q, 0.5)], axis=1), right)
        self._time(int(graded.sum()))
        self.graded_tokens += int(graded.sum())

    def finish(self) -> None:
        """Look once more at what is predicted, of every slot."""
        for values in (
            self.mix.predict_slots(),
            self.lengths.reach(np.arange(_SLOTS)),
            *self.mix.model.predict_interval(np.arange(_SLOTS), np.zeros(_SLOTS, dtype=np.int64)),
        ):
            self._check(values)

    def _renew(self) -> None:
        """Let requests end whose tokens are spent, and admit others with labels never seen."""
        ended = [number for number, left in zip(self._live, self._left, strict=True) if left <= 0]
        for number in ended:
            row = self.rows.remove(number)
            if row is not None:
                self.mix.close_request(row)
                self.slots.leave(int(self.rows.slot[row]))
        alive = self._left > 0
        self._live = [number for number, keep in zip(self._live, alive, strict=True) if keep]
        new = _BATCH - len(self._live)
        for _ in range(new):
            self.labels += 1
            self._admit(self.labels)
        self._left = np.concatenate([self._left[alive], np.full(new, _REQUEST_TOKENS)])
        self._q = np.concatenate([self._q[alive], self._rng.uniform(0.05, 0.95, new)])

    def _admit(self, number: int) -> None:
        label = _LABELS[number % len(_LABELS)].replace("#", str(number))
        request = RequestInfo(
            request=number,
            prompt_tokens=9,
            max_tokens=9,
            domain=label,
            tenant=label if number % 3 else "",
            trust_domain=str(number % 7),
        )
        placement = self.slots.place(request)
        row = self.rows.add(number, slot=placement.slot, sampled=False)
        self.mix.open_request(row, placement.slot)
        self.drift.open_request(row)
        if placement.opened:
            self.mix.open_slot(placement.slot, placement.pool, placement.tenant)
            self.calibration.open_slot(placement.slot)
            self.lengths.open_slot(placement.slot)
            self.drift.watch(placement.slot, np.full(_DEPTH, 0.5))
        self._live.append(number)

    def _table(self) -> FloatArray:
        """Return a step's rows, hostile ones among them."""
        rng, n = self._rng, _BATCH
        run = np.minimum(rng.geometric(1.0 - self._q) - 1, _DEPTH)
        table = np.zeros((n, 5))
        table[:, 1] = self.rows.find(np.array(self._live))
        table[:, 0] = self.rows.slot[table[:, 1].astype(np.int64)]
        table[:, 3] = np.minimum(run + 1, _DEPTH)
        table[:, 4] = run
        self._left = self._left - table[:, 3].astype(np.int64)
        drawn = rng.random(n)
        column = rng.integers(0, 5, n)
        for number, kind in enumerate(_KINDS):
            low = number * _HOSTILE_SHARE
            for d in np.flatnonzero((drawn >= low) & (drawn < low + _HOSTILE_SHARE)).tolist():
                self.injected[kind] += 1
                if kind == "accepted_above_drafted":
                    table[d, 3:] = 2, 3
                else:
                    table[d, column[d]] = {
                        "nan": np.nan, "inf": np.inf, "huge": 1e300, "negative": -1.0
                    }[kind]  # fmt: skip
        return table

    def _predict(self, kept: Runs) -> FloatArray:
        survival = self.mix.survival(kept.slots, kept.rows)
        self._check(survival)
        self._check(self.survival.survival[np.isfinite(self.survival.survival)])
        q: FloatArray = survival[:, 0]
        return q

    def _time(self, tokens: int) -> None:
        """Learn a step's duration; one in four is hostile."""
        hostile = ("nan", "inf", "negative")
        kind = int(self._rng.integers(4 * len(hostile)))
        latency_ms = 10.0 + 0.1 * tokens
        if kind < len(hostile):
            latency_ms = (np.nan, np.inf, -1.0)[kind]
            self.injected[f"latency_{hostile[kind]}"] += 1
        try:
            self.latency.learn(_BATCH, min(tokens, _BATCH * _DEPTH), latency_ms=latency_ms)
        except ValueError:
            self.refused[f"latency_{hostile[kind]}"] += 1
        if not np.isfinite(self.latency.curve(_BATCH, _DEPTH)).all():
            self.outside += 1

    def _check(self, values: FloatArray) -> None:
        self.outside += int(np.count_nonzero(~((values >= 0.0) & (values <= 1.0))))

    def counted(self) -> Counter[str]:
        """Return what was dropped, by the kinds of what was injected."""
        dropped = self.runs.dropped
        return Counter({k: dropped[r] for k, r in _REASON_OF.items()}) + self.refused


def soak_learners(
    graded_tokens: int, resident_mib: Callable[[], float], *, seed: int
) -> list[Figure]:
    """Feed so many graded tokens, and return what became of memory, predictions and rows.

    Parameters
    ----------
    graded_tokens
        Tokens; one label is met about every hundred.
    resident_mib
        Returns the memory of the process.
    seed
        Of everything drawn.
    """
    soak = LearnerSoak(seed)
    before_mib: float | None = None
    while soak.graded_tokens < graded_tokens:
        if before_mib is None and soak.graded_tokens >= _WARM_UP_SHARE * graded_tokens:
            before_mib = resident_mib()
        soak.step()
    soak.finish()
    growth_mib = resident_mib() - (before_mib or 0.0)
    counted = soak.counted()
    figures = [
        Figure("soak/learners/memory_growth_mib", growth_mib, unit="MiB", n=soak.graded_tokens),
        Figure("soak/learners/graded_tokens", soak.graded_tokens, unit="tokens"),
        Figure("soak/learners/labels", soak.labels, unit="labels"),
        Figure("soak/learners/predictions_outside", soak.outside, unit="predictions"),
    ]
    for kind in sorted(soak.injected):
        for what, counts in (("injected", soak.injected), ("counted", counted)):
            figures.append(Figure(f"soak/learners/{kind}/{what}", counts[kind], unit="rows"))
    return figures
