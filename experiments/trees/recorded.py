"""A target that repeats recorded answers: shapes can be examined in seconds, with any step time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from acclimate.controller.records import FloatArray, IntArray
from acclimate.experiments.simulation.clock import SimulatedClock
from acclimate.experiments.simulation.step_time import StepMakeUp, StepTime
from acclimate.predictors.compiled import compiled

_NOTHING = -1  # what follows a path that the answer does not take


class RecordedTarget:
    """Verifies trees against greedy answers that were written before.

    What the real target would choose behind a path that it does not take is not known, and not
    needed. Each pass moves the clock by the step's time.

    Parameters
    ----------
    answers
        Prompts and answers, as token ids. A prompt that occurs twice is answered as it was last.
    step_time
        How long a step takes.
    clock
        The control loop's.
    max_requests
        Rows.

    Examples
    --------
    >>> from acclimate.experiments.simulation.table_time import TableTime
    >>> table = TableTime([1, 1], [0, 1], [10.0, 12.0])
    >>> target = RecordedTarget([((1, 2), (3, 4))], table, SimulatedClock(), max_requests=1)
    >>> target.prefill(0, [np.array([1, 2])]).choices(0).tolist()
    [3]
    """

    capacity = np.iinfo(np.int64).max

    def __init__(
        self,
        answers: Iterable[tuple[Sequence[int], Sequence[int]]],
        step_time: StepTime,
        clock: SimulatedClock,
        *,
        max_requests: int,
    ) -> None:
        self.max_requests = max_requests
        self.step_time = step_time
        self.clock = clock
        self._answers = {
            tuple(prompt): np.array(answer, dtype=np.int64) for prompt, answer in answers
        }
        self._rows: list[IntArray] = [np.zeros(0, dtype=np.int64)] * max_requests
        # Tokens of the answer that are computed, and of the whole text.
        self._at = np.zeros(max_requests, dtype=np.int64)
        self._length = np.zeros(max_requests, dtype=np.int64)

    def prefill(self, first_row: int, prompts: Sequence[IntArray]) -> KnownChoices:
        """Look the answers up.

        Raises
        ------
        ValueError
            A prompt has no recorded answer.
        """
        choices = []
        for row, prompt in enumerate(prompts, start=first_row):
            answer = self._answers.get(tuple(prompt.tolist()))
            if answer is None or not answer.size:
                raise ValueError(f"a prompt must have an answer, got none for {prompt.tolist()}")
            self._rows[row] = answer
            self._at[row], self._length[row] = 0, prompt.shape[0]
            choices.append(answer[:1])
        return KnownChoices(choices)

    def verify(
        self, tokens: Sequence[IntArray], parents: Sequence[IntArray], depths: Sequence[IntArray]
    ) -> KnownChoices:
        """Follow each answer through its tree; the root is the answer's newest token."""
        rows = len(tokens)
        verified = sum(nodes.shape[0] - 1 for nodes in tokens)
        makeup = StepMakeUp(rows, verified, context_tokens=int(self._length[:rows].sum()))
        self.clock.now_ns += round(1e6 * self.step_time.step_ms(makeup))
        return KnownChoices(
            [
                _follow(self._rows[row], int(self._at[row]), tokens[row], parents[row], depths[row])
                for row in range(rows)
            ]
        )

    def accept(self, row: int, path: Sequence[int]) -> None:
        """Go on behind the path."""
        self._at[row] += len(path)
        self._length[row] += len(path)

    def move(self, source: int, target: int) -> None:
        """Put a row's answer into another row."""
        self._rows[target] = self._rows[source]
        self._at[target], self._length[target] = self._at[source], self._length[source]

    def clear(self, row: int) -> None:
        """Forget a row's answer."""
        self._at[row] = self._length[row] = 0


class KnownChoices:
    """First choices that are known beforehand; there is no law to draw from."""

    def __init__(self, choices: Sequence[IntArray]) -> None:
        self._choices = choices

    def choices(self, row: int) -> IntArray:
        """Return the token behind each of a row's nodes, -1 where nobody knows it."""
        return self._choices[row]

    def behind(self, row: int, temperature: float) -> Callable[[int], FloatArray]:
        """Raise: answers were recorded, laws were not."""
        raise ValueError(f"temperature must be 0 for recorded answers, got {temperature}")


@compiled("i8[::1](i8[::1], i8, i8[::1], i8[::1], i8[::1])")
def _follow(
    answer: IntArray, at: int, tokens: IntArray, parent: IntArray, depth: IntArray
) -> IntArray:
    """Return the answer's next token behind each node that it takes, -1 behind the others."""
    m = tokens.shape[0]
    choice = np.full(m, _NOTHING)
    for j in range(m):
        taken = j == 0 or (choice[parent[j]] == tokens[j] and choice[parent[j]] >= 0)
        place = at + 1 + depth[j]
        if taken and place < answer.shape[0]:
            choice[j] = answer[place]
    return choice
