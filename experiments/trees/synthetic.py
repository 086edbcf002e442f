"""A drafter and a target whose truth is known: what a drafter's probability is worth is a setting.

Both are functions of the text, by a hash of its last tokens and length, and so every run meets the same luck
where it writes the same text, and hindsight can grade what was not verified.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.experiments.trees.draft import Law
from acclimate.experiments.trees.recorded import KnownChoices
from acclimate.predictors.compiled import compiled

WIDTH = 4
"""Tokens that the drafter names."""

_UNNAMED = 1  # a token that is never drafted
_LEAST_SAID = 1e-3
_LOOKED_AT = 6  # last tokens of a text that decide


@dataclasses.dataclass(frozen=True, slots=True)
class Meaning:
    """What a drafter's probability p is worth: logit q = intercept + slope · logit p.

    ``sureness`` and ``spread`` are mean and standard deviation of the logit of its first choice.

    >>> Meaning(intercept=-1.0).true(np.array([0.5])).round(2).tolist()
    [0.27]
    """

    intercept: float = 0.0
    slope: float = 1.0
    sureness: float = 0.5
    spread: float = 1.5

    def true(self, said: FloatArray) -> FloatArray:
        """Return P(accepted | its parent was) for what is said, before siblings share it."""
        inside = np.clip(said, _LEAST_SAID, 1.0 - _LEAST_SAID)
        odds = np.log(inside / (1.0 - inside))
        result: FloatArray = 1.0 / (1.0 + np.exp(-(self.intercept + self.slope * odds)))
        return result


class SyntheticText:
    """A drafter, and what the target writes: the first token of a text is the number of its domain.

    Parameters
    ----------
    meanings
        By domain. The attribute ``meanings`` may be replaced: that is a swap of the drafter.
    seed
        Of the hash.

    Examples
    --------
    >>> text = SyntheticText({"prose": Meaning()}, seed=0)
    >>> law = text.next_tokens(np.array([0, 7]), 4)
    >>> law.tokens.shape, bool((np.diff(law.chances) <= 0).all())
    ((4,), True)
    >>> text.choice(np.array([0, 7])) in (_UNNAMED, *law.tokens.tolist())
    True
    """

    def __init__(self, meanings: Mapping[str, Meaning], *, seed: int) -> None:
        self.domains = tuple(meanings)
        self.meanings = dict(meanings)
        self.seed = seed

    def prompt(self, domain: str, number: int) -> list[int]:
        """Return a prompt of a domain; numbers tell prompts apart."""
        return [self.domains.index(domain), number]

    def next_tokens(self, ids: IntArray, most: int) -> Law:
        """Return what the drafter says of the next token."""
        meaning = self.meanings[self.domains[int(ids[0])]]
        tokens, chances = _law(ids, self.seed, meaning.sureness, meaning.spread)
        return Law(tokens[:most], chances[:most])

    def choice(self, ids: IntArray) -> int:
        """Return the token that the target writes."""
        meaning = self.meanings[self.domains[int(ids[0])]]
        tokens, said = _law(ids, self.seed, meaning.sureness, meaning.spread)
        true = meaning.true(said)
        bounds = np.cumsum(true / max(float(true.sum()), 1.0))
        at = int(np.searchsorted(bounds, _chance(ids, self.seed, 1), side="right"))
        return int(tokens[at]) if at < WIDTH else _UNNAMED


class SyntheticTarget:
    """Verifies trees against what a `SyntheticText` writes; each pass moves the clock.

    Parameters
    ----------
    text
        Says what is written.
    step_time, clock
        How long a step takes, and the control loop's clock.
    max_requests
        Rows.
    """

    capacity = np.iinfo(np.int64).max

    def __init__(
        self, text: SyntheticText, step_time: StepTime, clock: SimulatedClock, *, max_requests: int
    ) -> None:
        self.text = text
        self.step_time = step_time
        self.clock = clock
        self.max_requests = max_requests
        none = np.zeros(0, dtype=np.int64)
        self._rows: list[IntArray] = [none] * max_requests
        self._nodes: Sequence[IntArray] = ()

    def prefill(self, first_row: int, prompts: Sequence[IntArray]) -> KnownChoices:
        """Begin texts."""
        for row, prompt in enumerate(prompts, start=first_row):
            self._rows[row] = prompt
        return KnownChoices([np.array([self.text.choice(prompt)]) for prompt in prompts])

    def verify(
        self, tokens: Sequence[IntArray], parents: Sequence[IntArray], depths: Sequence[IntArray]
    ) -> KnownChoices:
        """Follow each text through its tree."""
        rows = len(tokens)
        verified = sum(nodes.shape[0] - 1 for nodes in tokens)
        context = sum(self._rows[row].shape[0] for row in range(rows))
        makeup = StepMakeUp(rows, verified, context_tokens=context)
        self.clock.now_ns += round(1e6 * self.step_time.step_ms(makeup))
        self._nodes = tokens
        return KnownChoices([self._follow(row, tokens[row], parents[row]) for row in range(rows)])

    def accept(self, row: int, path: Sequence[int]) -> None:
        """Go on behind the path."""
        self._rows[row] = np.concatenate([self._rows[row], self._nodes[row][list(path)]])

    def move(self, source: int, target: int) -> None:
        """Put a text into another row."""
        self._rows[target] = self._rows[source]

    def clear(self, row: int) -> None:
        """Forget a text."""
        self._rows[row] = np.zeros(0, dtype=np.int64)

    def _follow(self, row: int, tokens: IntArray, parent: IntArray) -> IntArray:
        choice = np.full(tokens.shape[0], -1)
        text, at = np.append(self._rows[row], tokens[0]), 0
        while True:
            choice[at] = wanted = self.text.choice(text)
            below = np.flatnonzero((parent == at) & (tokens == wanted))
            if not below.size:
                return choice
            at = int(below[0])
            text = np.append(text, wanted)


@compiled("f8(i8[::1], i8, i8)")
def _chance(ids: IntArray, seed: int, purpose: int) -> float:
    """Return a number in [0, 1) by the hash of a text's last tokens, SplitMix64 token by token.

    Prompt and length count too, or a text could run in circles.
    """
    n = ids.shape[0]
    x = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(purpose)
    x += np.uint64(n) * np.uint64(0xD1B54A32D192ED03) + np.uint64(ids[min(1, n - 1)])
    for i in range(max(n - _LOOKED_AT, 0), n):
        x += np.uint64(ids[i]) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return float(x >> np.uint64(11)) * 2.0**-53


@compiled("Tuple((i8[::1], f8[::1]))(i8[::1], i8, f8, f8)")
def _law(ids: IntArray, seed: int, sureness: float, spread: float) -> tuple[IntArray, FloatArray]:
    """Return the tokens that may come next and what the drafter says of each, likeliest first."""
    # A logistic variable with the standard deviation that is asked for.
    u = min(max(_chance(ids, seed, 2), 1e-9), 1.0 - 1e-9)
    odds = sureness + spread * np.sqrt(3.0) / np.pi * np.log(u / (1.0 - u))
    first = 1.0 / (1.0 + np.exp(-odds))
    rest = 1.0 - first
    chances = np.array([first, 0.5 * rest, 0.25 * rest, 0.12 * rest])
    begin = 2 + WIDTH * int(1e6 * _chance(ids, seed, 3))
    order = np.argsort(-chances)
    tokens = np.empty(WIDTH, dtype=np.int64)
    for i in range(WIDTH):
        tokens[i] = begin + i
    return tokens, chances[order]
