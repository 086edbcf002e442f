"""Notices that a slot's acceptance has shifted: e-values against a frozen reference."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from acclimate.predictors import shift_kernels as kernels
from acclimate.predictors.compiled import compiled
from acclimate.predictors.numerics import FloatArray, IntArray, load_arrays, save_arrays, with_rows
from acclimate.predictors.shift_kernels import fullest, take_run, weigh_tokens

ALARM_EVERY_TOKENS = 22_000.0
"""Default of `SlotDrift`: what 20,000 tokens between false alarms at every rate take."""

SECONDS_PER_DAY = 86_400.0
SMALLEST_SHIFT = 0.35
TYPICAL_SHIFT = 1.0
REFERENCE_TOKENS = 10_000.0
_SETTLING_TOKENS = 50.0
_WIDEST_OFFSET, _OFFSET_SPACING = 4.0, 0.25
_LEAST_TOKENS = 8.0  # a slot is weighed when it has so many
_WEIGHED_PER_STEP = 2
_SURE = 0.01  # a reference nearer to 0 or 1 would make one token decide


def alarm_every_tokens(alarms_per_day: float, tokens_per_s: float) -> float:
    """Return the tokens between false alarms that make so many a day.

    The delay of a detection grows only with the logarithm of it.

    Parameters
    ----------
    alarms_per_day
        False alarms per slot and day, above 0.
    tokens_per_s
        Graded tokens per second of a slot, above 0.

    Examples
    --------
    >>> alarm_every_tokens(1.0, 5_000.0)
    432000000.0
    """
    for name, value in (("alarms_per_day", alarms_per_day), ("tokens_per_s", tokens_per_s)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value}")
    return SECONDS_PER_DAY * tokens_per_s / alarms_per_day


@dataclasses.dataclass(frozen=True, slots=True)
class Shift:
    """A detected shift of a stream.

    Parameters
    ----------
    before, after
        Acceptance before and after it, of the tokens that gave the alarm.
    tokens_since
        Estimated tokens since the shift began.
    statistic
        The evidence: log of the Shiryaev-Roberts sum.
    """

    before: float
    after: float
    tokens_since: float
    statistic: float

    def as_list(self) -> list[float]:
        """Return the fields in order, as plain data."""
        return [self.before, self.after, self.tokens_since, self.statistic]


class SlotDrift:
    """Watches the acceptance of many slots, each against its own frozen reference.

    Every slot has a mixture Shiryaev-Roberts statistic: the likelihood ratio of a shift in log-odds,
    averaged over its size and direction and summed over the moment at which it came [1]_. Sizes
    below ``smallest_shift`` are not looked for: that is the band in which a reference may be wrong.
    The statistic rises above ``alarm_every_tokens`` at most once in so many tokens on average while
    nothing changes, whatever the rate. What a slot's reference misses from its start is learned from
    all tokens before the alternatives' start, until ``reference_tokens``; from then on it is frozen.

    Tokens of one request share a rate of their own. Each is therefore weighed as its request's
    past predicts it, by the beta-binomial law whose concentration is learned: a request of a
    hundred tokens then counts as the few that it is worth.

    An alarm restarts its slot with what followed the change as the reference: one alarm per change.

    Parameters
    ----------
    n_slots
        Slots watched.
    alarm_every_tokens
        Threshold: mean tokens of a slot between false alarms; see `alarm_every_tokens`.
    smallest_shift, typical_shift
        In log-odds: what is looked for at all, and what is expected (half weight).
    reference_tokens
        Tokens, worth of independent ones, after which a reference learns no more.

    References
    ----------
    .. [1] A. Tartakovsky, I. Nikiforov, M. Basseville, "Sequential Analysis", 2014, chapter 8;
       J. Shin, A. Ramdas, A. Rinaldo, "E-detectors", 2022.

    Examples
    --------
    >>> drift = SlotDrift(n_slots=1)
    >>> drift.reserve(2)
    >>> drift.watch(0, np.array([0.8]))
    >>> rng = np.random.default_rng(0)
    >>> def serve(q):
    ...     drift.open_request(1)
    ...     tokens = [drift.update(0, int(rng.random() < q), 1, 0.8, row=1) for _ in range(20)]
    ...     return [shift for shift in tokens if shift is not None]
    >>> [shift] = [s for r in range(200) for s in serve(0.8 if r < 150 else 0.3)]
    >>> round(shift.before, 1), round(shift.after, 1), round(shift.tokens_since)
    (0.8, 0.2, 42)
    """

    def __init__(
        self,
        n_slots: int,
        *,
        alarm_every_tokens: float = ALARM_EVERY_TOKENS,
        smallest_shift: float = SMALLEST_SHIFT,
        typical_shift: float = TYPICAL_SHIFT,
        reference_tokens: float = REFERENCE_TOKENS,
    ) -> None:
        settings = {
            "alarm_every_tokens": alarm_every_tokens,
            "smallest_shift": smallest_shift,
            "typical_shift": typical_shift,
            "reference_tokens": reference_tokens,
        }
        for name, value in settings.items():
            if not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value}")
        if smallest_shift > _WIDEST_OFFSET:
            raise ValueError(
                f"smallest_shift must be at most {_WIDEST_OFFSET}, got {smallest_shift}"
            )
        self.n_slots = n_slots
        self._settings = np.array([*settings.values(), _SETTLING_TOKENS])
        offsets = alternative_offsets()
        n = offsets.shape[0]
        self._alternatives = np.stack([offsets, np.exp(offsets), np.zeros(n)])
        self.sums = np.zeros((n_slots, kernels.N_SUMS))
        self.pending = np.zeros((n_slots, kernels.N_PENDING))
        self.book = np.zeros((n_slots, 3, n))  # evidence, ages and weights per alternative
        self.reference = np.zeros((n_slots, 1))  # P(accepted) per position; 0 where none is watched
        self.histories = np.zeros((0, kernels.N_HISTORY))
        self._found = np.zeros((_WEIGHED_PER_STEP, 1 + kernels.N_ALARM))
        self.restart()

    @property
    def constants(self) -> tuple[FloatArray, FloatArray]:
        """Alternatives and settings, as `weigh_tokens` takes them."""
        return self._alternatives, self._settings

    def expect_alarms(self, every_tokens: float) -> None:
        """Set the threshold: mean tokens of a slot between false alarms, positive and finite."""
        if not 0.0 < every_tokens < math.inf:
            raise ValueError(f"every_tokens must be positive and finite, got {every_tokens}")
        self._settings[0] = every_tokens

    def watches(self, slot: int) -> bool:
        """Whether a slot has a reference."""
        return bool(self.reference[slot, 0] > 0.0)

    def reserve(self, n_requests: int) -> None:
        """Make room for request rows ``0 … n_requests - 1``."""
        self.histories = with_rows(self.histories, n_requests)

    def open_request(self, row: int) -> None:
        """Start a request row afresh."""
        self.histories[row] = 0.0

    def watch(self, slot: int, reference: FloatArray) -> None:
        """Watch a slot from now on, against acceptance ``reference`` per position, shape (depth,).

        Only the profile over positions is taken from it for good: what is off at all positions
        alike is learned.
        """
        if self.reference.shape[1] < reference.shape[0]:
            wider = np.zeros((self.n_slots, reference.shape[0]))
            wider[:, : self.reference.shape[1]] = self.reference
            self.reference = wider
        self.restart(slot)
        self.reference[slot, : reference.shape[0]] = np.clip(reference, _SURE, 1.0 - _SURE)

    def restart(self, slot: int | None = None) -> None:
        """Stop watching one slot, or all, and forget what was seen of it."""
        rows = slice(None) if slot is None else slice(slot, slot + 1)
        epochs = self.sums[rows, kernels.EPOCH] + 1.0
        for array in (self.sums, self.pending, self.book, self.reference):
            array[rows] = 0.0
        self.sums[rows, kernels.EPOCH] = epochs
        start_sums(self.sums[rows])

    def observe(
        self,
        slots: IntArray,
        rows: IntArray,
        start: IntArray,
        graded: IntArray,
        matched: IntArray,
        fresh: IntArray,
    ) -> list[tuple[int, Shift]]:
        """Take a step's graded tokens, and return the slots that shifted.

        The cost is that of adding up the tokens, and of weighing a few slots at most: those with the
        most tokens pending, each at least a handful.

        Parameters
        ----------
        slots, rows, start, graded, matched, fresh
            Shape (d,), as in `AcceptanceTable.learn`; row 0, an unknown request's, is passed over.
        """
        found = _observe(
            self.sums,
            self.pending,
            self.book,
            self.histories,
            self.reference,
            *self.constants,
            slots,
            rows,
            start,
            graded,
            matched,
            fresh,
            self._found,
        )
        return [(int(slot), Shift(*shift)) for slot, *shift in self._found[:found].tolist()]

    def update(
        self, slot: int, accepted: int, tokens: int, reference: float, row: int
    ) -> Shift | None:
        """Take ``tokens`` of one request, and weigh them at once.

        A request's past moves what is expected of it by the same amount of probability whatever
        its next token's ``reference`` is: the beta-binomial law is of one rate per request. With a
        row, the references of a request should lie within about one log-odds of each other, as
        positions of a draft do: where they scatter by 1.5, a calibrated stream alarms every several
        hundred tokens. Predictions that vary so, each for its own token, should know their request
        already, and be taken with a negative row.

        Parameters
        ----------
        slot
            A slot that is watched.
        accepted, tokens
            How many of how many were accepted, 0 ≤ accepted ≤ tokens, tokens ≥ 1.
        reference
            Acceptance that was expected of each, in (0, 1).
        row
            The request's row; negative for tokens that are of no request.
        """
        lone = row < 0
        history = _NO_HISTORY if lone else self.histories[row]
        expected = np.array([min(max(reference, _SURE), 1.0 - _SURE)])
        take_run(
            self.sums[slot], self.pending[slot], history, expected, 0, 0, tokens, accepted, lone
        )
        alarm = np.zeros(kernels.N_ALARM)
        slot_state = (self.sums[slot], self.pending[slot], self.book[slot])
        return Shift(*alarm.tolist()) if weigh_tokens(*slot_state, *self.constants, alarm) else None

    def statistic(self, slot: int) -> float:
        """Return a slot's evidence, on the scale of `Shift.statistic`; 0 while there is none."""
        return math.log(max(float(self.book[slot, 0].sum()), 1.0))

    def state(self) -> dict[str, Any]:
        """Return everything as arrays; what follows after `load` is bitwise the same."""
        return save_arrays(self, (*_STATE, "reference"))

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a `state`.

        Raises
        ------
        ValueError
            The state is of another number of slots or alternatives.
        """
        reference = np.array(state["reference"], dtype=np.float64, order="C")
        if reference.ndim != 2 or reference.shape[0] != self.n_slots or not reference.shape[1]:
            raise ValueError(f"reference must be of {self.n_slots} slots, got {reference.shape}")
        load_arrays(self, _STATE, state, growing=("histories",))
        self.reference = reference


_NO_HISTORY = np.zeros(kernels.N_HISTORY)
_STATE = ("sums", "pending", "book", "histories")


def alternative_offsets() -> FloatArray:
    """Return the alternatives, in log-odds beyond the reference."""
    steps = round(_WIDEST_OFFSET / _OFFSET_SPACING)
    return _OFFSET_SPACING * np.arange(-steps, steps + 1, dtype=np.float64)


def start_sums(sums: FloatArray) -> None:
    """Set the sums of slots that have seen nothing, shape (n, `N_SUMS`), but for their epoch."""
    sums[:, kernels.ODDS] = 1.0
    sums[:, kernels.WEIGHED_AT] = math.inf
    sums[:, kernels.HELD] = 1.0 / kernels.PRIOR_CORRELATION - 1.0


@compiled(
    "i8(f8[:,::1], f8[:,::1], f8[:,:,::1], f8[:,::1], f8[:,::1], f8[:,::1], f8[::1],"
    "i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], i8[::1], f8[:,::1])"
)
def _observe(
    sums: FloatArray,
    pending: FloatArray,
    book: FloatArray,
    histories: FloatArray,
    reference: FloatArray,
    alternatives: FloatArray,
    settings: FloatArray,
    slots: IntArray,
    rows: IntArray,
    start: IntArray,
    count: IntArray,
    matched: IntArray,
    fresh: IntArray,
    found: FloatArray,
) -> int:
    """Take a step's runs, weigh the fullest slots, and return how many alarms ``found`` holds."""
    for d in range(slots.shape[0]):
        slot, row = slots[d], rows[d]
        if row and reference[slot, 0] > 0.0:
            take_run(
                sums[slot],
                pending[slot],
                histories[row],
                reference[slot],
                start[d],
                count[d] - fresh[d],
                count[d],
                matched[d],
                False,
            )
    alarms = 0
    for slot in fullest(pending, found.shape[0], _LEAST_TOKENS):
        if weigh_tokens(
            sums[slot], pending[slot], book[slot], alternatives, settings, found[alarms, 1:]
        ):
            found[alarms, 0] = slot
            alarms += 1
    return alarms
